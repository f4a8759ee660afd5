//! What the kernel offers to threads that sleep.

use loom::sync::{Condvar, Mutex};

/// A counter that remembers that it was raised (`eventfd`).
#[derive(Default)]
pub(crate) struct ModelEvent {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl ModelEvent {
    pub(crate) fn post(&self) {
        *self.raised.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait_and_drain(&self) {
        let mut raised = self.raised.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
    }
}
