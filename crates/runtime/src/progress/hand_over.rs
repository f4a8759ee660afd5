//! The right to drive, and the hand-over of what is under way to whoever drives next.
//!
//! [Note: Handing over] Nobody sleeps while something is under way that nobody drives. Whoever
//! changes one side of that (something is under way now; nobody drives any more; the progress
//! thread sleeps now) fences, and then looks at the others. The fences are sequentially consistent,
//! so of two that change something at the same time at least one sees what the other did.
//! `crates/models` explores all interleavings, without the time limits that sleeps have here.

use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU8, AtomicUsize, Condvar, Mutex, Ordering, fence};

/// How those are woken who sleep.
pub(crate) trait Wake {
    /// Wakes the driver, if it sleeps: it looks at everything once more.
    fn ring_driver(&self);
    /// Ends the progress thread's wait for descriptors, or else its next one.
    fn end_poll(&self);
}

/// The progress thread is running, or about to look at what is under way.
const UP: u8 = 0;
/// It sleeps on descriptors.
const POLLING: u8 = 1;
/// It sleeps until it is kicked, because somebody else drives.
const PARKED: u8 = 2;

/// Who drives an endpoint, and how many things are under way.
pub(crate) struct HandOver {
    driving: AtomicBool,
    pending: AtomicUsize,
    /// What the progress thread is doing.
    thread: AtomicU8,
    /// Whether the progress thread has been asked to look again.
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

    /// Takes note of how many things are under way. Called with the lock of the state they are in.
    pub(crate) fn note_pending(&self, pending: usize) {
        self.pending.store(pending, Ordering::Release);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn is_driven(&self) -> bool {
        self.driving.load(Ordering::Acquire)
    }

    /// The right to drive, if nobody has it.
    pub(crate) fn take(&self) -> Option<DriverGuard<'_>> {
        let free = self
            .driving
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        // Lazily: a right that was never held must not be given back.
        free.is_ok().then(|| DriverGuard {
            driving: &self.driving,
        })
    }

    /// Makes sure that somebody drives what is under way: wakes the driver if it sleeps, or the
    /// progress thread. Called after something was added, or after the right to drive was given
    /// back.
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

    /// A caller's turn: it drives until what it waits for is over, or else parks while somebody
    /// else does, unless that has stopped meanwhile. Both are told of the same conditions.
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
        // The driver may be asleep, and know nothing of what this thread waits for.
        wake.ring_driver();
        fence(Ordering::SeqCst);
        park(conditions, &|| !self.is_driven())
    }

    /// A turn of the progress thread: it drives if there is something to drive and nobody does,
    /// parks for so long at most while somebody else does, and else idles.
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

    /// The progress thread waits for descriptors by `poll`, unless there is something to drive.
    pub(crate) fn poll<T>(&self, poll: impl FnOnce() -> T) -> Option<T> {
        self.thread.store(POLLING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let polled = (!self.has_work()).then(poll);
        self.thread.store(UP, Ordering::Relaxed);
        polled
    }

    /// The progress thread sleeps until it is kicked, while somebody else drives.
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

/// The right to drive. Given back on drop, also if a pass panics.
pub(crate) struct DriverGuard<'a> {
    driving: &'a AtomicBool,
}

impl Drop for DriverGuard<'_> {
    fn drop(&mut self) {
        self.driving.store(false, Ordering::Release);
    }
}
