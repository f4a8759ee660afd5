//! Presence: whether a thread of an endpoint is inside a call, and on which core, for peers that
//! wait for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A peer's presence, as far as this rank knows: it determines how to wait for the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The link does not report it.
    Unknown {
        /// The approximate round-trip time of a short message.
        round_trip: Duration,
    },
    /// No thread of the peer is inside a call, or the one that is sleeps.
    Away {
        /// The core on which a thread left its last call; none if it sleeps in one.
        core: Option<u32>,
    },
    /// A thread of the peer is inside a call.
    Inside {
        /// The core on which it entered the call, or last woke up in it.
        core: u32,
    },
}

/// The word in the pool's header holds one more than the core, and this bit while a thread is
/// inside a call.
const INSIDE: u32 = 1 << 31;

/// Shows that a thread is inside a call, until it is dropped.
///
/// Of several threads the last to enter or leave counts: this only affects how peers wait.
#[derive(Debug)]
pub struct PresenceGuard<'a> {
    word: &'a AtomicU32,
    core: Cell<u32>,
}

impl<'a> PresenceGuard<'a> {
    #[inline]
    pub(crate) fn new(word: &'a AtomicU32) -> Self {
        let core = Cell::new(0);
        let guard = PresenceGuard { word, core };
        guard.refresh();
        guard
    }

    /// Updates the core that the thread runs on.
    #[inline]
    pub fn refresh(&self) {
        let core = current_core();
        self.core.set(core);
        self.word.store((core + 1) | INSIDE, Ordering::Relaxed);
    }

    /// Moves the thread to another core, if it may run on any: the peer that it waits for is, or
    /// was, on this one. The system may move the thread back at any time.
    #[cold]
    pub fn leave_core(&self) {
        leave(self.core.get());
        self.refresh();
    }
}

impl Drop for PresenceGuard<'_> {
    fn drop(&mut self) {
        self.word.store(self.core.get() + 1, Ordering::Relaxed);
    }
}

/// Decodes the peer's word.
pub(crate) fn read(word: &AtomicU32, awake: bool) -> Presence {
    let word = word.load(Ordering::Relaxed);
    let core = (word & !INSIDE).checked_sub(1).filter(|_| awake);
    match core {
        Some(core) if word & INSIDE != 0 => Presence::Inside { core },
        core => Presence::Away { core },
    }
}

/// The core that the calling thread runs on.
#[inline]
pub fn current_core() -> u32 {
    // SAFETY: a plain call without arguments. Where the system does not know, it returns -1: then
    // all threads seem to share a core.
    let core = unsafe { libc::sched_getcpu() };
    core.max(0) as u32
}

/// Removes a core from the calling thread's set, which moves the thread, and adds it again. Does
/// nothing where the system does not permit it, or has more cores than fit into the set.
fn leave(core: u32) {
    let bytes = size_of::<libc::cpu_set_t>();
    // SAFETY: the set is a plain array of bits.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and as large as it says; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, bytes, &raw mut allowed) } != 0 {
        return;
    }
    let mut others = allowed;
    // SAFETY: the call checks the number against the size of the set.
    unsafe { libc::CPU_CLR(core as usize, &mut others) };
    for set in [others, allowed] {
        // SAFETY: the set is as large as it says and outlives the call. An empty one is refused.
        unsafe { libc::sched_setaffinity(0, bytes, &raw const set) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_see_where_a_thread_is_and_was() {
        let word = AtomicU32::new(0);
        assert_eq!(read(&word, true), Presence::Away { core: None });
        let guard = PresenceGuard::new(&word);
        assert!(matches!(read(&word, true), Presence::Inside { .. }));
        assert_eq!(read(&word, false), Presence::Away { core: None });
        drop(guard);
        assert!(matches!(
            read(&word, true),
            Presence::Away { core: Some(_) }
        ));
    }

    #[test]
    fn a_thread_leaves_its_core_and_may_return() {
        let word = AtomicU32::new(0);
        let cores = || std::thread::available_parallelism().unwrap().get();
        let before = cores();
        let guard = PresenceGuard::new(&word);
        let was = guard.core.get();
        guard.leave_core();
        assert_eq!(cores(), before);
        assert!(before == 1 || read(&word, true) != Presence::Inside { core: was });
    }
}
