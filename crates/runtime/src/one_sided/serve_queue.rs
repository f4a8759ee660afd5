//! The reads that a peer has asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_memory::access;
use weft_transport::{FlushState, Link, LinkError, Segment};

use weft_channel::{ControlMessage, OneSidedWord};

/// The most bytes that a message carries.
pub(super) const FRAGMENT_BYTES: u64 = 32 << 10;
/// Fragments of gets that a rank may have asked another for, and not received.
pub(super) const FRAGMENTS_MAX: usize = 8;

/// What a peer has asked to read. It asks for a few fragments at a time.
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
            return Err(nonsense(&format!(
                "more than the {FRAGMENTS_MAX} reads that may be under way"
            )));
        }
        self.reads.push_back(read);
        Ok(())
    }

    /// Sends what was asked for, as long as the link takes it. True if anything went.
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
            // SAFETY: the range was checked when the read came, and the payload is as long.
            unsafe { access::copy(&[payload], start, read.bytes) };
            link.message(&message)?;
            self.reads.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}

/// A peer's message that goes against the protocol.
pub(super) fn nonsense(what: &str) -> LinkError {
    LinkError::Protocol(format!("one-sided operations: {what}"))
}
