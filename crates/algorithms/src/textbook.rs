//! What the literature says an algorithm costs, in the literature's terms.
//!
//! `p` ranks and a message of `n`; literature that gives each rank `m` in an all-gather means `n / p`. Rounds of the literature are steps
//! here, with two differences: a step counts only if it waits for the one before, where a round of a tree also counts a parent's
//! second message; and with symmetric memory a rank may have to be told first that its peer has entered.
//!
//! Nothing chooses by these formulas. The tests compare them with what the verifier counts, and print the table of all of them.

use weft_schedule::Share;

use crate::Memory;

/// What an algorithm costs according to its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Textbook {
    /// The source and its formula, or what is obvious without one.
    pub quote: &'static str,
    /// The longest chain of signals.
    pub steps: u64,
    /// What is written to others' memory.
    pub sent: Volume,
    /// What is read in others' memory.
    pub read: Volume,
}

/// How much is moved between ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// By the rank that moves most.
    pub most: Share,
    /// By all ranks.
    pub total: Share,
}

/// A share of the message: how many of how many parts.
type Parts = (u64, u64);

impl Volume {
    /// Nothing at all.
    pub const NOTHING: Volume = Volume {
        most: NO_SHARE,
        total: NO_SHARE,
    };

    pub(crate) fn new(most: Parts, total: Parts) -> Self {
        Volume {
            most: Share::new(most.0, most.1),
            total: Share::new(total.0, total.1),
        }
    }

    /// Each of so many ranks moves as much.
    pub(crate) fn by_each(ranks: u64, (parts, of): Parts) -> Self {
        Volume::new((parts, of), (parts * ranks, of))
    }

    /// Each of so many ranks moves all of as many blocks but one.
    pub(crate) fn all_but_one(ranks: u64) -> Self {
        Volume::by_each(ranks, (ranks - 1, ranks))
    }
}

const NO_SHARE: Share = Share {
    numerator: 0,
    denominator: 1,
};

/// What formulas are about.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Ranks.
    pub(crate) p: u64,
    /// ⌊log2 p⌋.
    pub(crate) floor_log: u64,
    /// ⌈log2 p⌉.
    pub(crate) ceil_log: u64,
    /// Whether memory is symmetric.
    pub(crate) symmetric: bool,
    /// 1 where ranks must be told that their peers have entered.
    pub(crate) entry: u64,
}

impl Terms {
    /// So many ranks, at least one, in this memory.
    pub fn new(ranks: u32, memory: Memory) -> Self {
        let symmetric = memory == Memory::Symmetric;
        Terms {
            p: u64::from(ranks),
            floor_log: u64::from(ranks.ilog2()),
            ceil_log: u64::from(ranks.next_power_of_two().ilog2()),
            symmetric,
            entry: u64::from(symmetric),
        }
    }
}
