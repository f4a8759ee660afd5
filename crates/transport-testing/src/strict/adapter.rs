//! The thread that carries out the work of all strict links of the process, in its own order and at
//! its own pace.

use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread;

use super::locked;

/// Work that is carried out in its own order.
pub(super) trait Queue: Send + Sync {
    /// Carries out at most so much, and then perhaps completes the operation that `pick` names.
    /// False if nothing is left to do.
    fn advance(&self, work: usize, pick: Option<usize>) -> bool;
}

static ADDED: Mutex<Vec<Arc<dyn Queue>>> = Mutex::new(Vec::new());
static NEWS: Condvar = Condvar::new();
static STARTED: Once = Once::new();

/// Takes up a queue that has something to do.
pub(super) fn add(queue: Arc<dyn Queue>) {
    STARTED.call_once(|| {
        let adapter = thread::Builder::new().name("weft-strict".into());
        adapter.spawn(run).expect("a thread for tests");
    });
    locked(&ADDED).push(queue);
    NEWS.notify_one();
}

fn run() {
    let mut queues: Vec<Arc<dyn Queue>> = Vec::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    loop {
        let mut added = locked(&ADDED);
        while queues.is_empty() && added.is_empty() {
            added = NEWS.wait(added).unwrap_or_else(PoisonError::into_inner);
        }
        queues.append(&mut added);
        drop(added);
        let first = dice.roll(queues.len());
        queues.rotate_left(first);
        queues.retain(|queue| {
            let pick = (dice.roll(2) == 0).then(|| dice.roll(64));
            queue.advance(dice.roll(4), pick)
        });
        // Whoever has posted may run, and be surprised by what is not done yet.
        thread::yield_now();
    }
}

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    /// Less than `bound`, which is not 0.
    fn roll(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}
