//! Model of the kernel's events for sleeping threads.

use loom::sync::{Condvar, Mutex};

/// An event that stays raised until a thread has waited for it (`eventfd`).
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
