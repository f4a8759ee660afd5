//! Models of driving: nobody sleeps while something is under way that nobody drives.

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::time::Duration;
use weft_transport::protocol::{self, AWAKE, IN_POLL};

use crate::kernel::ModelEvent;
use crate::model;
use crate::protocols::ending::{OperationEnd, RUNNING};
use crate::protocols::hand_over::{HandOver, Wake};

const DONE: u8 = 1;
/// Sleeps have no limit here.
const TIME: Duration = Duration::MAX;

/// An operation that ends in the first pass that sees its flag, which a peer sets.
struct ModelOperation {
    flag: AtomicBool,
    ending: OperationEnd<()>,
}

impl ModelOperation {
    /// One whose peers are `quick`, or one that somebody has to signal for.
    fn new(quick: bool) -> Arc<ModelOperation> {
        Arc::new(ModelOperation {
            flag: AtomicBool::new(quick),
            ending: OperationEnd::new(RUNNING, ()),
        })
    }
}

/// An endpoint's engine: the runtime's, but for what a pass does and what a sleep is.
struct ModelEngine {
    hand_over: HandOver,
    under_way: Mutex<Vec<Arc<ModelOperation>>>,
    doorbell: AtomicU32,
    notified: AtomicU32,
    /// The doorbell's, in which the driver sleeps.
    rung: ModelEvent,
    /// The poller's, in which the progress thread sleeps.
    polled: ModelEvent,
    /// The progress thread is to end, once it finds nothing under way.
    over: AtomicBool,
}

impl Wake for ModelEngine {
    fn ring_driver(&self) {
        if protocol::claim_wake(&self.doorbell) != AWAKE {
            self.rung.post();
        }
    }

    fn end_poll(&self) {
        self.polled.post();
    }
}

impl ModelEngine {
    fn new() -> Arc<ModelEngine> {
        Arc::new(ModelEngine {
            hand_over: HandOver::new(),
            under_way: Mutex::new(Vec::new()),
            doorbell: AtomicU32::new(AWAKE),
            notified: AtomicU32::new(0),
            rung: ModelEvent::default(),
            polled: ModelEvent::default(),
            over: AtomicBool::new(false),
        })
    }

    fn issue(&self, operation: &Arc<ModelOperation>) {
        let mut under_way = self.under_way.lock().unwrap();
        under_way.push(operation.clone());
        self.hand_over.note_pending(under_way.len());
    }

    /// As [`ModelEngine::issue`], for nobody who waits: somebody else is to drive it.
    fn issue_in_background(&self, operation: &Arc<ModelOperation>) {
        self.issue(operation);
        self.hand_over.hand_over(self);
    }

    /// What a peer does.
    fn signal(&self, operation: &ModelOperation) {
        operation.flag.store(true, Ordering::Release);
        self.ring_driver();
    }

    fn pass(&self) -> bool {
        let mut under_way = self.under_way.lock().unwrap();
        let has_come = |op: &Arc<ModelOperation>| op.flag.load(Ordering::Acquire);
        let (ended, left): (Vec<_>, _) = under_way.drain(..).partition(has_come);
        *under_way = left;
        self.hand_over.note_pending(under_way.len());
        drop(under_way);
        for operation in &ended {
            operation.ending.end(DONE, |()| ());
        }
        !ended.is_empty()
    }

    fn drive(&self, over: &dyn Fn() -> bool) {
        while !over() {
            if self.pass() || over() {
                continue;
            }
            let ready = || self.pass() || over();
            protocol::sleep(&self.doorbell, &self.notified, IN_POLL, ready, || {
                self.rung.wait_and_drain();
                true
            });
        }
    }

    fn wait(&self, operation: &ModelOperation) {
        let is_over = || operation.ending.is_over();
        while !is_over() {
            self.hand_over.drive_or_park(
                self,
                &mut (),
                |()| self.drive(&is_over),
                |(), free| operation.ending.park(TIME, free),
            );
        }
    }

    /// Sleeps until an operation that others drive is over.
    fn look_on(&self, operation: &ModelOperation) {
        while !operation.ending.is_over() {
            operation.ending.park(TIME, || false);
        }
    }

    fn progress_thread(&self) {
        while !self.over.load(Ordering::Acquire) || self.hand_over.has_work() {
            let idle = || {
                self.hand_over.poll(|| self.polled.wait_and_drain());
            };
            let all_done = || !self.hand_over.has_work();
            self.hand_over.turn(|| self.drive(&all_done), idle, TIME);
        }
    }

    /// Ends the progress thread by one more operation, wherever it sleeps.
    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.issue_in_background(&ModelOperation::new(true));
    }
}

/// Runs bodies on threads of their own beside the progress thread.
fn with_engine<const N: usize>(
    preemptions: usize,
    callers: [fn(&ModelEngine, &[Arc<ModelOperation>; 2]); N],
    quick: [bool; 2],
) {
    model(preemptions, move || {
        let engine = ModelEngine::new();
        let operations = quick.map(ModelOperation::new);
        let progress = {
            let engine = engine.clone();
            thread::spawn(move || engine.progress_thread())
        };
        let others: Vec<_> = callers[1..]
            .iter()
            .map(|caller| {
                let (caller, engine, operations) = (*caller, engine.clone(), operations.clone());
                thread::spawn(move || caller(&engine, &operations))
            })
            .collect();
        callers[0](&engine, &operations);
        for other in others {
            other.join().unwrap();
        }
        engine.end();
        progress.join().unwrap();
    });
}

/// A caller.
fn wait_for_first(engine: &ModelEngine, [first, _]: &[Arc<ModelOperation>; 2]) {
    engine.issue(first);
    engine.wait(first);
}

#[test]
fn loom_what_is_issued_in_the_background_is_driven() {
    let caller = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue_in_background(first);
        engine.look_on(first);
        engine.issue_in_background(second);
        engine.signal(second);
        engine.look_on(second);
    };
    with_engine(3, [caller], [true, false]);
}

/// The first caller drives both; what it leaves is the progress thread's.
#[test]
fn loom_what_a_caller_leaves_is_driven_by_the_progress_thread() {
    let other = |engine: &ModelEngine, [_, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue_in_background(second);
        engine.signal(second);
        engine.look_on(second);
    };
    with_engine(2, [wait_for_first, other], [true, false]);
}

/// Both callers wait, so one drives and the other parks, and may have to be driven by the progress
/// thread once the first has what it wants.
#[test]
fn loom_two_callers_that_wait_are_both_driven() {
    let second = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.signal(first);
        engine.issue(second);
        engine.wait(second);
    };
    with_engine(2, [wait_for_first, second], [false, true]);
}

/// The driver sleeps until somebody signals for what it waits for, and knows nothing of what a
/// second caller has issued meanwhile, which then parks.
#[test]
fn loom_a_driver_that_sleeps_is_told_of_what_is_issued_since() {
    let second = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue(second);
        engine.wait(second);
        engine.signal(first);
    };
    with_engine(2, [wait_for_first, second], [false, true]);
}
