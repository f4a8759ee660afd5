//! Groups that shrink: the agreement on who is left, over links and by the clock.
//!
//! What this rank has said stays after the group is closed here, since others may still ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_agreement::{Agreement, Ranks, ShrinkStep, ShrinkWord, Words};
use weft_call::{Completion, Finished, mix};
use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::shrink_state::{Dial, ShrinkStage, Shrinking};
use super::state::ProgressState;
use crate::Error;

/// Tells the identities of groups of survivors from those of others.
const SURVIVORS: u64 = 0x73_75_72_76;

impl ProgressState {
    /// Whether somebody here shrinks a group, or has done so.
    pub(crate) fn is_shrunk(&self, id: u64) -> bool {
        let shrinking = self.shrinks.get(&id);
        shrinking.is_some_and(|shrinking| shrinking.taken)
    }

    /// This rank takes part in shrinking a group from now on. `None` if the group is closed.
    pub(crate) fn begin_shrink(
        &mut self,
        id: u64,
        finished: &mut Finished,
    ) -> Option<Arc<Completion>> {
        let shrinking = self.shrinking(id)?;
        shrinking.taken = true;
        shrinking.since = Instant::now();
        shrinking.agreement.begin();
        let settled = shrinking.settled.clone();
        self.go_on_shrinking(id, Agreement::advance, finished);
        Some(settled)
    }

