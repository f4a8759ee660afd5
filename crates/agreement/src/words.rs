//! What ranks of a group that shrinks say to each other. See `agreement.rs`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A set of ranks.
pub type Ranks = BTreeSet<u32>;

/// What a rank says to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShrinkWord {
    /// The ranks that have ended, as has been proven to the sender or to whom it has it from.
    pub ended: Ranks,
    /// The step of the sender.
    pub what: ShrinkStep,
}

/// A step of the agreement on who is left.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ShrinkStep {
    /// The sender takes part, and takes the receiver for the one who leads.
    Here,
    /// The sender takes part, and has heard so of the receiver.
    Heard,
    /// The sender had closed the group without taking part, and never will.
    Gone,
    /// Does the receiver follow this ballot, and none below it?
    Prepare {
        /// The ballot.
        ballot: u64,
    },
    /// Yes; and what it has accepted last, in an earlier one.
    Promise {
        /// The ballot that it follows.
        ballot: u64,
        /// A ballot, and the ranks that it was for.
        accepted: Option<(u64, Ranks)>,
    },
    /// These ranks shall go on.
    Accept {
        /// The ballot.
        ballot: u64,
        /// The ranks.
        members: Ranks,
    },
    /// The sender has taken note of that.
    Accepted {
        /// The ballot.
        ballot: u64,
    },
    /// No: the sender follows a higher ballot, this one.
    Superseded {
        /// The higher ballot.
        ballot: u64,
    },
    /// It is settled: these ranks go on.
    Decided {
        /// The ranks.
        members: Ranks,
    },
}

impl ShrinkWord {
    /// Whether it names only ranks of a group of this size.
    pub fn is_among(&self, size: u32) -> bool {
        let named = match &self.what {
            ShrinkStep::Accept { members, .. } | ShrinkStep::Decided { members } => Some(members),
            ShrinkStep::Promise { accepted, .. } => accepted.as_ref().map(|(_, members)| members),
            _ => None,
        };
        let mut ranks = self.ended.iter().chain(named.into_iter().flatten());
        ranks.all(|rank| *rank < size)
    }
}
