//! State of an agreement on the survivors of a group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_agreement::{Agreement, Survivors};
use weft_call::Completion;
use weft_transport::EndpointId;

use super::questions::Questions;

/// A group whose ranks agree on its survivors.
pub(crate) struct Shrinking {
    pub(super) members: Vec<EndpointId>,
    pub(super) agreement: Agreement,
    /// Ends once the survivors are decided.
    pub(super) settled: Arc<Completion>,
    /// When this rank's call began.
    pub(super) since: Instant,
    /// The time of each rank's last message.
    pub(super) last_message: Vec<Option<Instant>>,
    /// The time since which connecting to a rank has failed.
    pub(super) unreachable: Vec<Option<Instant>>,
    /// A call of this rank makes the group of survivors, or has made it.
    pub(super) called: bool,
}

/// The stage of an agreement.
pub(crate) enum ShrinkStage {
    /// Messages of other ranks are awaited. Some of those ranks have no link.
    Waiting { unlinked: Vec<u32> },
    /// The survivors are decided: the identity of their group, their ranks, and whether all of them
    /// have voted yes.
    Decided { id: u64, survivors: Survivors },
}

/// The outcome of an attempt to connect.
pub(crate) enum DialOutcome {
    Linked,
    /// Nothing listens at the rank's address any more: its process has ended.
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
            last_message: vec![None; size],
            unreachable: vec![None; size],
            called: false,
        }
    }

    pub(super) fn rank_of(&self, endpoint: EndpointId) -> Option<u32> {
        let found = self.members.iter().position(|member| *member == endpoint);
        found.map(|rank| rank as u32)
    }

    /// Gives up awaited ranks that were silent for too long. A rank that has not called yet gets
    /// `patience`, unless its process does not answer. A rank that takes part or cannot be reached
    /// gets `peer_timeout`.
    pub(super) fn give_up_silent_ranks(
        &mut self,
        patience: Duration,
        peer_timeout: Duration,
        questions: &Questions,
    ) {
        for rank in self.agreement.awaited() {
            let [last_message, unreachable] =
                [&self.last_message, &self.unreachable].map(|times| times[rank as usize]);
            let too_long = match (last_message, unreachable) {
                (Some(last), _) => last.max(self.since).elapsed() >= peer_timeout,
                (None, Some(since)) => since.elapsed() >= peer_timeout,
                (None, None) => false,
            };
            let silent = || questions.is_silent(self.members[rank as usize], patience);
            let has_called = last_message.is_some();
            if too_long || (!has_called && (self.since.elapsed() >= patience || silent())) {
                self.agreement.give_up(rank);
            }
        }
    }
}
