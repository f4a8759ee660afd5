//! Models of ranks in step: slots need no credit, for any sequence of calls.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::model;
use crate::protocols::signals::{ExchangeStep, Signals, exchange_signals};
use crate::protocols::turns::Turns;

const RANKS: u32 = 2;

/// A slot in which one rank writes for another.
struct ModelSlot {
    flag: AtomicU64,
    header: UnsafeCell<u64>,
    payload: UnsafeCell<u64>,
}

/// The slots of both directions, by sender.
type Channels = Arc<[Vec<ModelSlot>; RANKS as usize]>;

fn channels(slots: u64) -> Channels {
    let slot = |_| ModelSlot {
        flag: AtomicU64::new(0),
        header: UnsafeCell::new(0),
        payload: UnsafeCell::new(0),
    };
    Arc::new([
        (0..slots).map(slot).collect(),
        (0..slots).map(slot).collect(),
    ])
}

/// A rank, and its count of operations.
struct ModelRank {
    rank: u32,
    slots: u64,
    turns: Turns,
    channels: Channels,
}

impl ModelRank {
    /// A rank of a group with `slots` slots, which counts as if there were `counts_for`.
    fn new(rank: u32, slots: u64, counts_for: u64, channels: &Channels) -> ModelRank {
        ModelRank {
            rank,
            slots,
            turns: Turns::new(counts_for),
            channels: channels.clone(),
        }
    }

    fn signal(&self, signals: &Signals, id: u32, payload: Option<u64>) {
        let slot = &self.channels[self.rank as usize][signals.slot() as usize];
        let (value, first) = signals.value(id);
        if first {
            // SAFETY: the peer has read the former header, and loom checks that this holds.
            slot.header.with_mut(|at| unsafe { *at = signals.number() });
        }
        if let Some(payload) = payload {
            // SAFETY: as above.
            slot.payload.with_mut(|at| unsafe { *at = payload });
        }
        slot.flag.store(value, Ordering::Release);
    }

    /// Whether the peer's signal has arrived. Checks its header, which identifies the peer's call.
    fn has_arrived(&self, signals: &Signals, id: u32) -> bool {
        let slot = &self.channels[1 - self.rank as usize][signals.slot() as usize];
        let arrived = signals.has_arrived(&slot.flag, id);
        if arrived == Some(true) {
            // SAFETY: the signal arrived after it, and loom checks that this holds.
            let number = slot.header.with(|at| unsafe { *at });
            assert_eq!(number, signals.number(), "the header of another operation");
        }
        arrived.is_some()
    }

    fn wait(&self, signals: &Signals, id: u32) {
        while !self.has_arrived(signals, id) {
            thread::yield_now();
        }
    }

    fn payload(&self, signals: &Signals) -> u64 {
        let slot = &self.channels[1 - self.rank as usize][signals.slot() as usize];
        // SAFETY: the peer's signal arrived after it, and loom checks that this holds.
        slot.payload.with(|at| unsafe { *at })
    }

    /// Counts a call, and exchanges signals with the other rank if the count requires it.
    fn begin(&self, in_step: bool) -> Signals {
        let mut turn = self.turns.take();
        let counted = turn.count(false, in_step);
        turn.done(counted.exchanges);
        let mut signals = Signals::new(counted.number, self.slots);
        if counted.exchanges {
            let mut next = 0;
            loop {
                let blocked = exchange_signals::<(), ()>(RANKS, &mut next, |step| {
                    Ok(match step {
                        ExchangeStep::Signal(rank) if rank != self.rank => {
                            self.signal(&signals, 0, None);
                            None
                        }
                        ExchangeStep::Wait(rank) if rank != self.rank => {
                            (!self.has_arrived(&signals, 0)).then_some(())
                        }
                        _ => None,
                    })
                });
                match blocked.unwrap() {
                    Some(()) => thread::yield_now(),
                    None => break,
                }
            }
            signals.shift = 1;
        }
        signals
    }

    /// A broadcast from rank 0, which receives no signal.
    fn broadcast(&self) {
        let signals = self.begin(false);
        if self.rank == 0 {
            self.signal(&signals, 0, Some(signals.number()));
        } else {
            self.wait(&signals, 0);
            assert_eq!(self.payload(&signals), signals.number());
        }
    }

    /// An exchange, after which each rank knows that the other has begun.
    fn exchange(&self) {
        let signals = self.begin(true);
        self.signal(&signals, 0, Some(signals.number()));
        self.wait(&signals, 0);
        assert_eq!(self.payload(&signals), signals.number());
    }
}

fn two_ranks(slots: u64, counts_for: u64, calls: fn(&ModelRank)) {
    model(2, move || {
        let channels = channels(slots);
        let other = ModelRank::new(1, slots, counts_for, &channels);
        let other = thread::spawn(move || calls(&other));
        calls(&ModelRank::new(0, slots, counts_for, &channels));
        other.join().unwrap();
    });
}

#[test]
fn loom_root_without_signals_overwrites_nothing() {
    two_ranks(3, 3, |rank| (0..5).for_each(|_| rank.broadcast()));
}

#[test]
fn loom_exchanges_need_no_further_signals() {
    two_ranks(2, 2, |rank| (0..4).for_each(|_| rank.exchange()));
}

#[test]
fn loom_mixed_calls_keep_ranks_in_step() {
    two_ranks(3, 3, |rank| {
        rank.broadcast();
        rank.exchange();
        rank.broadcast();
        rank.broadcast();
        rank.exchange();
    });
}

/// A check of the model: ranks that count for more slots than there are overwrite unread data.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_ranks_with_too_few_exchanges() {
    two_ranks(3, 5, |rank| (0..4).for_each(|_| rank.broadcast()));
}
