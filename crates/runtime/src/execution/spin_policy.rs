//! Spin policy: the time that a thread polls before it sleeps, by the presence of the peer that it
//! waits for.
//!
//! [Note: Waiting] A wake takes tens of microseconds, and polling takes a core from other threads.
//! - A peer on this host that is inside a call, and awake, will soon do its part: the thread polls.
//!   It keeps its core even if the peer has lost its core for a while: a core that is yielded to
//!   another process returns a time slice later, and the peer would then wait for this thread.
//! - A peer that was last seen on this thread's core cannot run while the thread polls: the thread
//!   yields to it, and moves to another core. The system places two threads that wake each other on
//!   one core, and leaves them there while other processes keep the other cores busy.
//! - The time until a peer that is away returns is unknown: the thread polls for about the time
//!   that a wake takes.
//! - Data from a network wakes a sleeping thread. If the operation is long, the thread sleeps
//!   immediately. If it is short, the thread polls for two round trips, and yields between polls,
//!   so that other threads on this core run without the wakes that sleeping would cost. Their time
//!   does not count. A thread that computes there keeps the core for a time slice, longer than a
//!   wake takes; after meeting one, this thread sleeps immediately for a while.
//! - If there are more ranks than cores, a thread yields a few times, and sleeps.

use std::cell::Cell;
use std::time::{Duration, Instant};

use weft_transport::{Presence, PresenceGuard, current_core};

/// Yields of a thread that shares its core with others before it sleeps.
const YIELDS: u32 = 64;
/// The approximate time of a wake.
const WAKE: Duration = Duration::from_micros(50);
/// The time within which a peer inside a call gets its core back, with some reserve.
const PEER_INSIDE: Duration = Duration::from_millis(5);
/// The longest time of polling for data from a network, for any round trip.
const NETWORK_MAX: Duration = Duration::from_micros(200);
/// A yield that lasts longer than this has met a thread that computes.
const COMPUTES: Duration = Duration::from_millis(2);
/// The time for which a thread does not yield after meeting one that computes.
const AVOIDED: Duration = Duration::from_millis(100);

thread_local! {
    /// The time until which this thread does not yield.
    static AVOIDS_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The policy for polling before sleeping. If there are more ranks than cores, ranks must not spin,
/// as they would prevent each other from running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpinPolicy {
    crowded: bool,
}

impl SpinPolicy {
    /// The policy for a number of threads on a number of cores.
    pub(crate) fn new(threads: usize, cores: usize) -> Self {
        SpinPolicy {
            crowded: threads > cores,
        }
    }

    /// Begins a wait that checks the clock and the peer once in `stride` turns.
    pub(crate) fn begin<'a>(self, stride: u32, presence: &'a PresenceGuard<'a>) -> Spin<'a> {
        Spin {
            presence,
            crowded: self.crowded,
            stride: if self.crowded { 1 } else { stride },
            turns: 0,
            since: None,
            moved: false,
        }
    }
}

/// A wait.
#[derive(Debug)]
pub(crate) struct Spin<'a> {
    presence: &'a PresenceGuard<'a>,
    crowded: bool,
    stride: u32,
    /// Turns since the last progress.
    turns: u32,
    /// The first check since then.
    since: Option<Instant>,
    /// Whether the thread has moved to another core, which it does only once.
    moved: bool,
}

impl Spin<'_> {
    /// Records progress.
    pub(crate) fn restart(&mut self) {
        self.turns = 0;
        self.since = None;
    }

    /// Records progress. False if it is time to sleep: the operation is long.
    pub(crate) fn go_on(&mut self, peer: impl FnOnce() -> Presence) -> bool {
        self.restart();
        !matches!(peer(), Presence::Unknown { round_trip } if round_trip.is_zero())
    }

    /// Pauses once more for a peer. False once it is time to sleep.
    pub(crate) fn pause(&mut self, peer: impl FnOnce() -> Presence) -> bool {
        self.turns += 1;
        if !self.turns.is_multiple_of(self.stride) {
            std::hint::spin_loop();
            return true;
        }
        let peer = peer();
        match (self.crowded, peer) {
            (_, Presence::Unknown { round_trip }) => self.poll_network(round_trip),
            (true, _) => {
                std::thread::yield_now();
                self.turns <= YIELDS
            }
            (false, Presence::Away { core }) => self.poll_memory(WAKE, core),
            (false, Presence::Inside { core }) => self.poll_memory(PEER_INSIDE, Some(core)),
        }
    }

    /// Whether to continue polling for data from a network: for two round trips of this thread's
    /// own time.
    fn poll_network(&mut self, round_trip: Duration) -> bool {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - since >= (2 * round_trip).min(NETWORK_MAX) {
            return false;
        }
        if AVOIDS_UNTIL.get().is_some_and(|until| now < until) {
            return false;
        }
        std::thread::yield_now();
        let yielded = now.elapsed();
        if yielded > COMPUTES {
            AVOIDS_UNTIL.set(Some(now + yielded + AVOIDED));
        }
        self.since = Some(since + yielded);
        true
    }

    /// Whether to continue polling for a peer on this host, which was last seen on `core`.
    fn poll_memory(&mut self, limit: Duration, core: Option<u32>) -> bool {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if core == Some(current_core()) {
            self.give_way();
        }
        waited < limit
    }

    /// Lets a peer on this core run.
    fn give_way(&mut self) {
        std::thread::yield_now();
        if !std::mem::replace(&mut self.moved, true) {
            self.presence.leave_core();
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_transport::Local;

    use super::*;

    /// Whether a thread that waits for a network continues polling.
    fn polls(spin: &mut Spin<'_>, round_trip: Duration) -> bool {
        spin.pause(|| Presence::Unknown { round_trip })
    }

    #[test]
    fn network_data_is_polled_for_two_round_trips() {
        let local = Local::create(1 << 20).unwrap();
        let presence = local.doorbell.enter();
        for policy in [SpinPolicy::new(1, 2), SpinPolicy::new(4, 2)] {
            let mut spin = policy.begin(1, &presence);
            let long = || Presence::Unknown {
                round_trip: Duration::ZERO,
            };
            assert!(!spin.go_on(long) && !spin.pause(long), "a long operation");
            assert!(spin.go_on(|| Presence::Away { core: None }));
            AVOIDS_UNTIL.set(None);
            let (before, round_trip) = (Instant::now(), Duration::from_micros(50));
            while polls(&mut spin, round_trip) {}
            let disturbed = AVOIDS_UNTIL.get().is_some();
            assert!(before.elapsed() >= 2 * round_trip || disturbed);
            assert!(!polls(&mut spin, round_trip));
        }
    }

    #[test]
    fn thread_does_not_yield_to_computing_threads() {
        let local = Local::create(1 << 20).unwrap();
        let presence = local.doorbell.enter();
        let mut spin = SpinPolicy::new(1, 2).begin(1, &presence);
        AVOIDS_UNTIL.set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(!polls(&mut spin, Duration::from_millis(1)));
        AVOIDS_UNTIL.set(Some(Instant::now()));
        spin.restart();
        assert!(
            polls(&mut spin, Duration::from_millis(1)),
            "it polls again afterwards"
        );
    }
}
