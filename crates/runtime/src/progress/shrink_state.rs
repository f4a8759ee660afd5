//! The state of an agreement on the survivors of a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_agreement::{Agreement, Ranks};
use weft_call::Completion;
use weft_transport::EndpointId;

/// A group whose ranks agree on who is left.
pub(crate) struct Shrinking {
    pub(super) members: Vec<EndpointId>,
    pub(super) agreement: Agreement,
    /// Over once that is decided.
    pub(super) settled: Arc<Completion>,
    /// When this rank's call began.
    pub(super) since: Instant,
    /// When each rank has said something last.
    pub(super) heard: Vec<Option<Instant>>,
    /// Since when no link could be made to a rank.
    pub(super) unreachable: Vec<Option<Instant>>,
    /// Somebody here makes the group of the survivors, or has made it.
    pub(super) taken: bool,
}

/// How far the agreement is.
pub(crate) enum ShrinkStage {
    /// Words of other ranks are awaited. To some of them there is no link.
    Waiting { unlinked: Vec<u32> },
    /// It is decided who goes on: the group of these ranks has this identity.
    Decided { id: u64, members: Ranks },
}

/// What came of an attempt to make a link.
pub(crate) enum Dial {
    Linked,
    /// Nobody listens at the rank's address any more: it has ended.
    Absent,
    Failed,
}

impl Shrinking {
    pub(super) fn new(rank: u32, members: Vec<EndpointId>) -> Self {
        let size = members.len();
        Shrinking {
            members,
            agreement: Agreement::new(rank, size as u32),
            settled: Completion::new(),
            since: Instant::now(),
            heard: vec![None; size],
            unreachable: vec![None; size],
            taken: false,
        }
    }

    pub(super) fn rank_of(&self, endpoint: EndpointId) -> Option<u32> {
        let found = self.members.iter().position(|member| *member == endpoint);
        found.map(|rank| rank as u32)
    }

    /// Gives up ranks that are awaited and were silent for too long: those that have not called
    /// once that has lasted for `patience`, those that take part or cannot be reached, once it has
    /// lasted for the peer timeout.
    pub(super) fn give_up_silent_ranks(&mut self, patience: Duration, peer_timeout: Duration) {
        for rank in self.agreement.awaited() {
            let [heard, unreachable] =
                [&self.heard, &self.unreachable].map(|times| times[rank as usize]);
            let too_long = match (heard, unreachable) {
                (Some(heard), _) => heard.max(self.since).elapsed() >= peer_timeout,
                (None, Some(since)) => since.elapsed() >= peer_timeout,
                (None, None) => false,
            };
            if too_long || (heard.is_none() && self.since.elapsed() >= patience) {
                self.agreement.give_up(rank);
            }
        }
    }
}
