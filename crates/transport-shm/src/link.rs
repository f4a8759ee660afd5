//! The link that callers hold.

use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;

use weft_transport::{
    AtomicOp, Capabilities, EndpointId, FlushState, Inbox, Iovec, IovecMut, Link, LinkError,
    LinkStatus, MappedPeer, PolledMessages, Presence, RegionKey, Regions, RemoteAtomics,
    RemoteReads, Segment, Signal, Stream, Submission, Ticket, TransportKind,
};

use crate::connection::ShmConnection;
use crate::watch::Watched;

/// Ends its connection when it is dropped: with a goodbye if it was closed before, else like a
/// death.
pub(crate) struct ShmLink {
    connection: Arc<ShmConnection>,
    /// This endpoint's exposed regions.
    regions: Arc<Regions>,
}

impl ShmLink {
    pub(crate) fn new(connection: ShmConnection, regions: Arc<Regions>) -> Result<Self, LinkError> {
        let connection = Arc::new(connection);
        connection.watch().add(&connection)?;
        Ok(ShmLink {
            connection,
            regions,
        })
    }
}

impl Stream for ShmLink {
    #[inline]
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.connection.check_open()?;
        if self.connection.has_backlog() {
            return self
                .connection
                .inject_in_order(RegionKey::POOL, 0, &[], Some(signal));
        }
        self.connection.peer().signal(signal)
    }

    #[inline]
    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.connection.check_open()?;
        if self.connection.has_backlog() {
            return self
                .connection
                .inject_in_order(region, offset, bytes, signal);
        }
        self.connection.peer().inject(region, offset, bytes, signal)
    }

    #[inline]
    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        self.connection.check_open()?;
        if self.connection.has_backlog() {
            return self.connection.put_in_order(region, offset, pieces, signal);
        }
        self.connection.peer().put(region, offset, pieces, signal)?;
        Ok(Submission::Done)
    }
}

impl Link for ShmLink {
    fn urgent(&self) -> &dyn Stream {
        self
    }

    fn kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn peer(&self) -> EndpointId {
        self.connection.id()
    }

    fn capabilities(&self) -> Capabilities {
        MappedPeer::CAPABILITIES
    }

    fn memory(&self, region: RegionKey) -> Option<Arc<Segment>> {
        self.connection.peer().regions().with(region, Arc::clone)
    }

    /// Operations are complete when their call returns, or were not accepted.
    fn completed(&self, _ticket: Ticket) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn cancel(&self, _ticket: Ticket) {}

    fn message(&self, bytes: &[u8]) -> Result<(), LinkError> {
        self.connection.check_open()?;
        self.connection.message(bytes)
    }

    #[inline]
    fn polled_message(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.connection.check_open()?;
        self.connection.polled_message(pieces)
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        self.connection.check_open()?;
        self.connection.flush()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.connection.raw_socket())
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.connection.receive(inbox)
    }

    /// The peer maps the whole region: nothing is checked.
    fn grant(&self, region: RegionKey, _range: Range<u64>) -> Result<(), LinkError> {
        if region == RegionKey::POOL {
            return Ok(());
        }
        let grant = |segment: &Arc<Segment>| self.connection.grant(region, segment);
        self.regions.with(region, grant).unwrap_or(Ok(()))
    }

    fn revoke(&self, _region: RegionKey, _range: Range<u64>) {}

    fn close(&self) {
        if !self.connection.close() {
            self.connection.watch().linger(&self.connection);
        }
    }

    fn reads(&self) -> Option<&dyn RemoteReads> {
        Some(self)
    }

    fn atomics(&self) -> Option<&dyn RemoteAtomics> {
        Some(self)
    }

    fn polled_messages(self: Arc<Self>) -> Option<Arc<dyn PolledMessages>> {
        Some(self)
    }
}

impl LinkStatus for ShmLink {
    fn presence(&self) -> Presence {
        self.connection.peer().presence()
    }

    fn peer_has_ended(&self) -> bool {
        self.connection.peer_has_ended()
    }
}

impl RemoteReads for ShmLink {
    fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<Submission, LinkError> {
        if !self.connection.is_clear()? {
            return Ok(Submission::Full);
        }
        self.connection.peer().get(region, offset, into)?;
        Ok(Submission::Done)
    }
}

impl RemoteAtomics for ShmLink {
    fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<Submission, LinkError> {
        if !self.connection.is_clear()? {
            return Ok(Submission::Full);
        }
        self.connection.peer().atomic(region, offset, op, into)?;
        Ok(Submission::Done)
    }
}

impl PolledMessages for ShmLink {
    #[inline]
    fn has_polled_message(&self) -> bool {
        self.connection.has_polled_message()
    }

    fn take_polled_message(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.connection.take_polled_message(inbox)
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        self.connection.watch().remove(&self.connection);
    }
}