    /// This rank's call has failed.
    pub(crate) fn withdraw_from_shrink(&mut self, id: u64, finished: &mut Finished) {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return;
        };
        shrinking.agreement.withdraw();
        shrinking.taken = false;
        if let Some(members) = shrinking.agreement.decided().cloned() {
            self.refuse_abandoned(id, &members, finished);
        }
    }

    /// Says again what may have been lost, gives up who is silent for too long, and tells how far
    /// the agreement is. `None` if the group is closed.
    pub(crate) fn shrink_stage(
        &mut self,
        id: u64,
        patience: Duration,
        finished: &mut Finished,
    ) -> Option<ShrinkStage> {
        let peer_timeout = self.endpoint.peer_timeout();
        self.look_for_ends(finished);
        self.groups.get(&id).filter(|group| !group.closed)?;
        let shrinking = self.shrinks.get_mut(&id)?;
        for (rank, member) in (0..).zip(&shrinking.members) {
            if self.known_dead.contains_key(member) {
                shrinking.agreement.note_ended(rank);
            }
        }
        shrinking.give_up_silent_ranks(patience, peer_timeout);
        let addressed = self.go_on_shrinking(id, Agreement::repeat, finished);
        let shrinking = self.shrinks.get(&id)?;
        Some(match shrinking.agreement.decided() {
            Some(members) => ShrinkStage::Decided {
                id: survivors_id(id, members),
                members: members.clone(),
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

    /// The ranks that hold an agreement up: neither here nor known to have ended.
    pub(crate) fn missing_from_shrink(&self, id: u64) -> Vec<u32> {
        let shrinking = self.shrinks.get(&id);
        shrinking.map_or_else(Vec::new, |shrinking| shrinking.agreement.missing())
    }

    /// Takes note of what came of an attempt to make a link to a rank.
    pub(crate) fn note_dial(&mut self, id: u64, rank: u32, dial: &Dial, finished: &mut Finished) {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return;
        };
        let unreachable = &mut shrinking.unreachable[rank as usize];
        match dial {
            Dial::Linked => *unreachable = None,
            Dial::Absent => shrinking.agreement.note_ended(rank),
            Dial::Failed => {
                unreachable.get_or_insert_with(Instant::now);
            }
        }
        self.go_on_shrinking(id, Agreement::repeat, finished);
    }

    /// Takes in a word of another rank. Who is asked about a group that it has closed before, says
    /// that it takes no part.
    pub(super) fn hear_shrink(
        &mut self,
        id: u64,
        from: EndpointId,
        word: &ShrinkWord,
        finished: &mut Finished,
    ) {
        let begun = |shrinking: &Shrinking| shrinking.agreement.has_begun();
        let closed = match self.groups.get(&id) {
            Some(group) => group.closed,
            None => self.closed.contains(&id),
        };
        if closed && !self.shrinks.get(&id).is_some_and(begun) {
            return self.say_gone(id, from, word);
        }
        let Some(shrinking) = self.shrinking(id) else {
            // Not made yet: it is said again.
            return;
        };
        let Some(rank) = shrinking.rank_of(from) else {
            return;
        };
        shrinking.heard[rank as usize] = Some(Instant::now());
        self.go_on_shrinking(id, |agreement| agreement.hear(rank, word), finished);
    }

    fn say_gone(&mut self, id: u64, to: EndpointId, word: &ShrinkWord) {
        self.shrinks.remove(&id);
        let told = matches!(word.what, ShrinkStep::Gone | ShrinkStep::Decided { .. });
        if let (false, Some(link)) = (told, self.any_link_to(to)) {
            let word = ShrinkWord {
                ended: Ranks::new(),
                what: ShrinkStep::Gone,
            };
            // A link that fails is noticed when it is read.
            let _ = link.message(&ControlMessage::Shrink { group: id, word }.encode());
        }
    }

    /// A process has ended, as is proven.
    pub(super) fn tell_shrinking_groups(&mut self, peer: EndpointId, finished: &mut Finished) {
        let groups = self.shrinks.iter();
        let concerned: Vec<(u64, u32)> = groups
            .filter_map(|(id, shrinking)| Some((*id, shrinking.rank_of(peer)?)))
            .collect();
        for (id, rank) in concerned {
            let note = |agreement: &mut Agreement| {
                agreement.note_ended(rank);
                agreement.advance()
            };
            self.go_on_shrinking(id, note, finished);
        }
    }

    /// The state of a group that shrinks, from the first word on.
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

    /// Changes this rank's part of an agreement, and says what follows. Returns to whom.
    fn go_on_shrinking(
        &mut self,
        id: u64,
        change: impl FnOnce(&mut Agreement) -> Words,
        finished: &mut Finished,
    ) -> Ranks {
        let Some(shrinking) = self.shrinks.get_mut(&id) else {
            return Ranks::new();
        };
        let words = change(&mut shrinking.agreement);
        let decided = shrinking.agreement.decided().cloned();
        let shrinking = &self.shrinks[&id];
        let mut addressed = Ranks::new();
        for (rank, word) in words {
            addressed.insert(rank);
            if let Some(link) = self.any_link_to(shrinking.members[rank as usize]) {
                // A link that fails is noticed when it is read.
                let _ = link.message(&ControlMessage::Shrink { group: id, word }.encode());
            }
        }
        if let Some(members) = decided {
            finished.push((shrinking.settled.clone(), Ok(())));
            self.refuse_abandoned(id, &members, finished);
        }
        addressed
    }

    /// The others count on this rank, whose call has failed before it was decided: ends the group
    /// that they make.
    fn refuse_abandoned(&mut self, id: u64, members: &Ranks, finished: &mut Finished) {
        let shrinking = &self.shrinks[&id];
        let rank = shrinking.rank_of(self.endpoint.id());
        let counted_on = rank.is_some_and(|rank| members.contains(&rank));
        if counted_on && !shrinking.taken {
            let rank = rank.unwrap_or_default();
            let reason = format!("rank {rank} of the former group has given up its call of shrink");
            self.call_off(
                survivors_id(id, members),
                &Error::Aborted { reason },
                finished,
            );
        }
    }
}

/// The identity of the group of survivors: the same on all of them, and unlike any other's.
fn survivors_id(group: u64, members: &Ranks) -> u64 {
    let ranks = members.iter().map(|rank| u64::from(*rank) << 8);
    mix(ranks.fold(mix(group, SURVIVORS), mix), members.len() as u64)
}
