//! A link's streams except the first.

use std::sync::Arc;

use weft_transport::{Iovec, LinkError, RegionKey, Signal, Stream, Submission};

use crate::link::{NumberedStream, TcpLink};

impl NumberedStream {
    fn link(&self) -> Result<Arc<TcpLink>, LinkError> {
        // It exists while the stream does: the stream is part of the link.
        self.link.upgrade().ok_or(LinkError::Left)
    }
}

impl Stream for NumberedStream {
    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.link()?.signal_in(self.place, signal)
    }

    fn signal_late(&self, signal: Signal) -> Result<(), LinkError> {
        self.link()?.signal_late_in(self.place, signal)
    }

    fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        (self.link()?).inject_in(self.place, region, offset, bytes, signal)
    }

    fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<Submission, LinkError> {
        (self.link()?).put_in(self.place, region, offset, pieces, signal)
    }
}
