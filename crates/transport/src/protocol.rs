//! The sleep protocol of a sleeper and its signallers, without missed wake-ups.
//!
//! The sleeper *announces* itself in a word, fences, looks once more whether what it waits for has
//! come, and only then blocks. A signaller stores its flag, fences, and reads the word. The two
//! fences are sequentially consistent, so of the two (sleeper looks at the flag, signaller looks at
//! the word) at least one sees what the other wrote.
//!
//! The signaller that finds an announcement takes it back by one atomic exchange before it wakes
//! the sleeper. Blocking is conditional on the announcement (a futex compares it, an event
//! descriptor remembers the wake), so a wake that comes between looking and blocking is not lost,
//! and of many signallers only one pays for the wake.
//!
//! The sleeper, too, changes the word by exchanges only. All changes then form one chain, and a
//! signaller cannot take the outcome of an earlier wake for the answer to a later announcement.

use crate::sync::{AtomicU32, Ordering, fence};

/// Nobody sleeps: nobody needs to be woken.
pub const AWAKE: u32 = 0;
/// Somebody sleeps, or is about to, on a futex at the state word.
pub const ON_FUTEX: u32 = 1;
/// Somebody sleeps, or is about to, in a poll that watches the doorbell's event descriptor.
pub const IN_POLL: u32 = 2;

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// What was waited for had come already: there was no sleep.
    Ready,
    /// The endpoint was notified: look at the links' messages. The notification is taken.
    Notified,
    /// Somebody rang, a descriptor has an event, or for no reason: look again.
    Rung,
    /// Nothing happened in the time given.
    TimedOut,
}

/// The sleeper's part. `block` blocks while the announcement `how` stands, and says whether it was
/// woken (or may have been).
pub fn sleep(
    state: &AtomicU32,
    notify: &AtomicU32,
    how: u32,
    ready: impl FnOnce() -> bool,
    block: impl FnOnce() -> bool,
) -> Woken {
    announce(state, how);
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

/// Announces that the caller is about to sleep. What it waits for must be looked at after this, and
/// before it blocks.
pub fn announce(state: &AtomicU32, how: u32) {
    state.swap(how, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Takes the announcement back, also if `ready` panics: the sleeper is awake again.
struct Retract<'a>(&'a AtomicU32);

impl Drop for Retract<'_> {
    fn drop(&mut self) {
        self.0.swap(AWAKE, Ordering::Relaxed);
    }
}

/// After a flag was stored: how the sleeper must be woken, [`AWAKE`] if it needs nothing. The
/// caller then owes the wake.
pub fn claim_wake(state: &AtomicU32) -> u32 {
    fence(Ordering::SeqCst);
    if state.load(Ordering::Relaxed) == AWAKE {
        return AWAKE;
    }
    state.swap(AWAKE, Ordering::AcqRel)
}

/// Leaves a notification: a request for attention that lasts until it is taken.
pub fn leave_notification(notify: &AtomicU32) {
    notify.store(1, Ordering::Release);
}

/// Takes a notification, if there is one. Whatever came before the notification is visible
/// afterwards.
pub fn take_notification(notify: &AtomicU32) -> bool {
    notify.load(Ordering::Relaxed) != 0 && notify.swap(0, Ordering::Acquire) != 0
}
