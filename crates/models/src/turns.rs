//! Models of turns on the calling-thread path: calling threads and the engine run operations one at
//! a time, in the order of the calls, and a lane waits for operations that may still need it.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::model;
use crate::protocols::turns::{CountedCall, Turns};

const SLOTS: u64 = 3;

/// An operation that a calling thread has passed to the engine.
struct ModelEntered {
    sequence: u64,
    counted: CountedCall,
}

/// One rank's path, and the part of its executor that takes over operations.
struct ModelPath {
    turns: Turns,
    /// The number of the next operation of the group.
    order: Mutex<u64>,
    /// The engine's state: its operations, by number.
    queue: Mutex<Vec<ModelEntered>>,
    /// The memory that operations work on: the number that have run.
    ran: UnsafeCell<u64>,
    /// The operations that have run in the lane, in order.
    lane: Mutex<Vec<u64>>,
    ended: AtomicBool,
}

impl ModelPath {
    fn new() -> Arc<ModelPath> {
        Arc::new(ModelPath {
            turns: Turns::new(SLOTS),
            order: Mutex::new(0),
            queue: Mutex::new(Vec::new()),
            ran: UnsafeCell::new(0),
            lane: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        })
    }

    fn run(&self, counted: CountedCall) {
        self.ran.with_mut(|ran| {
            // SAFETY: the thread that runs an operation holds the turn, and loom checks that this
            // suffices.
            let ran = unsafe { &mut *ran };
            assert_eq!(*ran, counted.number, "out of order");
            *ran += 1;
        });
    }

    /// A call on a calling thread, with an exchange of positions, which blocks if `stuck`. False if
    /// it is not its turn.
    fn attempt(&self, stuck: bool) -> bool {
        let Some(mut turn) = self.turns.try_begin() else {
            return false;
        };
        assert!(!self.ended.load(Ordering::Acquire), "begun after the end");
        let counted = turn.count(true, false);
        let sequence = {
            let mut order = self.order.lock().unwrap();
            turn.note_undecided(*order);
            *order += 1;
            *order - 1
        };
        if !stuck {
            self.run(counted);
            turn.done(counted.exchanges);
            return true;
        }
        drop(turn);
        let mut queue = self.queue.lock().unwrap();
        queue.push(ModelEntered { sequence, counted });
        self.turns.handed_over(sequence, false);
        true
    }

    /// A call that the engine executes from the beginning.
    fn enter(&self) {
        let mut queue = self.queue.lock().unwrap();
        let counted = self.turns.take().count(true, false);
        let sequence = {
            let mut order = self.order.lock().unwrap();
            *order += 1;
            *order - 1
        };
        queue.push(ModelEntered { sequence, counted });
        self.turns.handed_over(sequence, false);
    }

    /// A pass of the engine, which runs every operation whose turn it is. `needs_lane`: they need a
    /// lane.
    fn pass(&self, needs_lane: bool) {
        let mut queue = self.queue.lock().unwrap();
        queue.retain(|entered| {
            if !self.turns.is_next(entered.counted.number) {
                return true;
            }
            let turn = self.turns.take();
            self.run(entered.counted);
            if needs_lane {
                self.lane.lock().unwrap().push(entered.sequence);
            }
            turn.ended();
            false
        });
    }

    /// A call in a lane, after earlier calls. True if it has run.
    fn call_in_lane(&self, sequence: u64) -> bool {
        let queue = self.queue.lock().unwrap();
        let undecided = self.turns.undecided().is_some_and(|word| word < sequence);
        if undecided || queue.iter().any(|entered| entered.sequence < sequence) {
            return false;
        }
        self.lane.lock().unwrap().push(sequence);
        true
    }

    fn next_in_lane(&self) -> u64 {
        let _queue = self.queue.lock().unwrap();
        let mut order = self.order.lock().unwrap();
        *order += 1;
        *order - 1
    }
}

#[test]
fn loom_operations_run_in_call_order() {
    model(3, || {
        let path = ModelPath::new();
        let other = {
            let path = path.clone();
            thread::spawn(move || {
                if !path.attempt(false) {
                    path.enter();
                }
                path.pass(false);
            })
        };
        if !path.attempt(true) {
            path.enter();
        }
        path.pass(false);
        other.join().unwrap();
        path.pass(false);
        path.pass(false);
        // SAFETY: the other thread has ended.
        assert_eq!(path.ran.with(|ran| unsafe { *ran }), 2);
    });
}

/// Two calling threads and the engine, where the first thread blocks.
#[test]
fn loom_calling_threads_and_engine_take_turns() {
    model(2, || {
        let path = ModelPath::new();
        let others = [true, false].map(|stuck| {
            let path = path.clone();
            thread::spawn(move || {
                if !path.attempt(stuck) {
                    path.enter();
                }
            })
        });
        path.pass(false);
        for other in others {
            other.join().unwrap();
        }
        path.pass(false);
        path.pass(false);
        // SAFETY: the other threads have ended.
        assert_eq!(path.ran.with(|ran| unsafe { *ran }), 2);
    });
}

/// When a group fails, no operation runs on a calling thread.
#[test]
fn loom_nothing_begins_after_the_end() {
    model(3, || {
        let path = ModelPath::new();
        let caller = {
            let path = path.clone();
            thread::spawn(move || {
                path.attempt(false);
                path.attempt(false);
            })
        };
        path.turns.end();
        path.ended.store(true, Ordering::Release);
        // SAFETY: no thread runs an operation now, and loom checks that this holds.
        assert!(path.ran.with(|ran| unsafe { *ran }) <= 2);
        caller.join().unwrap();
    });
}

/// A call in a lane does not overtake an earlier call that may still need the lane.
#[test]
fn loom_lane_waits_for_undecided_operations() {
    model(3, || {
        let path = ModelPath::new();
        let caller = {
            let path = path.clone();
            thread::spawn(move || {
                assert!(path.attempt(true));
                path.pass(true);
            })
        };
        let sequence = path.next_in_lane();
        let early = path.call_in_lane(sequence);
        caller.join().unwrap();
        assert!(early || path.call_in_lane(sequence));
        let lane = path.lane.lock().unwrap();
        assert!(*lane == [0, 1] || sequence == 0, "overtaken: {:?}", *lane);
    });
}
