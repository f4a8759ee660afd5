//! A link: its connection for control, its rails, and what each end has granted the other.

mod checks;
mod fate;
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
use crate::frame::Frame;
use crate::keys::Keys;
use crate::lock::lock;
use crate::news::News;
use crate::rail::{Action, Rail};
use crate::verbs::OwnMemory;
use checks::{check_put, invalid};
use fate::Fate;
use granted::Granted;

/// What links over verbs can do.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    maps: false,
    needs_registration: true,
    manual_progress: true,
};

/// Where the number of the rail lies in a ticket.
const RAIL_SHIFT: u32 = 56;

/// A rail as a stream of its own.
struct RailStream {
    pub(super) link: Weak<RdmaLink>,
    pub(super) rail: usize,
}

/// A link over verbs.
///
/// Lock order: `turn`, `hearing`, a rail's state, `keys`, `granted`, `asked`, `control`, the fate.
/// No lock but `turn` is held while an inbox is called.
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
    /// News of keys that have come.
    news: AtomicU64,
    /// Held by the thread that takes in news.
    hearing: Mutex<()>,
    granted: Mutex<Granted>,
    /// Questions that the peer has not answered, the oldest first, by rail.
    asked: Mutex<VecDeque<(usize, u64)>>,
    fate: Mutex<Option<Fate>>,
    /// Held by the thread that receives, so that messages are delivered in order.
    turn: Mutex<()>,
    closing: Arc<closing::Goodbyes>,
}

impl RdmaLink {
    /// A link of rails that are connected.
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
            news: AtomicU64::new(0),
            hearing: Mutex::new(()),
            granted: Mutex::new(Granted::new(regions)),
            asked: Mutex::default(),
            fate: Mutex::new(None),
            turn: Mutex::new(()),
            closing: Arc::clone(closing),
        }))
    }

    fn check(&self) -> Result<(), LinkError> {
        match &*lock(&self.fate) {
            None => Ok(()),
            Some(fate) => Err(fate.error()),
        }
    }

    /// What a get or an atomic writes, as the first rail's device knows it.
    fn target(&self, into: IovecMut) -> Result<Vec<OwnMemory>, LinkError> {
        match into.is_empty() {
            true => Ok(Vec::new()),
            false => self.rails[0].registered.parts(into.start(), into.len()),
        }
    }

    fn is_closing(&self) -> bool {
        matches!(&*lock(&self.fate), Some(Fate::Closed))
    }

    /// Ends the link, unless it has: nothing is touched afterwards.
    pub(crate) fn end(&self, fate: Fate) {
        let was = {
            let mut known = lock(&self.fate);
            let was = known.is_some();
            known.get_or_insert(fate);
            was
        };
        if !was {
            self.let_go();
        }
    }

    /// Gives up queue pairs, registrations and the connection, whose end the peer sees.
    pub(crate) fn let_go(&self) {
        for rail in &self.rails {
            lock(&rail.state).end();
        }
        lock(&self.granted).clear();
        drop(lock(&self.control).take());
    }

    /// Takes note of a failure. The first counts.
    fn note(&self, error: LinkError) {
        lock(&self.fate).get_or_insert(error.into());
    }

    /// Ends the link for a failure of a rail. What the connection knows of the peer goes before it:
    /// a peer that has left has ended its queue pairs. Returns what has become of the link.
    fn fail(&self, error: LinkError) -> LinkError {
        if matches!(error, LinkError::Gone(_)) {
            self.take_news();
        }
        self.note(error);
        self.let_go();
        self.check().err().unwrap_or(LinkError::Left)
    }

    fn control(&self) -> Option<Arc<dyn Link>> {
        lock(&self.control).clone()
    }

    fn tell(&self, news: &News) -> Result<(), LinkError> {
        match self.control() {
            Some(control) => control.message(&news.encode()),
            None => self.check(),
        }
    }

    /// Whether all that was sent has reached the peer's memory.
    pub(crate) fn is_done(&self) -> Result<bool, LinkError> {
        let mut done = true;
        for rail in &self.rails {
            let mut state = lock(&rail.state);
            rail.poll(&mut state)?;
            // An operation that waits for an answer was cancelled; its mark waits for nothing.
            state.advance(&lock(&self.keys))?;
            done &= state.is_done()?;
        }
        // The peer carries out no message before it knows the keys that were told before.
        if let Some(control) = self.control() {
            done &= control.flush()? == FlushState::Done;
        }
        Ok(done)
    }

    /// Says goodbye over the connection, and lets go of everything.
    pub(crate) fn say_goodbye(&self) {
        if let Some(control) = self.control() {
            control.close();
        }
        self.let_go();
    }

    /// Withdraws what was granted of a region.
    pub(crate) fn forget_region(&self, region: RegionKey) {
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
            // A link that was closed here still does what it has begun.
            (Ok(()), Err(_)) if !ended && self.is_closing() => Ok(false),
            (Ok(()), Err(error)) => {
                self.let_go();
                Err(error)
            }
        }
    }

    fn cancel(&self, ticket: Ticket) {
        let rail = &self.rails[(ticket.0 >> RAIL_SHIFT) as usize];
        let number = ticket.0 & ((1 << RAIL_SHIFT) - 1);
        let mut patience = closing::Patience::new();
        // An adapter cannot be stopped in the middle of a request, but is soon done; if not, the
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
            if !patience.wait() {
                return self.end(Fate::Gone(
                    "a request that was cancelled did not end".into(),
                ));
            }
        }
    }

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(invalid("a message of more than 64 KiB"));
        }
        let news = lock(&self.granted).news();
        let promised = |rail: &Rail| lock(&rail.state).promised;
        let frame = Frame::Message {
            news,
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
        // Whoever holds the turn takes everything in; an inbox that calls back here finds it held
        // by itself.
        let Ok(_turn) = self.turn.try_lock() else {
            return Ok(());
        };
        self.take_in(inbox);
        if let Err(error) = self.check() {
            if !self.is_closing() {
                self.let_go();
            }
            return Err(error);
        }
        self.advance_all().map(drop)
    }

    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError> {
        self.check()?;
        let mut granted = lock(&self.granted);
        match granted.grant(&self.rails, region, range)? {
            Some(news) => self.tell(&news),
            None => Ok(()),
        }
    }

    fn revoke(&self, region: RegionKey, range: Range<u64>) {
        let mut granted = lock(&self.granted);
        for news in granted.revoke(&self.rails, region, &range) {
            // A link that fails is noticed when it is read.
            let _ = self.tell(&news);
        }
    }

    fn close(&self) {
        {
            let mut fate = lock(&self.fate);
            if fate.is_some() {
                return;
            }
            *fate = Some(Fate::Closed);
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
            false => self.start(0, Action::Read, (region, offset..end), own, None),
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
        self.start(0, Action::Change(op), (region, offset..end), own, None)
    }
}

impl Drop for RdmaLink {
    /// What was sent still gets there. There is no goodbye: to the peer, this end is gone.
    fn drop(&mut self) {
        // In a forked child everything is the parent's, and the queues may be out of reach.
        if self.rails[0].is_own() && lock(&self.fate).is_none() {
            let mut patience = closing::Patience::new();
            while let Ok(false) = self.is_done() {
                if !patience.wait() {
                    break;
                }
            }
        }
    }
}

impl closing::Closing for RdmaLink {
    fn is_done(&self) -> Result<bool, LinkError> {
        RdmaLink::is_done(self)
    }

    fn say_goodbye(&self) {
        RdmaLink::say_goodbye(self);
    }
}
