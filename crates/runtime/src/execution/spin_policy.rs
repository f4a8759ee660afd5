//! Spin policy: how long a thread polls before it sleeps, by whom it waits for.
//!
//! [Note: Waiting] To be woken takes tens of microseconds, and to poll takes a core from others.
//! - A peer on this host that is inside a call, and awake, will soon do its part: the thread polls.
//!   It keeps its core even where the peer's was taken away for a while: a thread that gave its own
//!   to a stranger would get it back a time slice later, and by then the peer would be waiting.
//! - A peer that was last seen on this thread's own core cannot run while this one polls: the
//!   thread yields to it, and moves to another core. The system brings two threads that wake each
//!   other together on one core, and leaves them there while a stranger keeps the others busy.
//! - A peer that is away comes when it comes: the thread polls for about as long as a wake takes.
//! - What comes over a network wakes a sleeper. Where the operation is long, the thread sleeps at
//!   once. Where it is short, the thread polls for two round trips, and yields between its polls:
//!   others on this core get it without the wakes that a sleep would cost them and this thread.
//!   What they use of the time does not count. Who computes there keeps the core for a time slice,
//!   longer than a wake takes: a thread that has met such a one sleeps at once for a while.
//! - Where ranks outnumber cores a thread yields some times, and sleeps.

use std::cell::Cell;
use std::time::{Duration, Instant};

use weft_transport::{Presence, PresenceGuard, current_core};

/// How often a thread that shares its core with others yields before it sleeps.
const YIELDS: u32 = 64;
/// About as long as a wake takes.
const WAKE: Duration = Duration::from_micros(50);
/// As long as it may take a peer inside a call to get its core back, with some to spare.
const PEER_INSIDE: Duration = Duration::from_millis(5);
/// The most that is polled for what comes over a network, however far away the peer is.
const NETWORK_MAX: Duration = Duration::from_micros(200);
/// Who yields its core for longer than this has met somebody who computes.
const COMPUTES: Duration = Duration::from_millis(2);
/// So long a thread does not yield any more to whom it has met.
const AVOIDED: Duration = Duration::from_millis(100);

thread_local! {
    /// Until when this thread does not yield.
    static AVOIDS_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// How patiently a thread polls before it sleeps. More ranks than cores must not spin: they would
/// keep each other from running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpinPolicy {
    crowded: bool,
}

impl SpinPolicy {
    /// For a number of threads that want to run on a number of cores.
    pub(crate) fn new(threads: usize, cores: usize) -> Self {
        SpinPolicy {
            crowded: threads > cores,
        }
    }

    /// A wait of which one in `stride` turns looks at the clock and at the peer.
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
    /// Turns since something moved.
    turns: u32,
    /// The first look since then.
    since: Option<Instant>,
    /// The thread has moved to another core: once is enough.
    moved: bool,
}

impl Spin<'_> {
    /// Takes note that something has moved.
    pub(crate) fn restart(&mut self) {
        self.turns = 0;
        self.since = None;
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

    /// Whether to go on polling for what comes over a network: for two round trips of this thread's
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

    /// Whether to go on polling for what a peer on this host does, which was last seen on a core.
    fn poll_memory(&mut self, limit: Duration, core: Option<u32>) -> bool {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        if core == Some(current_core()) {
            self.give_way();
        }
        waited < limit
    }

    /// Lets a peer run that is on this core.
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

    /// What a thread that waits for a network answers to the question whether to go on polling.
    fn polls(spin: &mut Spin<'_>, round_trip: Duration) -> bool {
        spin.pause(|| Presence::Unknown { round_trip })
    }

    #[test]
    fn what_comes_over_a_network_is_polled_for_two_round_trips() {
        let local = Local::create(1 << 20).unwrap();
        let presence = local.doorbell.enter();
        for policy in [SpinPolicy::new(1, 2), SpinPolicy::new(4, 2)] {
            let mut spin = policy.begin(1, &presence);
            assert!(!polls(&mut spin, Duration::ZERO), "a long operation");
            spin.restart();
            AVOIDS_UNTIL.set(None);
            let (before, round_trip) = (Instant::now(), Duration::from_micros(50));
            while polls(&mut spin, round_trip) {}
            let disturbed = AVOIDS_UNTIL.get().is_some();
            assert!(before.elapsed() >= 2 * round_trip || disturbed);
            assert!(!polls(&mut spin, round_trip));
        }
    }

    #[test]
    fn a_thread_does_not_yield_to_who_computes() {
        let local = Local::create(1 << 20).unwrap();
        let presence = local.doorbell.enter();
        let mut spin = SpinPolicy::new(1, 2).begin(1, &presence);
        AVOIDS_UNTIL.set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(!polls(&mut spin, Duration::from_millis(1)));
        AVOIDS_UNTIL.set(Some(Instant::now()));
        spin.restart();
        assert!(polls(&mut spin, Duration::from_millis(1)), "that is over");
    }
}
