//! One end of a strict link.

use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_transport::loopback::{MessageQueue, QueueEnd};
use weft_transport::{
    AtomicOp, Capabilities, EndpointId, FlushState, Grants, INJECT_BYTES_MAX, Inbox, Iovec,
    IovecMut, Link, LinkError, LinkStatus, MESSAGE_BYTES_MAX, Presence, RegionKey, Regions,
    RemoteAtomics, RemoteReads, Segment, Signal, Stream, Submission, Ticket, TransportKind,
};

use super::lock::locked;
use super::participant::Participant;
use super::queue::{Payload, SendQueue, WorkRequest, invalid};
use super::registrations::StrictRegistrations;

/// One end of a link.
pub(super) struct StrictLink {
    id: EndpointId,
    regions: Arc<Regions>,
    registrations: Arc<StrictRegistrations>,
    /// The ranges that the peer may access here.
    grants: Arc<Mutex<Grants>>,
    incoming: Arc<MessageQueue>,
    queue: Arc<SendQueue>,
}

impl StrictLink {
    pub(super) const CAPABILITIES: Capabilities = Capabilities {
        maps: false,
        needs_registration: true,
        manual_progress: false,
    };

    /// Both ends, of endpoints with their queues of messages.
    pub(super) fn pair(
        first: (&Participant, Arc<MessageQueue>),
        second: (&Participant, Arc<MessageQueue>),
    ) -> [StrictLink; 2] {
        let grants = |of: &Participant| Arc::new(Mutex::new(Grants::new(Arc::clone(&of.regions))));
        let [first_grants, second_grants] = [grants(first.0), grants(second.0)];
        let end = |(here, incoming): &(&Participant, Arc<MessageQueue>),
                   (there, outgoing): &(&Participant, Arc<MessageQueue>),
                   [granted, grants]: [&Arc<Mutex<Grants>>; 2]| {
            let doorbells = [&here.local.doorbell, &there.local.doorbell].map(Arc::clone);
            StrictLink {
                id: there.local.id,
                regions: Arc::clone(&here.regions),
                registrations: Arc::clone(&here.registrations),
                grants: Arc::clone(granted),
                incoming: Arc::clone(incoming),
                queue: SendQueue::new(
                    doorbells,
                    Arc::clone(&here.registrations),
                    Arc::clone(grants),
                    Arc::clone(outgoing),
                ),
            }
        };
        [
            end(&first, &second, [&first_grants, &second_grants]),
            end(&second, &first, [&second_grants, &first_grants]),
        ]
    }

    /// An error if either side has ended the link.
    fn check_open(&self) -> Result<(), LinkError> {
        self.queue.check()?;
        self.incoming.check()
    }

    fn check_registered(&self, start: *const u8, len: usize) -> Result<(), LinkError> {
        match self.regions.covers(start, len) {
            true => Ok(()),
            false => Err(LinkError::Unregistered),
        }
    }

    fn check_source(&self, piece: Iovec) -> Result<(), LinkError> {
        match piece.registration() {
            None => self.check_registered(piece.start(), piece.len()),
            Some(key) if self.registrations.covers(key, piece) => Ok(()),
            Some(_) => Err(LinkError::Unregistered),
        }
    }

    fn post(&self, work: WorkRequest) -> Result<(), LinkError> {
        self.check_open()?;
        self.queue.push(work);
        Ok(())
    }

    fn post_ticketed(&self, work: WorkRequest) -> Result<Submission, LinkError> {
        self.check_open()?;
        Ok(self.queue.post(work))
    }
}

impl Stream for StrictLink {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.inject(RegionKey::POOL, 0, &[], Some(signal))
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        if bytes.len() > INJECT_BYTES_MAX {
            return Err(invalid());
        }
        let bytes = Payload::Copied(bytes.to_vec());
        self.post(WorkRequest::write(region, offset, bytes, signal)?)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        for piece in pieces {
            self.check_source(*piece)?;
        }
        let bytes = Payload::Registered(pieces.to_vec());
        self.post_ticketed(WorkRequest::write(region, offset, bytes, signal)?)
    }
}

impl Link for StrictLink {
    fn urgent(&self) -> &dyn Stream {
        self
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Custom
    }

    fn capabilities(&self) -> Capabilities {
        StrictLink::CAPABILITIES
    }

    fn peer(&self) -> EndpointId {
        self.id
    }

    fn memory(&self, _region: RegionKey) -> Option<Arc<Segment>> {
        None
    }

    fn completed(&self, ticket: Ticket) -> Result<bool, LinkError> {
        let ended = self.check_open().err();
        match (self.queue.progress(ticket, ended.is_some()), ended) {
            (true, _) => Ok(true),
            (false, None) => Ok(false),
            (false, Some(end)) => Err(end),
        }
    }

    fn cancel(&self, ticket: Ticket) {
        self.queue.cancel(ticket);
    }

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(invalid());
        }
        self.post(WorkRequest::Message(bytes.to_vec()))
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        Ok(match self.queue.is_idle() {
            true => FlushState::Done,
            false => FlushState::Pending,
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.incoming.take(inbox)?;
        self.check_open()
    }

    fn grant(&self, region: RegionKey, range: Range<u64>) -> Result<(), LinkError> {
        locked(&self.grants).grant(region, range);
        Ok(())
    }

    fn revoke(&self, region: RegionKey, range: Range<u64>) {
        locked(&self.grants).revoke(region, range);
    }

    fn close(&self) {
        self.queue.close();
    }

    fn reads(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }

    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        Some(self)
    }
}

impl LinkStatus for StrictLink {
    fn presence(&self) -> Presence {
        Presence::Unknown {
            round_trip: Duration::ZERO,
        }
    }

    fn peer_has_ended(&self) -> bool {
        self.incoming.is_over()
    }
}

impl RemoteReads for StrictLink {
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError> {
        self.check_registered(into.start(), into.len())?;
        let end = offset.checked_add(into.len() as u64);
        let range = offset..end.ok_or_else(invalid)?;
        self.post_ticketed(WorkRequest::Read {
            region,
            range,
            into,
        })
    }
}

impl RemoteAtomics for StrictLink {
    fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<Submission, LinkError> {
        self.check_registered(into.start(), into.len())?;
        if !offset.is_multiple_of(8) || into.len() != 8 || offset > u64::MAX - 8 {
            return Err(invalid());
        }
        self.post_ticketed(WorkRequest::Atomic {
            region,
            offset,
            op,
            into,
        })
    }
}

impl Drop for StrictLink {
    fn drop(&mut self) {
        self.queue.abandon(QueueEnd::Gone);
    }
}
