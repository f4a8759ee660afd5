//! Shrinking of groups: the agreement on the survivors, with its links and timeouts.
//!
//! The state of an agreement outlives its group here, since other ranks may still ask about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_agreement::{Agreement, Outbox, Ranks, ShrinkMessage, ShrinkStep, Survivors};
use weft_call::{Completion, Finished, mix};
use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::shrink_state::{DialOutcome, ShrinkStage, Shrinking};
use super::state::ProgressState;
use crate::Error;

/// Distinguishes the identities of groups of survivors from those of other groups.
const SURVIVORS: u64 = 0x73_75_72_76;

impl ProgressState {
    /// Whether a call of this rank shrinks a group, or has done so.
    pub(crate) fn is_shrunk(&self, id: u64) -> bool {
        let shrinking = self.shrinks.get(&id);
        shrinking.is_some_and(|shrinking| shrinking.called)
    }

    /// Begins this rank's part in shrinking a group. `None` if the group is closed.
    pub(crate) fn begin_shrink(
        &mut self,
        id: u64,
        vote: bool,
        finished: &mut Finished,
    ) -> Option<Arc<Completion>> {
        let shrinking = self.shrinking(id)?;
        shrinking.called = true;
        shrinking.since = Instant::now();
        shrinking.agreement.begin(vote);
        let settled = shrinking.settled.clone();
        self.update_agreement(id, Agreement::advance, finished);
        Some(settled)
    }

