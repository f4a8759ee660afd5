//! Models of ranks in step: slots that need no credit, whatever is called in a row.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use crate::model;
use crate::protocols::signals::{Signals, Tell, tell_all};
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

/// One rank, and what it has counted.
struct ModelRank {
    rank: u32,
    slots: u64,
    turns: Turns,
    channels: Channels,
}

impl ModelRank {
    /// `counts_for`: of a group with so many slots, as far as the rank knows.
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
            // SAFETY: the peer has read what lay here, and loom checks that this holds.
            slot.header.with_mut(|at| unsafe { *at = signals.number() });
        }
        if let Some(payload) = payload {
            // SAFETY: as above.
            slot.payload.with_mut(|at| unsafe { *at = payload });
        }
        slot.flag.store(value, Ordering::Release);
    }

    /// Whether the peer's signal has come; its header is what the peer has called.
    fn has_come(&self, signals: &Signals, id: u32) -> bool {
        let slot = &self.channels[1 - self.rank as usize][signals.slot() as usize];
        let come = signals.has_come(&slot.flag, id);
        if come == Some(true) {
            // SAFETY: the signal came behind it, and loom checks that this holds.
            let number = slot.header.with(|at| unsafe { *at });
            assert_eq!(number, signals.number(), "the header of another operation");
        }
        come.is_some()
    }

    fn wait(&self, signals: &Signals, id: u32) {
        while !self.has_come(signals, id) {
            thread::yield_now();
        }
    }

    fn payload(&self, signals: &Signals) -> u64 {
        let slot = &self.channels[1 - self.rank as usize][signals.slot() as usize];
        // SAFETY: the peer's signal came behind it, and loom checks that this holds.
        slot.payload.with(|at| unsafe { *at })
    }

    /// Counts a call, and asks the other rank where the counting says so.
    fn begin(&self, in_step: bool) -> Signals {
        let mut turn = self.turns.take();
        let counted = turn.count(false, in_step);
        turn.done(counted.asked);
        let mut signals = Signals::new(counted.number, self.slots);
        if counted.asked {
            let mut next = 0;
            loop {
                let told = tell_all::<(), ()>(RANKS, &mut next, |tell| {
                    Ok(match tell {
                        Tell::Signal(rank) if rank != self.rank => {
                            self.signal(&signals, 0, None);
                            None
                        }
                        Tell::Wait(rank) if rank != self.rank => {
                            (!self.has_come(&signals, 0)).then_some(())
                        }
                        _ => None,
                    })
                });
                match told.unwrap() {
                    Some(()) => thread::yield_now(),
                    None => break,
                }
            }
            signals.shift = 1;
        }
        signals
    }

    /// A broadcast from rank 0, which hears from nobody.
    fn broadcast(&self) {
        let signals = self.begin(false);
        if self.rank == 0 {
            self.signal(&signals, 0, Some(signals.number()));
        } else {
            self.wait(&signals, 0);
            assert_eq!(self.payload(&signals), signals.number());
        }
    }

    /// An exchange, by which both know of each other.
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
fn loom_a_root_that_hears_from_nobody_overwrites_nothing() {
    two_ranks(3, 3, |rank| (0..5).for_each(|_| rank.broadcast()));
}

#[test]
fn loom_exchanges_need_no_further_signals() {
    two_ranks(2, 2, |rank| (0..4).for_each(|_| rank.exchange()));
}

#[test]
fn loom_ranks_stay_in_step_through_calls_of_all_kinds() {
    two_ranks(3, 3, |rank| {
        rank.broadcast();
        rank.exchange();
        rank.broadcast();
        rank.broadcast();
        rank.exchange();
    });
}

/// The models are worth something: ranks that count for more slots than there are overwrite what
/// was not read.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_ranks_that_ask_too_seldom() {
    two_ranks(3, 5, |rank| (0..4).for_each(|_| rank.broadcast()));
}
