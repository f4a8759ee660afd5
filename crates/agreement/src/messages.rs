//! Messages between the ranks of a group that shrinks. See [Note: Agreement].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A set of ranks.
pub type Ranks = BTreeSet<u32>;

/// The value that the ranks decide.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Survivors {
    /// The ranks that form the next group.
    pub members: Ranks,
    /// Whether all of them have voted yes.
    pub unanimous: bool,
}

/// A message from one rank to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShrinkMessage {
    /// The ranks that have ended for certain, as the sender knows directly or from others.
    pub ended: Ranks,
    /// The sender's step.
    pub step: ShrinkStep,
}

/// A step of the agreement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ShrinkStep {
    /// The sender takes part, and regards the receiver as the leader.
    Join,
    /// The sender takes part, and knows that the receiver does.
    Acknowledge,
    /// The sender has closed the group, and will never take part.
    Gone,
    /// A request to follow this ballot and none below it.
    Prepare {
        /// The ballot.
        ballot: u64,
    },
    /// The sender follows the ballot.
    Promise {
        /// The ballot that it follows.
        ballot: u64,
        /// The sender's vote.
        vote: bool,
        /// The last earlier ballot that the sender accepted, with its value.
        accepted: Option<(u64, Survivors)>,
    },
    /// A request to accept these survivors.
    Accept {
        /// The ballot.
        ballot: u64,
        /// The value.
        survivors: Survivors,
    },
    /// The sender has accepted the ballot's proposal.
    Accepted {
        /// The ballot.
        ballot: u64,
    },
    /// The sender rejects the ballot, since it follows a higher one.
    Superseded {
        /// The higher ballot.
        ballot: u64,
    },
    /// These survivors are decided.
    Decided {
        /// The value.
        survivors: Survivors,
    },
}

impl ShrinkMessage {
    /// Whether all ranks in the message belong to a group of this size.
    pub fn is_among(&self, size: u32) -> bool {
        let named = match &self.step {
            ShrinkStep::Accept { survivors, .. } | ShrinkStep::Decided { survivors } => {
                Some(survivors)
            }
            ShrinkStep::Promise { accepted, .. } => accepted.as_ref().map(|(_, value)| value),
            _ => None,
        };
        let named = named.into_iter().flat_map(|survivors| &survivors.members);
        let mut ranks = self.ended.iter().chain(named);
        ranks.all(|rank| *rank < size)
    }
}