    /// Ends this rank's part, as its call has failed.
    pub(crate) fn withdraw_from_shrink(&mut self, id: u64, finished: &mut Finished) {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return;
        };
        shrinking.agreement.withdraw();
        shrinking.called = false;
        if let Some(Survivors { members, .. }) = shrinking.agreement.decided().cloned() {
            self.refuse_abandoned(id, &members, finished);
        }
    }

    /// Repeats messages that may be lost, gives up ranks that were silent for too long, and returns
    /// the stage of the agreement. `None` if the group is closed.
    pub(crate) fn shrink_stage(
        &mut self,
        id: u64,
        patience: Duration,
        finished: &mut Finished,
    ) -> Option<ShrinkStage> {
        let peer_timeout = self.endpoint.peer_timeout();
        self.detect_process_ends(finished);
        self.groups.get(&id).filter(|group| !group.closed)?;
        let shrinking = self.shrinks.get_mut(&id)?;
        for (rank, member) in (0..).zip(&shrinking.members) {
            if self.ended_processes.contains_key(member) {
                shrinking.agreement.note_ended(rank);
            }
        }
        shrinking.give_up_silent_ranks(patience, peer_timeout, &self.questions);
        let addressed = self.update_agreement(id, Agreement::repeat, finished);
        self.ask_awaited_ranks(id, patience);
        let shrinking = self.shrinks.get(&id)?;
        Some(match shrinking.agreement.decided() {
            Some(survivors) => ShrinkStage::Decided {
                id: survivors_id(id, &survivors.members),
                survivors: survivors.clone(),
            },
            None => {
                let awaited: Ranks = shrinking.agreement.awaited();
                let peers = awaited.union(&addressed).copied();
                let unlinked = |rank: &u32| {
                    let member = shrinking.members[*rank as usize];
                    self.any_link_to(member).is_none()
                };
                ShrinkStage::Waiting {
                    unlinked: peers.filter(unlinked).collect(),
                }
            }
        })
    }

    /// Asks the ranks that an agreement waits for whether their processes run.
    fn ask_awaited_ranks(&mut self, id: u64, patience: Duration) {
        let Some(shrinking) = self.shrinks.get(&id) else {
            return;
        };
        let awaited = shrinking.agreement.awaited();
        let peers: Vec<EndpointId> = awaited
            .into_iter()
            .map(|rank| shrinking.members[rank as usize])
            .collect();
        for peer in peers {
            self.ask(id, peer, patience / 2, Instant::now());
        }
    }

    /// The ranks that delay an agreement: they take no part, and are not known to have ended.
    pub(crate) fn missing_from_shrink(&self, id: u64) -> Vec<u32> {
        let shrinking = self.shrinks.get(&id);
        shrinking.map_or_else(Vec::new, |shrinking| shrinking.agreement.missing())
    }

    /// Records the outcome of an attempt to connect to a rank.
    pub(crate) fn note_dial(
        &mut self,
        id: u64,
        rank: u32,
        dial: &DialOutcome,
        finished: &mut Finished,
    ) {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return;
        };
        let unreachable = &mut shrinking.unreachable[rank as usize];
        match dial {
            DialOutcome::Linked => *unreachable = None,
            DialOutcome::Absent => shrinking.agreement.note_ended(rank),
            DialOutcome::Failed => {
                unreachable.get_or_insert_with(Instant::now);
            }
        }
        self.update_agreement(id, Agreement::repeat, finished);
    }

    /// Handles a message of the agreement. If this rank has closed the group before, it answers
    /// that it takes no part.
    pub(super) fn on_shrink_message(
        &mut self,
        id: u64,
        from: EndpointId,
        message: &ShrinkMessage,
        finished: &mut Finished,
    ) {
        let begun = |shrinking: &Shrinking| shrinking.agreement.has_begun();
        let closed = match self.groups.get(&id) {
            Some(group) => group.closed,
            None => self.closed.contains(&id),
        };
        if closed && !self.shrinks.get(&id).is_some_and(begun) {
            return self.reply_gone(id, from, message);
        }
        let Some(shrinking) = self.shrinking(id) else {
            // The group is not made yet here: the sender repeats the message.
            return;
        };
        let Some(rank) = shrinking.rank_of(from) else {
            return;
        };
        shrinking.last_message[rank as usize] = Some(Instant::now());
        self.update_agreement(id, |agreement| agreement.receive(rank, message), finished);
    }

    fn reply_gone(&mut self, id: u64, to: EndpointId, message: &ShrinkMessage) {
        self.shrinks.remove(&id);
        let final_message = matches!(message.step, ShrinkStep::Gone | ShrinkStep::Decided { .. });
        if let (false, Some(link)) = (final_message, self.any_link_to(to)) {
            let word = ShrinkMessage {
                ended: Ranks::new(),
                step: ShrinkStep::Gone,
            };
            // A broken link is detected when it is read.
            let _ = link.message(&ControlMessage::Shrink { group: id, word }.encode());
        }
    }

    /// Reports the end of a process to the agreements that it is a member of.
    pub(super) fn notify_shrinking_groups(&mut self, peer: EndpointId, finished: &mut Finished) {
        let groups = self.shrinks.iter();
        let affected: Vec<(u64, u32)> = groups
            .filter_map(|(id, shrinking)| Some((*id, shrinking.rank_of(peer)?)))
            .collect();
        for (id, rank) in affected {
            let note = |agreement: &mut Agreement| {
                agreement.note_ended(rank);
                agreement.advance()
            };
            self.update_agreement(id, note, finished);
        }
    }

    /// The state of an agreement, created on first use.
    fn shrinking(&mut self, id: u64) -> Option<&mut Shrinking> {
        if !self.shrinks.contains_key(&id) {
            let connections = &self.groups.get(&id)?.connections;
            let members = connections.meeting.members.iter();
            let members = members.map(|member| member.address.id).collect();
            let shrinking = Shrinking::new(connections.rank, members);
            self.shrinks.insert(id, shrinking);
        }
        self.shrinks.get_mut(&id)
    }

    /// Changes this rank's part of an agreement, and sends the resulting messages. Returns the
    /// ranks that they are for.
    fn update_agreement(
        &mut self,
        id: u64,
        change: impl FnOnce(&mut Agreement) -> Outbox,
        finished: &mut Finished,
    ) -> Ranks {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return Ranks::new();
        };
        let messages = change(&mut shrinking.agreement);
        let decided = shrinking.agreement.decided().cloned();
        let shrinking = &self.shrinks[&id];
        let mut addressed = Ranks::new();
        for (rank, word) in messages {
            addressed.insert(rank);
            if let Some(link) = self.any_link_to(shrinking.members[rank as usize]) {
                // A broken link is detected when it is read.
                let _ = link.message(&ControlMessage::Shrink { group: id, word }.encode());
            }
        }
        if let Some(Survivors { members, .. }) = decided {
            finished.push((shrinking.settled.clone(), Ok(())));
            self.refuse_abandoned(id, &members, finished);
        }
        addressed
    }

    /// If the decided survivors include this rank although its call has failed, ends the group that
    /// the others make.
    fn refuse_abandoned(&mut self, id: u64, members: &Ranks, finished: &mut Finished) {
        let shrinking = &self.shrinks[&id];
        let rank = shrinking.rank_of(self.endpoint.id());
        let included = rank.is_some_and(|rank| members.contains(&rank));
        if included && !shrinking.called {
            let rank = rank.unwrap_or_default();
            let reason = format!(
                "rank {rank} of the former group has ended its call of shrink with an error"
            );
            self.cancel_group(
                survivors_id(id, members),
                &Error::Aborted { reason },
                finished,
            );
        }
    }
}

/// The identity of the group of survivors: the same on all of them, and different from others.
fn survivors_id(group: u64, members: &Ranks) -> u64 {
    let ranks = members.iter().map(|rank| u64::from(*rank) << 8);
    mix(ranks.fold(mix(group, SURVIVORS), mix), members.len() as u64)
}
