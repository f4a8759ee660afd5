//! Claims: words in shared memory that select, turn by turn, the one rank that executes a step.
//!
//! A step has an *owner*, whose pool holds its word, and *helpers*. The owner *opens* the word for
//! a turn, which says that it has reached the step and that all earlier turns of the word are over.
//! The rank that then *takes* the turn, by one exchange of the word, executes the step and stores
//! that it is *done*: with release, so that the owner, which reads with acquire, sees everything
//! that was written. The owner opens the next turn only when it has found this one done, or has
//! executed it itself.
//!
//! Nothing is reset. A word names its turn, and the open value of a turn is stored once, so that a
//! helper that arrives late, or before the owner, finds another turn's value and cannot take
//! anything. That is why the owner opens turns: if a helper could take a turn that is merely later
//! than the word's, the owner would find its own, earlier turn overwritten, and could not see
//! whether it was executed.

use crate::sync::{AtomicU64, Ordering};

/// The bits of a word that hold the state of a turn: 0 while it is open, twice the claimant's rank
/// + 1 once it is taken, and 1 more when it is done.
const STATE_BITS: u32 = 20;
/// Ranks below this can claim.
pub const CLAIMANTS: u32 = (1 << (STATE_BITS - 1)) - 1;

/// The state of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// The word is at another turn: this one is not open yet, or over.
    Elsewhere,
    /// No rank has taken it.
    Open,
    /// This rank executes it.
    By(u32),
    /// It is executed.
    Done,
}

/// Opens a turn. Only the word's owner calls this, once per turn, with increasing turns.
pub fn open(word: &AtomicU64, turn: u64) {
    word.store(open_value(turn), Ordering::Release);
}

/// Takes a turn for this rank, if it is open. The rank must then store its [`done_value`].
pub fn take(word: &AtomicU64, turn: u64, rank: u32) -> bool {
    let taken = open_value(turn) | taken_bits(rank);
    word.compare_exchange(
        open_value(turn),
        taken,
        Ordering::Acquire,
        Ordering::Relaxed,
    )
    .is_ok()
}

/// The state of a turn. When it is done, everything that its claimant wrote is visible.
pub fn look(word: &AtomicU64, turn: u64) -> Claimed {
    let value = word.load(Ordering::Acquire);
    let state = value ^ open_value(turn);
    if state >> STATE_BITS != 0 {
        Claimed::Elsewhere
    } else if state == 0 {
        Claimed::Open
    } else if state & 1 == 0 {
        Claimed::By((state >> 1) as u32 - 1)
    } else {
        Claimed::Done
    }
}

/// The value that a rank stores, with release, once it has executed a step that it took. A helper
/// then wakes the owner.
pub fn done_value(turn: u64, rank: u32) -> u64 {
    open_value(turn) | taken_bits(rank) | 1
}

/// Not 0, which a fresh word holds.
fn open_value(turn: u64) -> u64 {
    (turn + 1) << STATE_BITS
}

fn taken_bits(rank: u32) -> u64 {
    debug_assert!(rank < CLAIMANTS);
    u64::from(rank + 1) << 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn turn_is_taken_once_and_only_while_open() {
        let word = AtomicU64::new(0);
        assert_eq!(look(&word, 0), Claimed::Elsewhere);
        assert!(!take(&word, 0, 0));
        for (turn, rank) in [(0, 0), (1, 7), (5, CLAIMANTS - 1), (1 << 43, 1)] {
            open(&word, turn);
            assert_eq!(look(&word, turn), Claimed::Open);
            assert!(!take(&word, turn + 1, rank), "a later turn");
            assert!(take(&word, turn, rank));
            assert!(!take(&word, turn, rank), "again");
            assert_eq!(look(&word, turn), Claimed::By(rank));
            word.store(done_value(turn, rank), Ordering::Release);
            assert_eq!(look(&word, turn), Claimed::Done);
            assert_eq!(look(&word, turn + 1), Claimed::Elsewhere);
            assert!(!take(&word, turn, rank), "after the end");
        }
    }
}
