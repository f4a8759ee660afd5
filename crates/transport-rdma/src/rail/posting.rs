//! What a rail posts: the head of its queue, as far as there is room, and how far it has emptied
//! its own ring.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use weft_transport::LinkError;

use super::operation::{Action, Operation, Queued, Stage};
use super::{Question, ROOM, RailState, SENDS, SENDS_KEPT};
use crate::keys::Keys;
use crate::ring::HEADER_BYTES;
use crate::verbs::{OwnMemory, PeerMemory, Posting, Work};

/// One request in so many is told to be complete, besides those that somebody waits for.
const TOLD_EVERY: u64 = 64;

impl RailState {
    /// Posts what there is room for. Returns what the link must ask the peer before more can be.
    pub(crate) fn advance(&mut self, keys: &Keys) -> Result<Option<Question>, LinkError> {
        while self.pair.is_some() {
            let Some(head) = self.queue.pop_front() else {
                break;
            };
            let (done, question) = match head {
                Queued::Frame(frame) => match self.post_frame(&frame, false)? {
                    true => (None, None),
                    false => (Some(Queued::Frame(frame)), None),
                },
                Queued::Operation(operation) => self.post_operation(operation, keys)?,
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
        mut operation: Operation,
        keys: &Keys,
    ) -> Result<(Option<Queued>, Option<Question>), LinkError> {
        if let Err(question) = operation.find(keys, self.number) {
            return Ok((Some(Queued::Operation(operation)), question));
        }
        let mut parts = operation.parts.take().unwrap_or_default();
        while let Some((own, peer)) = parts.pop_front() {
            if !self.has_room() {
                parts.push_front((own, peer));
                operation.parts = Some(parts);
                return Ok((Some(Queued::Operation(operation)), None));
            }
            let work = match operation.what {
                Action::Write => Work::Write(own, peer),
                Action::Read => Work::Read(own, peer),
                Action::Change(op) => Work::Atomic(own, peer, op),
            };
            let last = parts.is_empty() && operation.frame.is_none();
            self.post(work, last, false)?;
            operation.last_posted = self.posted;
            if !matches!(operation.what, Action::Write) {
                self.last_read = self.posted;
            }
        }
        if let Some(frame) = &operation.frame
            && !self.post_frame(frame, true)?
        {
            operation.parts = Some(VecDeque::new());
            return Ok((Some(Queued::Operation(operation)), None));
        }
        // One that comes late has posted nothing: it is over with what is before it.
        if let Some(stage) = self.stages.get_mut(&operation.ticket) {
            *stage = Stage::Posted(self.told);
        }
        Ok((None, None))
    }

    /// Writes a frame into the peer's ring, if that has room.
    fn post_frame(&mut self, frame: &[u8], told: bool) -> Result<bool, LinkError> {
        if !self.has_room() {
            return Ok(false);
        }
        let Some(start) = self.outbound.place(frame.len()) else {
            return Ok(false);
        };
        let range = HEADER_BYTES + start..HEADER_BYTES + start + frame.len() as u64;
        let at = self.mirror.at(&range).expect("a place in the ring");
        // SAFETY: the place lies in the mirror, and the frame that was there before was taken in
        // by the peer, so no request reads it any more.
        unsafe {
            at.as_ptr()
                .copy_from_nonoverlapping(frame.as_ptr(), frame.len())
        };
        let length = frame.len() as u32;
        let own = OwnMemory {
            address: self.mirror_memory.start() + range.start,
            bytes: length,
            key: self.mirror_memory.local_key(),
        };
        let peer = PeerMemory {
            address: self.peer_ring.address + range.start,
            key: self.peer_ring.key,
        };
        self.post(Work::WriteAndTell(own, peer, length), told, true)?;
        Ok(true)
    }

    fn has_room(&self) -> bool {
        self.posted - self.done < SENDS - SENDS_KEPT
    }

    fn post(&mut self, work: Work, waited_for: bool, copied: bool) -> Result<(), LinkError> {
        let Some(pair) = &self.pair else {
            return Ok(());
        };
        let number = self.posted + 1;
        let signaled = waited_for || number - self.told >= TOLD_EVERY;
        let bytes = match work {
            Work::Write(own, _) | Work::WriteAndTell(own, _, _) => own.bytes,
            _ => u32::MAX,
        };
        let how = Posting {
            signaled,
            inline: copied && bytes <= pair.inline_bytes(),
            fenced: self.last_read > self.done,
        };
        // SAFETY: own memory of operations lies in regions, and whoever named it keeps it until
        // the operation is complete or cancelled, for which the request is waited for, or the pair
        // is dropped; the mirror's is not written before the peer has taken the frame.
        unsafe { pair.post(number, work, how) }?;
        self.posted = number;
        if signaled {
            self.told = number;
        }
        Ok(())
    }

    /// Tells the peer how far its ring was emptied, if it is time to.
    pub(crate) fn tell_room(&mut self) -> Result<(), LinkError> {
        let Some(position) = self.inbound.due() else {
            return Ok(());
        };
        if self.posted - self.done + 1 >= SENDS {
            return Ok(());
        }
        // Each word is read by itself, and both only grow: a reader may see the one before the
        // other.
        self.mirror.word(0).store(position.bytes, Ordering::Release);
        self.mirror
            .word(8)
            .store(position.frames, Ordering::Release);
        let own = OwnMemory {
            address: self.mirror_memory.start(),
            bytes: 16,
            key: self.mirror_memory.local_key(),
        };
        self.post(Work::WriteAndTell(own, self.peer_ring, ROOM), false, true)?;
        self.inbound.told();
        Ok(())
    }

    /// Has the adapter say when everything that is posted is done, if it does not yet.
    pub(super) fn ask_to_be_told(&mut self) -> Result<(), LinkError> {
        if self.told < self.posted && self.posted - self.done + 1 < SENDS {
            self.post(Work::Tell(ROOM), true, false)?;
        }
        Ok(())
    }
}
