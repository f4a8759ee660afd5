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
//! - What comes over a network wakes a sleeper. The thread polls for two round trips where the
//!   operation is short, and sleeps at once where it is long.
//! - Where ranks outnumber cores a thread yields some times, and sleeps.

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
            (true, Presence::Unknown { .. }) => false,
            (true, _) => {
                std::thread::yield_now();
                self.turns <= YIELDS
            }
            (false, peer) => self.look(peer),
        }
    }

    /// Whether to go on polling for a peer.
    fn look(&mut self, peer: Presence) -> bool {
        let now = Instant::now();
        let waited = now - *self.since.get_or_insert(now);
        let (limit, core) = match peer {
            Presence::Unknown { round_trip } => ((2 * round_trip).min(NETWORK_MAX), None),
            Presence::Away { core } => (WAKE, core),
            Presence::Inside { core } => (PEER_INSIDE, Some(core)),
        };
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
