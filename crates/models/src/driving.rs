//! Models of driving: no thread sleeps while unfinished operations have no driver.

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
    /// An operation whose signal is there already if `quick`, or must still be sent.
    fn new(quick: bool) -> Arc<ModelOperation> {
        Arc::new(ModelOperation {
            flag: AtomicBool::new(quick),
            ending: OperationEnd::new(RUNNING, ()),
        })
    }
}

/// An endpoint's engine: the runtime's, with models of its passes and sleeps.
struct ModelEngine {
    hand_over: HandOver,
    unfinished: Mutex<Vec<Arc<ModelOperation>>>,
    doorbell: AtomicU32,
    notified: AtomicU32,
    /// The doorbell's event, on which the driver sleeps.
    rung: ModelEvent,
    /// The poller's event, on which the progress thread sleeps.
    polled: ModelEvent,
    /// Set when the progress thread must end, once no operation is unfinished.
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
            unfinished: Mutex::new(Vec::new()),
            doorbell: AtomicU32::new(AWAKE),
            notified: AtomicU32::new(0),
            rung: ModelEvent::default(),
            polled: ModelEvent::default(),
            over: AtomicBool::new(false),
        })
    }

    fn issue(&self, operation: &Arc<ModelOperation>) {
        let mut unfinished = self.unfinished.lock().unwrap();
        unfinished.push(operation.clone());
        self.hand_over.note_pending(unfinished.len());
    }

    /// As [`ModelEngine::issue`], without a caller that waits: another thread must drive it.
    fn issue_in_background(&self, operation: &Arc<ModelOperation>) {
        self.issue(operation);
        self.hand_over.hand_over(self);
    }

    /// The signal of a peer.
    fn signal(&self, operation: &ModelOperation) {
        operation.flag.store(true, Ordering::Release);
        self.ring_driver();
    }

    fn pass(&self) -> bool {
        let mut unfinished = self.unfinished.lock().unwrap();
        let signalled = |op: &Arc<ModelOperation>| op.flag.load(Ordering::Acquire);
        let (ended, left): (Vec<_>, _) = unfinished.drain(..).partition(signalled);
        *unfinished = left;
        self.hand_over.note_pending(unfinished.len());
        drop(unfinished);
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

    /// Sleeps until an operation that other threads drive has ended.
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

    /// Ends the progress thread, which one more operation wakes.
    fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.issue_in_background(&ModelOperation::new(true));
    }
}

/// Runs each caller on a thread, next to the progress thread.
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

/// A caller that waits for the first operation.
fn wait_for_first(engine: &ModelEngine, [first, _]: &[Arc<ModelOperation>; 2]) {
    engine.issue(first);
    engine.wait(first);
}

#[test]
fn loom_background_operations_are_driven() {
    let caller = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue_in_background(first);
        engine.look_on(first);
        engine.issue_in_background(second);
        engine.signal(second);
        engine.look_on(second);
    };
    with_engine(3, [caller], [true, false]);
}

/// The first caller drives both; the progress thread continues after it.
#[test]
fn loom_progress_thread_continues_after_a_caller() {
    let other = |engine: &ModelEngine, [_, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue_in_background(second);
        engine.signal(second);
        engine.look_on(second);
    };
    with_engine(2, [wait_for_first, other], [true, false]);
}

/// Both callers wait, so one drives and the other parks. After the first has ended, the progress
/// thread may have to drive the second's operation.
#[test]
fn loom_two_callers_that_wait_are_both_driven() {
    let second = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.signal(first);
        engine.issue(second);
        engine.wait(second);
    };
    with_engine(2, [wait_for_first, second], [false, true]);
}

/// The driver sleeps until its operation is signalled, and must be woken for an operation that a
/// second caller issues meanwhile before it parks.
#[test]
fn loom_sleeping_driver_is_woken_for_new_operations() {
    let second = |engine: &ModelEngine, [first, second]: &[Arc<ModelOperation>; 2]| {
        engine.issue(second);
        engine.wait(second);
        engine.signal(first);
    };
    with_engine(2, [wait_for_first, second], [false, true]);
}
