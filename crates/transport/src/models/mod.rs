//! Loom models of the shared-memory protocols, over every interleaving and every value that the
//! memory model allows a load to return.
//!
//! A missed wake shows as a deadlock, a signal that overtakes its bytes as a data race. Run them
//! with `RUSTFLAGS="--cfg loom" cargo test -p weft-transport --release loom`.

mod claims;
mod gate;
mod ring;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::protocol::{self, AWAKE, IN_POLL, ON_FUTEX, Woken};

/// Sufficient for every bug that these models were tried on; without a bound they take hours.
const PREEMPTIONS: usize = 3;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(body);
}

/// The kernel's part: waits on a word, and an event counter.
#[derive(Default)]
struct ModelKernel {
    event: Mutex<bool>,
    changed: Condvar,
}

impl ModelKernel {
    fn futex_wait(&self, word: &AtomicU32, expected: u32) {
        let queue = self.event.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.changed.wait(queue).unwrap());
        }
    }

    fn futex_wake(&self) {
        let _queue = self.event.lock().unwrap();
        self.changed.notify_all();
    }

    fn poll_and_drain(&self) {
        let mut raised = self.event.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
    }

    fn post(&self) {
        *self.event.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

/// The number of flags of an endpoint; it has twice as many words of bytes.
const SLOTS: usize = 3;

/// An endpoint as its peers see it: the words and bytes in its pool, and the means to wake it.
struct ModelEndpoint {
    state: AtomicU32,
    notify: AtomicU32,
    flags: [AtomicU64; SLOTS],
    bytes: [UnsafeCell<u64>; 2 * SLOTS],
    socket: Mutex<u64>,
    kernel: ModelKernel,
}

impl ModelEndpoint {
    fn new() -> Arc<ModelEndpoint> {
        Arc::new(ModelEndpoint {
            state: AtomicU32::new(AWAKE),
            notify: AtomicU32::new(0),
            flags: [(); SLOTS].map(|()| AtomicU64::new(0)),
            bytes: [(); 2 * SLOTS].map(|()| UnsafeCell::new(0)),
            socket: Mutex::new(0),
            kernel: ModelKernel::default(),
        })
    }

    /// A put and its signal.
    fn put(&self, slot: usize, value: u64) {
        self.write(slot, value);
        self.signal(slot, value);
    }

    fn write(&self, slot: usize, value: u64) {
        // SAFETY: the model's reader reads only after it saw the signal, and loom checks that this
        // holds.
        self.bytes[slot].with_mut(|bytes| unsafe { *bytes = value });
    }

    fn signal(&self, slot: usize, value: u64) {
        self.flags[slot].store(value, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        match protocol::claim_wake(&self.state) {
            AWAKE => {}
            ON_FUTEX => self.kernel.futex_wake(),
            _ => self.kernel.post(),
        }
    }

    fn message(&self) {
        *self.socket.lock().unwrap() += 1;
        protocol::leave_notification(&self.notify);
        self.ring();
    }

    fn sleep(&self, mode: u32, ready: impl FnOnce() -> bool) -> Woken {
        protocol::sleep(&self.state, &self.notify, mode, ready, || {
            match mode {
                ON_FUTEX => self.kernel.futex_wait(&self.state, ON_FUTEX),
                _ => self.kernel.poll_and_drain(),
            }
            true
        })
    }

    fn signalled(&self, slot: usize, value: u64) -> bool {
        self.flags[slot].load(Ordering::Acquire) >= value
    }

    fn sleep_until(&self, mode: u32, slot: usize, value: u64) {
        while !self.signalled(slot, value) {
            self.sleep(mode, || self.signalled(slot, value));
        }
    }

    fn read(&self, slot: usize) -> u64 {
        // SAFETY: the reader saw the signal, and loom checks that the write happened before.
        self.bytes[slot].with(|bytes| unsafe { *bytes })
    }
}

fn one_put_wakes(mode: u32) {
    model(move || {
        let endpoint = ModelEndpoint::new();
        let peer = Arc::clone(&endpoint);
        let peer = thread::spawn(move || peer.put(0, 7));
        endpoint.sleep_until(mode, 0, 7);
        assert_eq!(endpoint.read(0), 7);
        peer.join().unwrap();
    });
}

#[test]
fn loom_a_put_wakes_a_futex_sleeper() {
    one_put_wakes(ON_FUTEX);
}

#[test]
fn loom_a_put_wakes_a_polling_sleeper() {
    one_put_wakes(IN_POLL);
}

fn two_peers_wake(mode: u32) {
    model(move || {
        let endpoint = ModelEndpoint::new();
        let peers = [0, 1].map(|slot| {
            let peer = Arc::clone(&endpoint);
            thread::spawn(move || peer.put(slot, 1))
        });
        for slot in [0, 1] {
            endpoint.sleep_until(mode, slot, 1);
            assert_eq!(endpoint.read(slot), 1);
        }
        for peer in peers {
            peer.join().unwrap();
        }
    });
}

#[test]
fn loom_two_peers_wake_a_futex_sleeper() {
    two_peers_wake(ON_FUTEX);
}

#[test]
fn loom_two_peers_wake_a_polling_sleeper() {
    two_peers_wake(IN_POLL);
}

/// The trace of the first signal's wake must not swallow the second's.
fn a_second_signal_wakes_again(first: u32, second: u32) {
    model(move || {
        let endpoint = ModelEndpoint::new();
        let peer = Arc::clone(&endpoint);
        let peer = thread::spawn(move || {
            peer.signal(0, 1);
            peer.signal(0, 2);
        });
        endpoint.sleep_until(first, 0, 1);
        endpoint.sleep_until(second, 0, 2);
        peer.join().unwrap();
    });
}

#[test]
fn loom_a_second_signal_wakes_again_on_the_futex() {
    a_second_signal_wakes_again(ON_FUTEX, ON_FUTEX);
}

#[test]
fn loom_a_sleeper_may_change_from_futex_to_poll() {
    a_second_signal_wakes_again(ON_FUTEX, IN_POLL);
}

#[test]
fn loom_a_sleeper_may_change_from_poll_to_futex() {
    a_second_signal_wakes_again(IN_POLL, ON_FUTEX);
}

/// The reader takes the notification before it reads the socket, so a later message leaves another
/// notification.
#[test]
fn loom_a_message_always_wakes() {
    model(|| {
        let endpoint = ModelEndpoint::new();
        let peer = Arc::clone(&endpoint);
        let peer = thread::spawn(move || {
            peer.message();
            peer.message();
        });
        let mut messages = 0;
        while messages < 2 {
            messages += std::mem::take(&mut *endpoint.socket.lock().unwrap());
            if messages < 2 {
                endpoint.sleep(ON_FUTEX, || false);
            }
        }
        peer.join().unwrap();
    });
}

/// A sleeper that timed out sleeps again.
#[test]
fn loom_a_timeout_leaves_nothing_behind() {
    model(|| {
        let endpoint = ModelEndpoint::new();
        let peer = Arc::clone(&endpoint);
        let peer = thread::spawn(move || peer.put(0, 3));
        let early = protocol::sleep(
            &endpoint.state,
            &endpoint.notify,
            ON_FUTEX,
            || false,
            || false,
        );
        assert_eq!(early, Woken::TimedOut);
        endpoint.sleep_until(ON_FUTEX, 0, 3);
        assert_eq!(endpoint.read(0), 3);
        peer.join().unwrap();
    });
}

/// Two endpoints that sleep while the other works.
#[test]
fn loom_ping_pong() {
    model(|| {
        let (here, there) = (ModelEndpoint::new(), ModelEndpoint::new());
        let (our_end, their_end) = (Arc::clone(&here), Arc::clone(&there));
        let other = thread::spawn(move || {
            their_end.sleep_until(ON_FUTEX, 0, 1);
            our_end.put(0, their_end.read(0) + 1);
        });
        there.put(0, 1);
        here.sleep_until(ON_FUTEX, 0, 2);
        assert_eq!(here.read(0), 2);
        other.join().unwrap();
    });
}

/// Fails if a signaller that calls `wake` after its store can miss the sleeper.
///
/// No thread blocks here, because loom cannot unwind from a deadlock: `event` says whether the
/// sleeper would be asleep in the end.
fn check_signaller(wake: impl Fn(&ModelEndpoint) + Copy + Send + Sync + 'static) {
    model(move || {
        let endpoint = ModelEndpoint::new();
        let peer = Arc::clone(&endpoint);
        let peer = thread::spawn(move || {
            peer.flags[0].store(1, Ordering::Release);
            wake(&peer);
        });
        protocol::announce(&endpoint.state, ON_FUTEX);
        if !endpoint.signalled(0, 1) {
            let mut asleep = endpoint.kernel.event.lock().unwrap();
            *asleep = endpoint.state.load(Ordering::Relaxed) == ON_FUTEX;
        }
        peer.join().unwrap();
        let asleep = *endpoint.kernel.event.lock().unwrap();
        assert!(!asleep, "a missed wake");
    });
}

fn wake_reader(endpoint: &ModelEndpoint) {
    *endpoint.kernel.event.lock().unwrap() = false;
}

/// Shows that the models detect errors: without the signaller's fence they find the missed wake.
#[test]
#[should_panic(expected = "a missed wake")]
fn loom_finds_the_missing_fence() {
    check_signaller(|endpoint| {
        if endpoint.state.load(Ordering::Relaxed) != AWAKE {
            endpoint.state.swap(AWAKE, Ordering::AcqRel);
            wake_reader(endpoint);
        }
    });
}

/// As above: a wake that does not retract the announcement is too early for a sleeper that has made
/// its last check but not blocked yet.
#[test]
#[should_panic(expected = "a missed wake")]
fn loom_finds_the_announcement_not_retracted() {
    check_signaller(|endpoint| {
        fence(Ordering::SeqCst);
        if endpoint.state.load(Ordering::Relaxed) != AWAKE {
            wake_reader(endpoint);
        }
    });
}

/// The correct protocol passes the same test.
#[test]
fn loom_accepts_the_correct_protocol() {
    check_signaller(|endpoint| {
        if protocol::claim_wake(&endpoint.state) != AWAKE {
            wake_reader(endpoint);
        }
    });
}

/// Two ranks that run three operations each, in two slots in turn.
fn in_step(
    operation: impl Fn(&ModelEndpoint, &ModelEndpoint, usize, u64) + Copy + Send + Sync + 'static,
) {
    model(move || {
        let ends = [ModelEndpoint::new(), ModelEndpoint::new()];
        let run = move |own: Arc<ModelEndpoint>, peer: Arc<ModelEndpoint>| {
            for number in 1..=3_u64 {
                operation(&own, &peer, number as usize % 2, number);
            }
        };
        let (own, peer) = (Arc::clone(&ends[1]), Arc::clone(&ends[0]));
        let other = thread::spawn(move || run(own, peer));
        run(Arc::clone(&ends[0]), Arc::clone(&ends[1]));
        other.join().unwrap();
    });
}

/// Where every rank waits for all others before it continues, two slots need no credit: see [Note:
/// Inline operations] in the runtime.
#[test]
fn loom_two_slots_are_enough_for_ranks_in_step() {
    in_step(|own, peer, slot, number| {
        peer.put(slot, number);
        own.sleep_until(ON_FUTEX, slot, number);
        assert_eq!(own.read(slot), number);
    });
}

/// Slice-reduce on ordinary memory: a rank exposes its contribution in its own memory, and the peer
/// stores the result there. No rank waits for its peers before the next operation, which uses the
/// other slot.
#[test]
fn loom_results_may_overwrite_contributions() {
    in_step(|own, peer, slot, number| {
        let (shown, done) = (2 * number, 2 * number + 1);
        own.write(slot, shown);
        peer.signal(slot, shown);
        own.sleep_until(ON_FUTEX, slot, shown);
        assert_eq!(peer.read(slot), shown);
        peer.write(slot, done);
        peer.signal(slot, done);
        own.sleep_until(ON_FUTEX, slot, done);
        assert_eq!(own.read(slot), done);
    });
}

/// Two ranks that run four broadcasts from the first, in slots in turn, `together` at the beginning
/// of some. The first signal to a slot carries a header.
fn broadcasts_from_a_root(
    slots: usize,
    together: impl Fn(u64) -> bool + Copy + Send + Sync + 'static,
) {
    model(move || {
        let ends = [ModelEndpoint::new(), ModelEndpoint::new()];
        let run = move |own: Arc<ModelEndpoint>, peer: Arc<ModelEndpoint>, is_root: bool| {
            for number in 1..=4_u64 {
                let (slot, entered, sent) = (number as usize % slots, 2 * number, 2 * number + 1);
                let payload = SLOTS + slot;
                if together(number) {
                    peer.put(slot, entered);
                    own.sleep_until(ON_FUTEX, slot, entered);
                    assert_eq!(own.read(slot), entered);
                }
                if is_root {
                    if !together(number) {
                        peer.write(slot, sent);
                    }
                    peer.write(payload, sent);
                    peer.signal(slot, sent);
                } else {
                    own.sleep_until(ON_FUTEX, slot, sent);
                    assert_eq!(own.read(payload), sent);
                    assert!(own.read(slot) >= entered);
                }
            }
        };
        let (own, peer) = (Arc::clone(&ends[1]), Arc::clone(&ends[0]));
        let other = thread::spawn(move || run(own, peer, false));
        run(Arc::clone(&ends[0]), Arc::clone(&ends[1]), true);
        other.join().unwrap();
    });
}

/// Where a root receives from no rank, the ranks must signal to each other once in (slots - 1)
/// operations.
#[test]
fn loom_ranks_kept_in_step_overwrite_nothing() {
    broadcasts_from_a_root(3, |number| number % 2 == 0);
}

/// Less often is not enough: the root would overwrite unread bytes.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_ranks_out_of_step() {
    broadcasts_from_a_root(2, |number| number % 2 == 0);
}
