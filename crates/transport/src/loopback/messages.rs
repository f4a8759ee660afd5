//! Message queues between two endpoints of one process, one per direction.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Inbox, LinkError};

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const GONE: u8 = 2;
const BROKEN: u8 = 3;

/// How the link that fills a queue ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueEnd {
    /// It was closed.
    Left,
    /// It was dropped without being closed.
    Gone,
}

/// The queue, shared by the link that fills it and the link that reads it.
#[derive(Default)]
pub struct MessageQueue {
    messages: Mutex<VecDeque<Vec<u8>>>,
    /// The state of the link that fills it.
    writer: AtomicU8,
    breach: OnceLock<String>,
}

impl MessageQueue {
    /// Adds a message.
    pub fn push(&self, message: Vec<u8>) {
        locked(&self.messages).push_back(message);
    }

    /// Ends it, unless it has ended before. Returns whether this call ended it.
    pub fn end(&self, end: QueueEnd) -> bool {
        self.change(match end {
            QueueEnd::Left => LEFT,
            QueueEnd::Gone => GONE,
        })
    }

    /// Ends it because its writer has violated the protocol.
    pub fn break_off(&self, breach: String) {
        // Only the first one counts.
        let _ = self.breach.set(breach);
        self.change(BROKEN);
    }

    /// Whether the link that fills it has not ended.
    pub fn is_open(&self) -> bool {
        self.writer.load(Ordering::Acquire) == OPEN
    }

    /// Whether the link that fills it was closed or dropped.
    pub fn is_over(&self) -> bool {
        matches!(self.writer.load(Ordering::Acquire), LEFT | GONE)
    }

    /// Checks whether the link that fills it has ended.
    ///
    /// # Errors
    /// The link has ended; the error says how.
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

    /// Takes all messages, then checks whether the link that fills it has ended.
    ///
    /// # Errors
    /// The link has ended.
    pub fn take(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // Checked first: messages sent before the end are then in the queue.
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

/// Locks a mutex, poisoned or not: a panic leaves nothing half-done here.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
