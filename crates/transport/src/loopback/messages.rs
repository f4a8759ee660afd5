//! One direction's messages between two endpoints of one process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Inbox, LinkError};

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const GONE: u8 = 2;
const BROKEN: u8 = 3;

/// How the link that fills a queue ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueEnd {
    /// It was closed.
    Left,
    /// It was dropped without being closed.
    Gone,
}

/// The link that reads it and the link that fills it share it.
#[derive(Default)]
pub struct MessageQueue {
    messages: Mutex<VecDeque<Vec<u8>>>,
    /// How the link that fills it stands.
    writer: AtomicU8,
    breach: OnceLock<String>,
}

impl MessageQueue {
    /// Adds a message.
    pub fn push(&self, message: Vec<u8>) {
        locked(&self.messages).push_back(message);
    }

    /// Ends it, unless it has ended. True if it has only now.
    pub fn end(&self, how: QueueEnd) -> bool {
        self.change(match how {
            QueueEnd::Left => LEFT,
            QueueEnd::Gone => GONE,
        })
    }

    /// Ends it because its filler has broken the rules.
    pub fn break_off(&self, breach: String) {
        // Only the first one counts.
        let _ = self.breach.set(breach);
        self.change(BROKEN);
    }

    /// Whether the link that fills it has not ended.
    pub fn is_open(&self) -> bool {
        self.writer.load(Ordering::Acquire) == OPEN
    }

    /// Whether the link that fills it was closed or dropped: it is used no more.
    pub fn is_over(&self) -> bool {
        matches!(self.writer.load(Ordering::Acquire), LEFT | GONE)
    }

    /// An error if the link that fills it has ended.
    pub fn check(&self) -> Result<(), LinkError> {
        match self.writer.load(Ordering::Acquire) {
            OPEN => Ok(()),
            LEFT => Err(LinkError::Left),
            BROKEN => Err(LinkError::Protocol(
                self.breach.get().cloned().unwrap_or_default(),
            )),
            _ => Err(LinkError::Gone("the peer dropped its end".into())),
        }
    }

    /// Takes in all messages, then says whether the link that fills it has ended.
    pub fn take(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // Looked at first: what was sent before the end is then in the queue.
        let ended = self.check();
        loop {
            let next = locked(&self.messages).pop_front();
            match next {
                Some(bytes) => inbox.message(&bytes),
                None => return ended,
            }
        }
    }

    fn change(&self, to: u8) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.writer
            .compare_exchange(OPEN, to, success, failure)
            .is_ok()
    }
}

/// Nothing here is left half-done by a panic, so a poisoned lock is as good as any.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
