//! A link: its control connection, its rails, and the grants of each end.

mod checks;
mod end;
mod granted;
mod receiving;
mod sending;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use weft_transport::{
    AtomicOp, Capabilities, Doorbell, EndpointId, FlushState, Inbox, IovecMut, Link, LinkError,
    LinkStatus, Local, MESSAGE_BYTES_MAX, Presence, RegionKey, Regions, RemoteAtomics, RemoteReads,
    Segment, Standing, Stream, Submission, Ticket, TransportKind, WatchedDescriptors,
};

use crate::closing;
use crate::control::LinkControl;
use crate::frame::RingFrame;
use crate::keys::Keys;
use crate::lock::lock;
use crate::rail::{OperationKind, Rail};
use crate::verbs::LocalMemory;
use checks::{check_put, invalid};
use end::LinkEnd;
use granted::PeerGrants;

/// The capabilities of links over verbs.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    maps: false,
    needs_registration: true,
    manual_progress: true,
};

/// The position of the rail's number in a ticket.
const RAIL_SHIFT: u32 = 56;

/// A rail as a stream of its own.
struct RailStream {
    pub(super) link: Weak<RdmaLink>,
    pub(super) rail: usize,
}

/// A link over verbs.
///
/// Lock order: `turn`, `control_turn`, a rail's state, `keys`, `granted`, `asked`, `control`, the
/// link's end. No lock but `turn` is held while an inbox is called.
pub(crate) struct RdmaLink {
    me: Weak<RdmaLink>,
    peer: EndpointId,
    doorbell: Arc<Doorbell>,
    presence: Presence,
    /// None once the link has ended.
    control: Mutex<Option<Arc<dyn Link>>>,
    control_descriptor: RawFd,
    control_writing: AtomicBool,
    pub(crate) rails: Vec<Rail>,
    streams: Vec<RailStream>,
    next_rail: AtomicUsize,
    watched: WatchedDescriptors,
    keys: Mutex<Keys>,
    /// The number of key changes that have arrived.
    key_changes: AtomicU64,
    /// Held by the thread that receives control messages.
    control_turn: Mutex<()>,
    granted: Mutex<PeerGrants>,
    /// Questions that the peer has not answered, the oldest first, by rail.
    asked: Mutex<VecDeque<(usize, u64)>>,
    link_end: Mutex<Option<LinkEnd>>,
    /// Held by the thread that receives, so that messages are delivered in order.
    turn: Mutex<()>,
    closing: Arc<closing::Goodbyes>,
}

impl RdmaLink {
    /// A link of connected rails.
    pub(crate) fn new(
        local: &Local,
        regions: &Arc<Regions>,
        control: Arc<dyn Link>,
        rails: Vec<Rail>,
        closing: &Arc<closing::Goodbyes>,
    ) -> io::Result<Arc<RdmaLink>> {
        let control_descriptor = control.descriptor().unwrap_or(-1);
        let descriptors = rails
            .iter()
            .map(|rail| rail.completions.as_fd().as_raw_fd());
        let watched =
            WatchedDescriptors::new(descriptors.chain(std::iter::once(control_descriptor)))?;
        Ok(Arc::new_cyclic(|link| RdmaLink {
            me: link.clone(),
            peer: control.peer(),
            doorbell: local.doorbell.clone(),
            presence: control.presence(),
            control: Mutex::new(Some(control)),
            control_descriptor,
            control_writing: AtomicBool::new(false),
            streams: (1..rails.len())
                .map(|rail| RailStream {
                    link: link.clone(),
                    rail,
                })
                .collect(),
            rails,
            next_rail: AtomicUsize::new(0),
            watched,
            keys: Mutex::default(),
            key_changes: AtomicU64::new(0),
            control_turn: Mutex::new(()),
            granted: Mutex::new(PeerGrants::new(regions)),
            asked: Mutex::default(),
            link_end: Mutex::new(None),
            turn: Mutex::new(()),
            closing: Arc::clone(closing),
        }))
    }

    fn check(&self) -> Result<(), LinkError> {
        match &*lock(&self.link_end) {
            None => Ok(()),
            Some(end) => Err(end.error()),
        }
    }

    /// The target of a get or an atomic, as registered at the first rail's device.
    fn target(&self, into: IovecMut) -> Result<Vec<LocalMemory>, LinkError> {
        match into.is_empty() {
            true => Ok(Vec::new()),
            false => self.rails[0].registered.parts(into.start(), into.len()),
        }
    }

