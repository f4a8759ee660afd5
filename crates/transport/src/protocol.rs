//! The sleep protocol of a sleeper and its signallers, without missed wake-ups.
//!
//! The sleeper *announces* itself in a word, fences, checks once more whether its condition holds,
//! and only then blocks. A signaller stores its flag, fences, and reads the word. The two fences
//! are sequentially consistent, so of the two (sleeper reads the flag, signaller reads the word) at
//! least one sees the other's store.
//!
//! The signaller that finds an announcement retracts it by one atomic exchange before it wakes the
//! sleeper. Blocking is conditional on the announcement (a futex compares it, an event descriptor
//! remembers the wake), so a wake between the last check and blocking is not lost, and of many
//! signallers only one pays for the wake.
//!
//! The sleeper, too, changes the word only by exchanges. All changes then form one chain, and a
//! signaller cannot mistake the outcome of an earlier wake for the answer to a later announcement.

use crate::sync::{AtomicU32, Ordering, fence};

/// No thread sleeps: none needs to be woken.
pub const AWAKE: u32 = 0;
/// A thread sleeps, or is about to, on a futex at the state word.
pub const ON_FUTEX: u32 = 1;
/// A thread sleeps, or is about to, in a poll that watches the doorbell's event descriptor.
pub const IN_POLL: u32 = 2;

/// The reason that a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The condition held already: there was no sleep.
    Ready,
    /// The endpoint was notified: check the links' messages. The notification is taken.
    Notified,
    /// The doorbell rang, a descriptor has an event, or there is no reason: check again.
    Rung,
    /// Nothing happened before the timeout.
    TimedOut,
}

/// The sleeper's part. `block` blocks while the announcement `mode` stands, and returns whether it
/// was woken (or may have been).
pub fn sleep(
    state: &AtomicU32,
    notify: &AtomicU32,
    mode: u32,
    ready: impl FnOnce() -> bool,
    block: impl FnOnce() -> bool,
) -> Woken {
    announce(state, mode);
    let _awake = Retract(state);
    if take_notification(notify) {
        return Woken::Notified;
    }
    if ready() {
        return Woken::Ready;
    }
    let rung = block();
    match (take_notification(notify), rung) {
        (true, _) => Woken::Notified,
        (false, true) => Woken::Rung,
        (false, false) => Woken::TimedOut,
    }
}

/// Announces that the caller is about to sleep. Its condition must be checked after this, and
/// before it blocks.
pub fn announce(state: &AtomicU32, mode: u32) {
    state.swap(mode, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Retracts the announcement, also if `ready` panics: the sleeper is awake again.
struct Retract<'a>(&'a AtomicU32);

impl Drop for Retract<'_> {
    fn drop(&mut self) {
        self.0.swap(AWAKE, Ordering::Relaxed);
    }
}

/// Returns how the sleeper must be woken after a flag was stored, [`AWAKE`] if it is awake. The
/// caller must then wake it.
pub fn claim_wake(state: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    if state.load(Ordering::Relaxed) == AWAKE {
        return AWAKE;
    }
    state.swap(AWAKE, Ordering::AcqRel)
}

/// Leaves a notification, which lasts until it is taken.
pub fn leave_notification(notify: &AtomicU32) {
    notify.store(1, Ordering::Release);
}

/// Takes a notification, if there is one. Everything before the notification is visible afterwards.
pub fn take_notification(notify: &AtomicU32) -> bool {
    notify.load(Ordering::Relaxed) != 0 && notify.swap(0, Ordering::Acquire) != 0
}
