//! Models of the gate between makers of descriptors and forks.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::model;
use crate::gate;

/// A process, and the number of its unregistered descriptors.
struct ModelProcess {
    gate: AtomicU64,
    /// Changed by a maker in two steps, read by a fork: loom detects both at once as a race.
    unregistered: UnsafeCell<u32>,
}

impl ModelProcess {
    fn make_and_register(&self) {
        let change = |by: fn(u32) -> u32| {
            // SAFETY: no fork reads while a maker is inside the gate, as loom checks.
            self.unregistered
                .with_mut(|count| unsafe { *count = by(*count) });
        };
        gate::enter(&self.gate);
        change(|count| count + 1);
        change(|count| count - 1);
        gate::leave(&self.gate);
    }

    fn fork(&self, hold: fn(&AtomicU64)) {
        hold(&self.gate);
        // SAFETY: as above.
        let left = self.unregistered.with(|count| unsafe { *count });
        assert_eq!(left, 0, "a child would inherit it unregistered");
        gate::release(&self.gate);
    }
}

fn a_maker_and_a_fork(hold: fn(&AtomicU64)) {
    model(move || {
        let process = Arc::new(ModelProcess {
            gate: AtomicU64::new(0),
            unregistered: UnsafeCell::new(0),
        });
        let maker = {
            let process = process.clone();
            thread::spawn(move || {
                process.make_and_register();
                process.make_and_register();
            })
        };
        process.fork(hold);
        maker.join().unwrap();
        assert_eq!(process.gate.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn loom_a_fork_inherits_nothing_unregistered() {
    a_maker_and_a_fork(gate::hold);
}

#[test]
#[should_panic(expected = "ausality")]
fn loom_finds_the_fork_that_does_not_wait() {
    a_maker_and_a_fork(|gate| {
        gate.fetch_add(1 << 32, Ordering::Relaxed);
    });
}
