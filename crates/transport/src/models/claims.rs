//! Models of claims: exactly one execution of a step per turn, by its owner or a helper, and no
//! access to its memory afterwards.

use super::{Arc, AtomicU64, ModelEndpoint, ON_FUTEX, Ordering, UnsafeCell, model, thread};
use crate::claim::{self, Claimed};

const TURNS: u64 = 2;
const OWNER: u32 = 0;

/// A step that adds 1 in place, and its word.
struct ModelStep {
    word: AtomicU64,
    memory: UnsafeCell<u64>,
    owner: Arc<ModelEndpoint>,
}

impl ModelStep {
    fn new() -> Arc<ModelStep> {
        Arc::new(ModelStep {
            word: AtomicU64::new(0),
            memory: UnsafeCell::new(0),
            owner: ModelEndpoint::new(),
        })
    }

    fn execute(&self) {
        // SAFETY: the rank that took the step has its memory to itself, and loom checks that this
        // holds.
        self.memory.with_mut(|memory| unsafe { *memory += 1 });
    }

    fn contribute(&self, value: u64) {
        // SAFETY: the memory is the owner's before it opens the step, as above.
        self.memory.with_mut(|memory| unsafe { *memory = value });
    }

    fn result(&self) -> u64 {
        // SAFETY: the memory is the owner's once the step is done, as above.
        self.memory.with(|memory| unsafe { *memory })
    }

    fn is_done(&self, turn: u64) -> bool {
        claim::look(&self.word, turn) == Claimed::Done
    }

    /// The owner's part of a turn.
    fn own(&self, turn: u64) {
        self.contribute(10 * turn);
        claim::open(&self.word, turn);
        if claim::take(&self.word, turn, OWNER) {
            self.execute();
            let done = claim::done_value(turn, OWNER);
            self.word.store(done, Ordering::Release);
        }
        while !self.is_done(turn) {
            self.owner.sleep(ON_FUTEX, || self.is_done(turn));
        }
        assert_eq!(self.result(), 10 * turn + 1);
    }

    /// A helper's part of a turn. It may be early, late or in time: nothing synchronizes it.
    fn help(&self, turn: u64, rank: u32) {
        if claim::take(&self.word, turn, rank) {
            self.execute();
            self.finish(turn, rank, Ordering::Release);
        }
    }

    fn finish(&self, turn: u64, rank: u32, order: Ordering) {
        self.word.store(claim::done_value(turn, rank), order);
        self.owner.ring();
    }
}

#[test]
fn loom_a_helped_step_is_executed_once_per_turn() {
    model(|| {
        let step = ModelStep::new();
        let helped = Arc::clone(&step);
        let helper = thread::spawn(move || (0..TURNS).for_each(|turn| helped.help(turn, 1)));
        (0..TURNS).for_each(|turn| step.own(turn));
        helper.join().unwrap();
    });
}

#[test]
fn loom_two_helpers_do_not_both_execute_a_step() {
    model(|| {
        let step = ModelStep::new();
        let helpers = [1, 2].map(|rank| {
            let step = Arc::clone(&step);
            thread::spawn(move || step.help(0, rank))
        });
        step.own(0);
        for helper in helpers {
            helper.join().unwrap();
        }
    });
}

/// Without the release of the helper's writes, the owner continues too early.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_finds_the_helper_that_does_not_release() {
    model(|| {
        let step = ModelStep::new();
        let helped = Arc::clone(&step);
        let helper = thread::spawn(move || {
            if claim::take(&helped.word, 0, 1) {
                helped.execute();
                helped.finish(0, 1, Ordering::Relaxed);
            }
        });
        step.own(0);
        helper.join().unwrap();
    });
}

/// The reason that the owner opens every turn: a claimant that may take any turn later than the
/// word's overwrites the owner's turn.
#[test]
#[should_panic(expected = "a turn that no rank executed")]
fn loom_finds_the_turn_that_a_helper_skips() {
    model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let executed = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let take = |word: &AtomicU64, executed: &[AtomicU64; 2], turn: u64| {
            if word.fetch_max(turn + 1, Ordering::AcqRel) < turn + 1 {
                executed[turn as usize].fetch_add(1, Ordering::Relaxed);
            }
        };
        let (helped, done) = (Arc::clone(&word), Arc::clone(&executed));
        let helper = thread::spawn(move || take(&helped, &done, 1));
        (0..TURNS).for_each(|turn| take(&word, &executed, turn));
        helper.join().unwrap();
        for turn in executed.iter() {
            let times = turn.load(Ordering::Relaxed);
            assert_eq!(times, 1, "a turn that no rank executed");
        }
    });
}