    fn is_closing(&self) -> bool {
        matches!(&*lock(&self.link_end), Some(LinkEnd::Closed))
    }

    /// Ends the link, unless it has ended: no memory is accessed afterwards.
    pub(crate) fn end(&self, end: LinkEnd) {
        let was = {
            let mut known = lock(&self.link_end);
            let was = known.is_some();
            known.get_or_insert(end);
            was
        };
        if !was {
            self.release();
        }
    }

    /// Drops queue pairs, registrations and the connection, whose end the peer detects.
    pub(crate) fn release(&self) {
        for rail in &self.rails {
            lock(&rail.state).end();
        }
        lock(&self.granted).clear();
        drop(lock(&self.control).take());
    }

    /// Records a failure. The first counts.
    fn note(&self, error: LinkError) {
        lock(&self.link_end).get_or_insert(error.into());
    }

    /// Ends the link after a failure of a rail. The connection's information about the peer has
    /// precedence: a peer that has left has ended its queue pairs. Returns the reason of the link's
    /// end.
    fn fail(&self, error: LinkError) -> LinkError {
        if matches!(error, LinkError::Gone(_)) {
            self.receive_control();
        }
        self.note(error);
        self.release();
        self.check().err().unwrap_or(LinkError::Left)
    }

    fn control(&self) -> Option<Arc<dyn Link>> {
        lock(&self.control).clone()
    }

    fn send_control(&self, message: &LinkControl) -> Result<(), LinkError> {
        match self.control() {
            Some(control) => control.message(&message.encode()),
            None => self.check(),
        }
    }

    /// Whether everything sent has reached the peer's memory.
    pub(crate) fn is_done(&self) -> Result<bool, LinkError> {
        let mut done = true;
        for rail in &self.rails {
            let mut state = lock(&rail.state);
            rail.poll(&mut state)?;
            // An operation that waits for an answer was cancelled; its mark waits for nothing.
            state.advance(&lock(&self.keys))?;
            done &= state.is_done()?;
        }
        // The peer executes no message before it has received the earlier keys.
        if let Some(control) = self.control() {
            done &= control.flush()? == FlushState::Done;
        }
        Ok(done)
    }

    /// Sends a goodbye over the connection, and drops everything.
    pub(crate) fn say_goodbye(&self) {
        if let Some(control) = self.control() {
            control.close();
        }
        self.release();
    }

    /// Revokes all grants of a region.
    pub(crate) fn revoke_region(&self, region: RegionKey) {
        self.revoke(region, 0..u64::MAX);
    }
}

impl Link for RdmaLink {
    fn urgent(&self) -> &dyn Stream {
        self
    }

    fn emptiest_stream(&self) -> usize {
        let count = self.rails.len();
        if count == 1 {
            return 0;
        }
        let first = self.next_rail.fetch_add(1, Ordering::Relaxed);
        let numbers = (0..count).map(|step| first.wrapping_add(step) % count);
        let under_way = |number: &usize| self.rails[*number].under_way.load(Ordering::Relaxed);
        numbers.min_by_key(under_way).unwrap_or(0)
    }

