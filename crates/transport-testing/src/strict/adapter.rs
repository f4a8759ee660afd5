//! The thread that executes the work of all strict links of the process, in its own order and at
//! its own pace.

use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread;

use super::lock::locked;

/// A queue of work that is executed in its own order.
pub(super) trait WorkQueue: Send + Sync {
    /// Executes at most `work` entries, and then completes the operation that `pick` selects, if
    /// any. Returns false if nothing is left to do.
    fn advance(&self, work: usize, pick: Option<usize>) -> bool;
}

static ADDED: Mutex<Vec<Arc<dyn WorkQueue>>> = Mutex::new(Vec::new());
static QUEUE_ADDED: Condvar = Condvar::new();
static STARTED: Once = Once::new();

/// Adds a queue that has work.
pub(super) fn add(queue: Arc<dyn WorkQueue>) {
    STARTED.call_once(|| {
        let adapter = thread::Builder::new().name("weft-strict".into());
        adapter.spawn(run).expect("a thread for tests");
    });
    locked(&ADDED).push(queue);
    QUEUE_ADDED.notify_one();
}

fn run() {
    let mut queues: Vec<Arc<dyn WorkQueue>> = Vec::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    loop {
        let mut added = locked(&ADDED);
        while queues.is_empty() && added.is_empty() {
            added = QUEUE_ADDED
                .wait(added)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queues.append(&mut added);
        drop(added);
        let first = dice.roll(queues.len());
        queues.rotate_left(first);
        queues.retain(|queue| {
            let pick = (dice.roll(2) == 0).then(|| dice.roll(64));
            queue.advance(dice.roll(4), pick)
        });
        // Let the posting thread run, so that it meets incomplete operations.
        thread::yield_now();
    }
}

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    /// A number below `bound`, which must not be 0.
    fn roll(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}
