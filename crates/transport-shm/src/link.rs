//! The link that users hold.

use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use weft_transport::{EndpointId, Inbox, Kind, Link, LinkError, PeerMemory, Progress, Signal};

use crate::connection::Connection;

/// Ends its connection when it is dropped: with a goodbye if it was closed before, else like a death.
pub(crate) struct ShmLink {
    connection: Arc<Connection>,
}

impl ShmLink {
    pub(crate) fn new(connection: Connection) -> Result<ShmLink, LinkError> {
        let connection = Arc::new(connection);
        connection.watch().add(&connection)?;
        Ok(ShmLink { connection })
    }
}

impl Link for ShmLink {
    fn kind(&self) -> Kind {
        Kind::Shm
    }

    fn peer(&self) -> EndpointId {
        self.connection.id()
    }

    fn memory(&self) -> Option<PeerMemory> {
        Some(self.connection.peer().memory())
    }

    fn put(
        &self,
        _token: u64,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) -> Result<Progress, LinkError> {
        self.connection.check_open()?;
        if self.connection.has_backlog() {
            return self.connection.put_in_order(offset, pieces, signal);
        }
        self.connection.peer().put(offset, pieces, signal)?;
        Ok(Progress::Done)
    }

    /// A put is done at once or has not begun, so there is nothing to give up.
    fn abandon(&self, _token: u64) {}

    #[inline]
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.connection.check_open()?;
        if self.connection.has_backlog() {
            return self.connection.put_in_order(0, &[], Some(signal)).map(drop);
        }
        self.connection.peer().signal(signal)
    }

    fn message(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        self.connection.check_open()?;
        self.connection.message(bytes, descriptors)
    }

    #[inline]
    fn mail(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.connection.check_open()?;
        self.connection.mail(pieces)
    }

    #[inline]
    fn has_mail(&self) -> bool {
        self.connection.has_mail()
    }

    fn take_mail(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.connection.take_mail(inbox)
    }

    fn flush(&self) -> Result<Progress, LinkError> {
        self.connection.check_open()?;
        self.connection.flush()
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.connection.raw_socket())
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        self.connection.receive(inbox)
    }

    /// The peer maps the whole pool: nothing is checked.
    fn grant(&self, _range: Range<u64>) {}

    fn revoke(&self, _range: Range<u64>) {}

    fn close(&self) {
        if !self.connection.close() {
            self.connection.watch().linger(&self.connection);
        }
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        self.connection.watch().remove(&self.connection);
    }
}