    fn further_stream(&self, number: usize) -> Option<&dyn Stream> {
        let stream = self.streams.get(number.checked_sub(1)?)?;
        Some(stream)
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Rdma
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn peer(&self) -> EndpointId {
        self.peer
    }

    fn memory(&self, _region: RegionKey) -> Option<Arc<Segment>> {
        None
    }

    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError> {
        let rail = &self.rails[(ticket.0 >> RAIL_SHIFT) as usize];
        let number = ticket.0 & ((1 << RAIL_SHIFT) - 1);
        let mut state = lock(&rail.state);
        if state.is_complete(number) {
            return Ok(true);
        }
        let polled = rail.poll(&mut state);
        let (complete, ended) = (state.is_complete(number), state.has_ended());
        drop(state);
        match (polled, self.check()) {
            _ if complete => Ok(true),
            (Err(error), _) => Err(self.fail(error)),
            (Ok(()), Ok(())) => Ok(false),
            // A link that was closed here still completes operations that have begun.
            (Ok(()), Err(_)) if !ended && self.is_closing() => Ok(false),
            (Ok(()), Err(error)) => {
                self.release();
                Err(error)
            }
        }
    }

    fn cancel(&self, ticket: Ticket) {
        let rail = &self.rails[(ticket.0 >> RAIL_SHIFT) as usize];
        let number = ticket.0 & ((1 << RAIL_SHIFT) - 1);
        let mut polling = closing::PollingWait::new();
        // An adapter cannot be stopped in the middle of a request, but finishes soon; if not, the
        // connection ends, and the request with it.
        loop {
            let mut state = lock(&rail.state);
            let over = rail.poll(&mut state).and_then(|()| state.cancel(number));
            drop(state);
            match over {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => return drop(self.fail(error)),
            }
            if !polling.wait() {
                return self.end(LinkEnd::Gone("a cancelled request did not end".into()));
            }
        }
    }

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(invalid("a message of more than 64 KiB"));
        }
        let key_changes = lock(&self.granted).key_changes();
        let promised = |rail: &Rail| lock(&rail.state).promised;
        let frame = RingFrame::Message {
            key_changes,
            behind: self.rails[1..].iter().map(promised).collect(),
            bytes,
        };
        self.frame(0, &frame)
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        self.advance_all()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.watched.descriptor())
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // The holder of the turn receives everything; an inbox that calls back here finds its own
        // thread to be the holder.
        let Ok(_turn) = self.turn.try_lock() else {
            return Ok(());
        };
        self.receive_all(inbox);
        if let Err(error) = self.check() {
            if !self.is_closing() {
                self.release();
            }
            return Err(error);
        }
        self.advance_all().map(drop)
    }

    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError> {
        self.check()?;
        let mut granted = lock(&self.granted);
        match granted.grant(&self.rails, region, range)? {
            Some(message) => self.send_control(&message),
            None => Ok(()),
        }
    }

    fn revoke(&self, region: RegionKey, range: Range<u64>) {
        let mut granted = lock(&self.granted);
        for message in granted.revoke(&self.rails, region, &range) {
            // A failure of the link is detected when it is read.
            let _ = self.send_control(&message);
        }
    }

    fn close(&self) {
        {
            let mut link_end = lock(&self.link_end);
            if link_end.is_some() {
                return;
            }
            *link_end = Some(LinkEnd::Closed);
        }
        for rail in &self.rails {
            lock(&rail.state).cancel_all();
        }
        if let Some(link) = self.me.upgrade() {
            closing::say_goodbye(&self.closing, link);
        }
    }

    fn reads(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }

    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        self.rails[0].has_atomics().then_some(self as _)
    }
}

impl LinkStatus for RdmaLink {
    fn presence(&self) -> Presence {
        self.presence
    }

    fn standing(&self) -> Standing {
        match (self.check(), self.control()) {
            (Err(_), _) => Standing::Ended,
            (Ok(()), Some(control)) => control.standing(),
            (Ok(()), None) => Standing::Good,
        }
    }

    fn peer_has_ended(&self) -> bool {
        self.control()
            .is_some_and(|control| control.peer_has_ended())
    }
}

impl RemoteReads for RdmaLink {
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError> {
        let own = self.target(into)?;
        let end = check_put(offset, into.len() as u64, None)?;
        match own.is_empty() {
            true => self.check().map(|()| Submission::Done),
            false => self.start(0, OperationKind::Read, (region, offset..end), own, None),
        }
    }
}

impl RemoteAtomics for RdmaLink {
    fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<Submission, LinkError> {
        let own = self.target(into)?;
        let end = check_put(offset, 8, None)?;
        if !offset.is_multiple_of(8) || into.len() != 8 {
            return Err(invalid("an atomic is of 8 bytes, at a multiple of 8"));
        }
        self.start(
            0,
            OperationKind::Change(op),
            (region, offset..end),
            own,
            None,
        )
    }
}

impl Drop for RdmaLink {
    /// Data that was sent still arrives. There is no goodbye: to the peer, this end is gone.
    fn drop(&mut self) {
        // In a forked child everything is the parent's, and the queues may be inaccessible.
        if self.rails[0].is_own() && lock(&self.link_end).is_none() {
            let mut polling = closing::PollingWait::new();
            while let Ok(false) = self.is_done() {
                if !polling.wait() {
                    break;
                }
            }
        }
    }
}

impl closing::ClosingLink for RdmaLink {
    fn is_done(&self) -> Result<bool, LinkError> {
        RdmaLink::is_done(self)
    }

    fn say_goodbye(&self) {
        RdmaLink::say_goodbye(self);
    }
}
