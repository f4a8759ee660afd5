//! Queue of the reads that a peer has requested.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_memory::access;
use weft_transport::{FlushState, Link, LinkError, Segment};

use weft_channel::{ControlMessage, OneSidedWord};

/// The most bytes that a message carries.
pub(super) const FRAGMENT_BYTES: u64 = 32 << 10;
/// The most fragments that a rank may have requested from another and not received: 4 MiB, which
/// fill a line of 1 Gbit/s whose round trip takes 30 ms. The owner sends one when the link is idle.
pub(super) const FRAGMENTS_MAX: usize = 128;

/// The reads that a peer has requested, a few fragments at a time.
#[derive(Default)]
pub(super) struct ServeQueue {
    reads: VecDeque<Read>,
}

/// A read of one fragment.
pub(super) struct Read {
    pub(super) part: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) id: u64,
}

impl ServeQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    pub(super) fn add(&mut self, read: Read) -> Result<(), LinkError> {
        if self.reads.len() >= FRAGMENTS_MAX {
            return Err(violation(&format!(
                "more than {FRAGMENTS_MAX} unanswered reads"
            )));
        }
        self.reads.push_back(read);
        Ok(())
    }

    /// Sends requested data while the link accepts it. True if anything was sent.
    pub(super) fn advance(&mut self, group: u64, link: &dyn Link) -> Result<bool, LinkError> {
        let mut moved = false;
        while let Some(read) = self.reads.front() {
            if link.flush()? == FlushState::Pending {
                break;
            }
            let word = OneSidedWord::Data { id: read.id };
            let mut message = ControlMessage::OneSided { group, word }.encode();
            let header = message.len();
            message.resize(header + read.bytes as usize, 0);
            let start = read.part.base().as_ptr().wrapping_add(read.offset as usize);
            let payload = message[header..].as_mut_ptr();
            // SAFETY: the range was checked when the request arrived, and the payload has its
            // length.
            unsafe { access::copy(&[payload], start, read.bytes) };
            link.message(&message)?;
            self.reads.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}

/// The error for a peer's message that violates the protocol.
pub(super) fn violation(detail: &str) -> LinkError {
    LinkError::Protocol(format!("one-sided operations: {detail}"))
}
