//! Posting of a rail's queue, as far as there is room, and reports of the room in its own ring.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use weft_transport::LinkError;

use super::operation::{OperationKind, OperationStage, QueueEntry, RailOperation};
use super::{Question, ROOM, RailState, SENDS, SENDS_KEPT};
use crate::keys::Keys;
use crate::ring::HEADER_BYTES;
use crate::verbs::{LocalMemory, PeerMemory, Posting, QueuePairWork};

/// The most unsignaled requests in sequence, besides those that are waited for.
const SIGNALED_EVERY: u64 = 64;

impl RailState {
    /// Posts entries while there is room. Returns the question to ask the peer before more can be
    /// posted.
    pub(crate) fn advance(&mut self, keys: &Keys) -> Result<Option<Question>, LinkError> {
        while self.pair.is_some() {
            let Some(head) = self.queue.pop_front() else {
                break;
            };
            let (done, question) = match head {
                QueueEntry::Frame(frame) => match self.post_frame(&frame, false)? {
                    true => (None, None),
                    false => (Some(QueueEntry::Frame(frame)), None),
                },
                QueueEntry::Operation(operation) => self.post_operation(operation, keys)?,
            };
            if let Some(rest) = done {
                self.queue.push_front(rest);
                return Ok(question);
            }
        }
        Ok(None)
    }

    /// Posts an operation. Returns it if there is no room for all of it, or if it must wait for the
    /// peer's answer to a question.
    fn post_operation(
        &mut self,
        mut operation: RailOperation,
        keys: &Keys,
    ) -> Result<(Option<QueueEntry>, Option<Question>), LinkError> {
        if let Err(question) = operation.find(keys, self.number) {
            return Ok((Some(QueueEntry::Operation(operation)), question));
        }
        let mut parts = operation.parts.take().unwrap_or_default();
        while let Some((own, peer)) = parts.pop_front() {
            if !self.has_room() {
                parts.push_front((own, peer));
                operation.parts = Some(parts);
                return Ok((Some(QueueEntry::Operation(operation)), None));
            }
            let work = match operation.what {
                OperationKind::Write => QueuePairWork::Write(own, peer),
                OperationKind::Read => QueuePairWork::Read(own, peer),
                OperationKind::Change(op) => QueuePairWork::Atomic(own, peer, op),
            };
            let last = parts.is_empty() && operation.frame.is_none();
            self.post(work, last, false)?;
            operation.last_posted = self.posted;
            if !matches!(operation.what, OperationKind::Write) {
                self.last_read = self.posted;
            }
        }
        if let Some(frame) = &operation.frame
            && !self.post_frame(frame, true)?
        {
            operation.parts = Some(VecDeque::new());
            return Ok((Some(QueueEntry::Operation(operation)), None));
        }
        // A late operation has posted nothing: it is complete with the requests before it.
        if let Some(stage) = self.stages.get_mut(&operation.ticket) {
            *stage = OperationStage::Posted(self.signaled);
        }
        Ok((None, None))
    }

    /// Writes a frame into the peer's ring, if that has room.
    fn post_frame(&mut self, frame: &[u8], signaled: bool) -> Result<bool, LinkError> {
        if !self.has_room() {
            return Ok(false);
        }
        let Some(start) = self.outbound.place(frame.len()) else {
            return Ok(false);
        };
        let range = HEADER_BYTES + start..HEADER_BYTES + start + frame.len() as u64;
        let at = self.mirror.at(&range).expect("a place in the ring");
        // SAFETY: the place is in the mirror, and the peer has processed the frame that was there
        // before, so no request reads it any more.
        unsafe {
            at.as_ptr()
                .copy_from_nonoverlapping(frame.as_ptr(), frame.len())
        };
        let length = frame.len() as u32;
        let own = LocalMemory {
            address: self.mirror_memory.start() + range.start,
            bytes: length,
            key: self.mirror_memory.local_key(),
        };
        let peer = PeerMemory {
            address: self.peer_ring.address + range.start,
            key: self.peer_ring.key,
        };
        self.post(
            QueuePairWork::WriteAndNotify(own, peer, length),
            signaled,
            true,
        )?;
        Ok(true)
    }

    fn has_room(&self) -> bool {
        self.posted - self.done < SENDS - SENDS_KEPT
    }

    fn post(
        &mut self,
        work: QueuePairWork,
        waited_for: bool,
        copied: bool,
    ) -> Result<(), LinkError> {
        let Some(pair) = &self.pair else {
            return Ok(());
        };
        let number = self.posted + 1;
        let signaled = waited_for || number - self.signaled >= SIGNALED_EVERY;
        let bytes = match work {
            QueuePairWork::Write(own, _) | QueuePairWork::WriteAndNotify(own, _, _) => own.bytes,
            _ => u32::MAX,
        };
        let how = Posting {
            signaled,
            inline: copied && bytes <= pair.inline_bytes(),
            fenced: self.last_read > self.done,
        };
        // SAFETY: local memory of operations is in regions, and the caller that named it keeps it
        // until the operation is complete or cancelled, for which the request is waited for, or the
        // pair is dropped; the mirror's is not written before the peer has processed the frame.
        unsafe { pair.post(number, work, how) }?;
        self.posted = number;
        if signaled {
            self.signaled = number;
        }
        Ok(())
    }

    /// Reports to the peer how much of its ring was emptied, if that is due.
    pub(crate) fn report_room(&mut self) -> Result<(), LinkError> {
        let Some(position) = self.inbound.due() else {
            return Ok(());
        };
        if self.posted - self.done + 1 >= SENDS {
            return Ok(());
        }
        // Each word is read separately, and both only grow: a reader may see one before the other.
        self.mirror.word(0).store(position.bytes, Ordering::Release);
        self.mirror
            .word(8)
            .store(position.frames, Ordering::Release);
        let own = LocalMemory {
            address: self.mirror_memory.start(),
            bytes: 16,
            key: self.mirror_memory.local_key(),
        };
        self.post(
            QueuePairWork::WriteAndNotify(own, self.peer_ring, ROOM),
            false,
            true,
        )?;
        self.inbound.reported();
        Ok(())
    }

    /// Requests a completion for everything posted, if there is none yet.
    pub(super) fn request_completion(&mut self) -> Result<(), LinkError> {
        if self.signaled < self.posted && self.posted - self.done + 1 < SENDS {
            self.post(QueuePairWork::Notify(ROOM), true, false)?;
        }
        Ok(())
    }
}
