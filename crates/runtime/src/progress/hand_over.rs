//! The right to drive progress, and its hand-over between callers and the progress thread.
//!
//! [Note: Handing over] No thread sleeps while unfinished operations have no driver. Three facts
//! matter: an operation is unfinished; no thread drives; the progress thread sleeps. A thread that
//! changes one of them fences, and then reads the others. The fences are sequentially consistent,
//! so if two threads change something at the same time, at least one sees the other's change.
//! `crates/models` explores all interleavings, without the time limits that sleeps have here.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Condvar, Mutex, Ordering, fence};

/// Wakes sleeping threads.
pub(crate) trait Wake {
    /// Wakes the driver if it sleeps, so that it runs another pass.
    fn ring_driver(&self);
    /// Ends the progress thread's current wait for descriptors, or its next one.
    fn end_poll(&self);
}

/// The progress thread is running, or about to check for unfinished operations.
const UP: u8 = 0;
/// It sleeps on descriptors.
const POLLING: u8 = 1;
/// It sleeps until it is kicked, because another thread drives.
const PARKED: u8 = 2;

/// The right to drive an endpoint, and the number of its unfinished operations.
pub(crate) struct HandOver {
    driving: AtomicBool,
    pending: AtomicUsize,
    /// The state of the progress thread.
    thread: AtomicU8,
    /// Whether the progress thread has been asked to check again.
    kicked: Mutex<bool>,
    kick: Condvar,
}

impl HandOver {
    pub(crate) fn new() -> Self {
        Self {
            driving: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            thread: AtomicU8::new(UP),
            kicked: Mutex::new(false),
            kick: Condvar::new(),
        }
    }

    /// Records the number of unfinished operations. Called with the lock of their state.
    pub(crate) fn note_pending(&self, pending: usize) {
        self.pending.store(pending, Ordering::Release);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn is_driven(&self) -> bool {
        self.driving.load(Ordering::Acquire)
    }

    /// Takes the right to drive, if it is free.
    pub(crate) fn take(&self) -> Option<DriverGuard<'_>> {
        let free = self
            .driving
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Lazily: a right that was never held must not be given back.
        free.is_ok().then(|| DriverGuard {
            driving: &self.driving,
        })
    }

    /// Makes sure that a thread drives unfinished operations: wakes the driver if it sleeps, or the
    /// progress thread. Called after an operation was added or the right to drive was returned.
    pub(crate) fn hand_over(&self, wake: &impl Wake) {
        fence(Ordering::SeqCst);
        if !self.has_work() {
            return;
        }
        if self.is_driven() {
            wake.ring_driver();
            return;
        }
        match self.thread.load(Ordering::Acquire) {
            POLLING => wake.end_poll(),
            PARKED => {
                *self.kicked.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.kick.notify_one();
            }
            _ => {}
        }
    }

    /// A caller's turn: drives until its operation has ended or, if another thread drives, parks
    /// until that thread stops. `drive` and `park` get the same conditions.
    pub(crate) fn drive_or_park<C, T>(
        &self,
        wake: &impl Wake,
        conditions: &mut C,
        drive: impl FnOnce(&mut C) -> T,
        park: impl FnOnce(&mut C, &dyn Fn() -> bool) -> T,
    ) -> T {
        if let Some(right) = self.take() {
            let driven = drive(conditions);
            drop(right);
            self.hand_over(wake);
            return driven;
        }
        // The driver may sleep without having seen this thread's operation.
        wake.ring_driver();
        fence(Ordering::SeqCst);
        park(conditions, &|| !self.is_driven())
    }

    /// A turn of the progress thread: drives unfinished operations if the right is free, parks up
    /// to `park_max` while another thread drives, and otherwise idles.
    pub(crate) fn turn(&self, drive: impl FnOnce(), idle: impl FnOnce(), park_max: Duration) {
        if self.has_work()
            && let Some(_right) = self.take()
        {
            drive();
        } else if self.is_driven() {
            self.park(park_max);
        } else {
            idle();
        }
    }

    /// Lets the progress thread wait for descriptors by `poll`, unless operations are unfinished.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> T) -> Option<T> {
        self.thread.store(POLLING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let polled = (!self.has_work()).then(poll);
        self.thread.store(UP, Ordering::Relaxed);
        polled
    }

    /// Lets the progress thread sleep until it is kicked, while another thread drives.
    fn park(&self, time: Duration) {
        let mut kicked = self.kicked.lock().unwrap_or_else(PoisonError::into_inner);
        self.thread.store(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !*kicked && self.is_driven() {
            let waited = self.kick.wait_timeout(kicked, time);
            kicked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.thread.store(UP, Ordering::Relaxed);
        *kicked = false;
    }
}

/// The right to drive. Returned on drop, even if a pass panics.
pub(crate) struct DriverGuard<'a> {
    driving: &'a AtomicBool,
}

impl Drop for DriverGuard<'_> {
    fn drop(&mut self) {
        self.driving.store(false, Ordering::Release);
    }
}
