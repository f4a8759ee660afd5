//! A link within one process, through memory that both ends share.

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::messages::{MessageQueue, QueueEnd};
use super::participant::Participant;
use crate::fork::Descriptor;
use crate::{
    AtomicOp, Capabilities, EndpointId, FlushState, Inbox, Iovec, IovecMut, Link, LinkError,
    LinkStatus, MESSAGE_BYTES_MAX, MappedPeer, Presence, RegionKey, RemoteAtomics, RemoteReads,
    Segment, Signal, Stream, Submission, Ticket, TransportKind,
};

pub(super) struct LoopbackLink {
    id: EndpointId,
    peer: MappedPeer,
    incoming: Arc<MessageQueue>,
    outgoing: Arc<MessageQueue>,
}

impl LoopbackLink {
    pub(super) fn new(
        peer: &Participant,
        incoming: Arc<MessageQueue>,
        outgoing: Arc<MessageQueue>,
    ) -> io::Result<LoopbackLink> {
        let event = Descriptor::copy_of(peer.local.doorbell.descriptor())?;
        let (pool, regions) = (Arc::clone(&peer.local.pool), Arc::clone(&peer.regions));
        Ok(LoopbackLink {
            id: peer.local.id,
            peer: MappedPeer::new(pool, regions, event)?,
            incoming,
            outgoing,
        })
    }

    /// An error if either side has ended the link.
    fn check_open(&self) -> Result<(), LinkError> {
        if !self.outgoing.is_open() {
            return Err(LinkError::Left);
        }
        self.incoming.check()
    }

    fn end(&self, end: QueueEnd) {
        if self.outgoing.end(end) {
            // Fails in a forked child, where no thread waits for it.
            let _ = self.peer.notify();
        }
    }
}

impl Stream for LoopbackLink {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.signal(signal)
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.inject(region, offset, bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.check_open()?;
        self.peer.put(region, offset, pieces, signal)?;
        Ok(Submission::Done)
    }
}

impl Link for LoopbackLink {
    fn urgent(&self) -> &dyn Stream {
        self
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Loopback
    }

    fn capabilities(&self) -> Capabilities {
        MappedPeer::CAPABILITIES
    }

    fn peer(&self) -> EndpointId {
        self.id
    }

    fn memory(&self, region: RegionKey) -> Option<Arc<Segment>> {
        self.peer.regions().with(region, Arc::clone)
    }

    /// No operation is ever under way.
    fn completed(&self, _ticket: Ticket) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn cancel(&self, _ticket: Ticket) {}

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.check_open()?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(LinkError::Io(io::ErrorKind::InvalidInput.into()));
        }
        self.outgoing.push(bytes.to_vec());
        self.peer.notify()
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        Ok(FlushState::Done)
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.incoming.take(inbox)?;
        self.check_open()
    }

    /// The peer sees every exposed region: nothing is checked.
    fn grant(&self, _region: RegionKey, _range: Range<u64>) -> Result<(), LinkError> {
        Ok(())
    }

    fn revoke(&self, _region: RegionKey, _range: Range<u64>) {}

    fn close(&self) {
        self.end(QueueEnd::Left);
    }

    fn reads(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }

    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        Some(self)
    }
}

impl LinkStatus for LoopbackLink {
    fn presence(&self) -> Presence {
        self.peer.presence()
    }

    fn peer_has_ended(&self) -> bool {
        self.incoming.is_over()
    }
}

impl RemoteReads for LoopbackLink {
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError> {
        self.check_open()?;
        self.peer.get(region, offset, into)?;
        Ok(Submission::Done)
    }
}

impl RemoteAtomics for LoopbackLink {
    fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<Submission, LinkError> {
        self.check_open()?;
        self.peer.atomic(region, offset, op, into)?;
        Ok(Submission::Done)
    }
}

impl Drop for LoopbackLink {
    fn drop(&mut self) {
        self.end(QueueEnd::Gone);
    }
}
