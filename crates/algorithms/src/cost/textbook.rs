//! Costs of algorithms according to the literature, in its terms.
//!
//! `p` ranks and a message of `n`; literature that gives each rank `m` in an all-gather means `n /
//! p`. Rounds of the literature are steps here, with two differences: a step counts only if it
//! waits for the one before, where a round of a tree also counts a parent's second message; and
//! with symmetric memory a rank may first have to wait for the signal that its peer has entered.
//!
//! The figures are those of the algorithm's [`Formula`](crate::Formula). The tests compare them
//! with the verifier's counts, and print the table of all of them.

use weft_schedule::Share;

/// The cost of an algorithm according to its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Textbook {
    /// The longest chain of signals.
    pub steps: u64,
    /// Bytes written to others' memory.
    pub sent: Volume,
    /// Bytes read in others' memory.
    pub read: Volume,
}

impl Textbook {
    /// Nothing at all, as in a group of one rank.
    pub const NOTHING: Textbook = Textbook {
        steps: 0,
        sent: Volume::NOTHING,
        read: Volume::NOTHING,
    };
}

/// How much is moved between ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// By the rank that moves most.
    pub most: Share,
    /// By all ranks.
    pub total: Share,
}

impl Volume {
    /// Nothing at all.
    pub const NOTHING: Volume = Volume {
        most: NO_SHARE,
        total: NO_SHARE,
    };
}

const NO_SHARE: Share = Share {
    numerator: 0,
    denominator: 1,
};
