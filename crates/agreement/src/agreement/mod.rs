//! One rank's part of the agreement on a group's survivors, without links and clocks.
//!
//! [Note: Agreement] The protocol is Paxos, run once for each group. Its value is the set of ranks
//! that form the next group, and whether all of these have voted yes on what their callers asked.
//! The lowest rank that is not given up leads, and all others send it `Join`. Once each rank has
//! joined, has ended or is given up, the leader asks all participants to follow a *ballot*
//! (`Prepare`), and they return what they accepted before (`Promise`). The leader then proposes the
//! ranks that answered, or the value that was accepted in the highest earlier ballot (`Accept`).
//! When a quorum has accepted, the value is decided. A rank that knows the decision answers every
//! message with it. A new leader takes a higher ballot, so that it finds a value that may have been
//! decided before.
//!
//! A *quorum* is more than half of the group's ranks (or half of them, with rank 0), or all ranks
//! that have not ended. The end of a rank is certain: its kernel has reported it. That a rank is
//! given up is a guess: it was silent for too long. So a part of a group that is cut off by the
//! network continues only if it is the larger one, but survivors of ended ranks always continue,
//! even if only one is left.
//!
//! Two quorums have a rank in common, or all ranks of one have ended. But messages of ended ranks
//! may still be in transit. So messages of ranks that are known to have ended are ignored, each
//! message lists the ranks that its sender knows to have ended, and an acceptance counts only with
//! that list. Then no two living ranks learn different decisions. The tests explore all
//! interleavings of small groups.

use std::collections::BTreeMap;

use crate::messages::{Ranks, ShrinkMessage, ShrinkStep, Survivors};

/// A ballot's number is its round, shifted by this, and the rank that leads it.
const ROUND_SHIFT: u32 = 32;

/// Messages to send, each with the rank that it is for.
pub type Outbox = Vec<(u32, ShrinkMessage)>;

/// One rank's part of the agreement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Agreement {
    rank: u32,
    size: u32,
    /// Whether this rank takes part. Otherwise it only receives.
    calling: bool,
    vote: bool,
    ended: Ranks,
    given_up: Ranks,
    /// Other ranks that take part.
    participants: Ranks,
    /// The highest ballot that this rank follows.
    promised: u64,
    accepted: Option<(u64, Survivors)>,
    decided: Option<Survivors>,
    ballot: Option<Ballot>,
    /// This rank was superseded, and lets the other leader go first.
    yields: bool,
    /// More ranks have ended than the last messages reported.
    has_unsent_ends: bool,
}

/// A ballot that this rank leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Ballot {
    number: u64,
    /// The ranks that follow it.
    promises: Ranks,
    /// Those of them that have voted no.
    noes: Ranks,
    /// The value that was accepted in the highest earlier ballot.
    earlier: Option<(u64, Survivors)>,
    /// The proposed value.
    proposal: Option<Survivors>,
    /// The ranks that have accepted it, each with the ended ranks that it knew of.
    acceptances: BTreeMap<u32, Ranks>,
}

impl Agreement {
    /// The initial state of a rank in a group of this size.
    pub fn new(rank: u32, size: u32) -> Self {
        Agreement {
            rank,
            size,
            calling: false,
            vote: false,
            ended: Ranks::new(),
            given_up: Ranks::new(),
            participants: Ranks::new(),
            promised: 0,
            accepted: None,
            decided: None,
            ballot: None,
            yields: false,
            has_unsent_ends: false,
        }
    }

    /// Begins this rank's part, with its vote.
    pub fn begin(&mut self, vote: bool) {
        self.calling = true;
        self.vote = vote;
    }

    /// Ends this rank's part. Its acceptances stay valid.
    pub fn withdraw(&mut self) {
        self.calling = false;
        self.ballot = None;
    }

    /// Whether this rank has sent anything that others may rely on.
    pub fn has_begun(&self) -> bool {
        self.calling || self.promised > 0
    }

    /// The survivors, once they are decided.
    pub fn decided(&self) -> Option<&Survivors> {
        self.decided.as_ref()
    }

    /// Records that a rank has ended for certain.
    pub fn note_ended(&mut self, rank: u32) {
        if rank != self.rank && self.ended.insert(rank) {
            self.has_unsent_ends = true;
        }
    }

    /// Gives up a rank that was silent for too long, until its next message.
    pub fn give_up(&mut self, rank: u32) {
        if rank != self.rank {
            self.given_up.insert(rank);
        }
    }

    /// The rank that leads, as far as this one knows.
    pub fn leader(&self) -> u32 {
        (0..self.size)
            .find(|rank| self.is_active(*rank))
            .unwrap_or(self.rank)
    }

    /// Whether a rank has neither ended nor been given up.
    fn is_active(&self, rank: u32) -> bool {
        rank == self.rank || !(self.ended.contains(&rank) || self.given_up.contains(&rank))
    }

    fn leads(&self) -> bool {
        self.calling && self.decided.is_none() && self.leader() == self.rank
    }

    /// The ranks that this one waits for.
    pub fn awaited(&self) -> Ranks {
        if !self.calling || self.decided.is_some() {
            return Ranks::new();
        }
        if !self.leads() {
            return Ranks::from([self.leader()]);
        }
        let answered = |rank: &u32| match &self.ballot {
            None => self.participants.contains(rank),
            Some(ballot) if ballot.proposal.is_none() => {
                ballot.promises.contains(rank) || !self.participants.contains(rank)
            }
            Some(ballot) => {
                ballot.acceptances.contains_key(rank) || !self.participants.contains(rank)
            }
        };
        let others = (0..self.size).filter(|rank| *rank != self.rank && self.is_active(*rank));
        others.filter(|rank| !answered(rank)).collect()
    }

    /// The ranks that neither take part nor are known to have ended.
    pub fn missing(&self) -> Vec<u32> {
        let knows = |rank: &u32| {
            *rank == self.rank
                || self.ended.contains(rank)
                || (self.participants.contains(rank) && !self.given_up.contains(rank))
        };
        (0..self.size).filter(|rank| !knows(rank)).collect()
    }

    /// Handles a message of another rank. Returns the messages to send.
    pub fn receive(&mut self, from: u32, message: &ShrinkMessage) -> Outbox {
        if from == self.rank || self.ended.contains(&from) || !message.is_among(self.size) {
            return Vec::new();
        }
        self.given_up.remove(&from);
        message.ended.iter().for_each(|rank| self.note_ended(*rank));
        if let (Some(survivors), false) = (
            &self.decided,
            matches!(message.step, ShrinkStep::Decided { .. }),
        ) {
            let survivors = survivors.clone();
            return vec![(from, self.message(ShrinkStep::Decided { survivors }))];
        }
        let mut messages = Vec::new();
        if let Some(answer) = self.answer(from, message) {
            messages.push((from, self.message(answer)));
        }
        messages.extend(self.advance());
        messages
    }

    fn answer(&mut self, from: u32, message: &ShrinkMessage) -> Option<ShrinkStep> {
        match &message.step {
            ShrinkStep::Join => {
                self.participants.insert(from);
                self.calling.then_some(ShrinkStep::Acknowledge)
            }
            ShrinkStep::Acknowledge => {
                self.participants.insert(from);
                None
            }
            ShrinkStep::Gone => {
                self.note_ended(from);
                None
            }
            ShrinkStep::Prepare { ballot } => {
                self.participants.insert(from);
                self.follow(*ballot, |this| ShrinkStep::Promise {
                    ballot: *ballot,
                    vote: this.vote,
                    accepted: this.accepted.clone(),
                })
            }
            ShrinkStep::Accept { ballot, survivors } => {
                self.participants.insert(from);
                self.follow(*ballot, |this| {
                    this.accepted = Some((*ballot, survivors.clone()));
                    ShrinkStep::Accepted { ballot: *ballot }
                })
            }
            ShrinkStep::Promise {
                ballot,
                vote,
                accepted,
            } => {
                self.participants.insert(from);
                if let Some(mine) = self.ballot_numbered(*ballot)
                    && mine.proposal.is_none()
                {
                    mine.promises.insert(from);
                    if !vote {
                        mine.noes.insert(from);
                    }
                    // Tuples compare by ballot first.
                    mine.earlier = mine.earlier.take().max(accepted.clone());
                }
                None
            }
            ShrinkStep::Accepted { ballot } => {
                if let Some(mine) = self.ballot_numbered(*ballot) {
                    mine.acceptances.insert(from, message.ended.clone());
                }
                None
            }
            ShrinkStep::Superseded { ballot } => {
                if self
                    .ballot
                    .as_ref()
                    .is_some_and(|mine| mine.number < *ballot)
                {
                    self.promised = self.promised.max(*ballot);
                    self.ballot = None;
                    self.yields = true;
                }
                None
            }
            ShrinkStep::Decided { survivors } => {
                self.decide(survivors.clone());
                None
            }
        }
    }

    fn ballot_numbered(&mut self, number: u64) -> Option<&mut Ballot> {
        self.ballot.as_mut().filter(|mine| mine.number == number)
    }

    /// Follows a ballot, unless this rank follows a higher one.
    fn follow(
        &mut self,
        ballot: u64,
        yes: impl FnOnce(&mut Self) -> ShrinkStep,
    ) -> Option<ShrinkStep> {
        if !self.calling {
            return None;
        }
        if ballot < self.promised {
            return Some(ShrinkStep::Superseded {
                ballot: self.promised,
            });
        }
        self.promised = ballot;
        if self
            .ballot
            .as_ref()
            .is_some_and(|mine| mine.number < ballot)
        {
            self.ballot = None;
            self.yields = true;
        }
        Some(yes(self))
    }

    /// Repeats unanswered messages, which may be lost with their links; call it periodically. Lets
    /// a superseded rank lead again.
    pub fn repeat(&mut self) -> Outbox {
        self.yields = false;
        let mut messages = self.advance();
        if messages.is_empty() {
            messages = self.pending();
        }
        messages
    }

    /// Advances as far as possible. Returns the messages to send.
    pub fn advance(&mut self) -> Outbox {
        let mut messages = Vec::new();
        if !self.leads() {
            self.ballot = None;
        } else if self.ballot.is_none() {
            messages.extend(self.open_ballot());
        }
        messages.extend(self.propose());
        messages.extend(self.conclude());
        if std::mem::take(&mut self.has_unsent_ends) && messages.is_empty() {
            messages = self.pending();
        }
        messages
    }

    /// Begins a ballot once each rank takes part, has ended or is given up, and a quorum takes
    /// part.
    fn open_ballot(&mut self) -> Outbox {
        let mut present: Ranks = self.present().collect();
        present.insert(self.rank);
        let all = (0..self.size).all(|rank| present.contains(&rank) || !self.is_active(rank));
        if self.yields || !all || !self.is_quorum(&present, &self.ended) {
            return Vec::new();
        }
        let number = ((self.promised >> ROUND_SHIFT) + 1) << ROUND_SHIFT | u64::from(self.rank);
        self.promised = number;
        self.ballot = Some(Ballot {
            number,
            promises: Ranks::from([self.rank]),
            noes: (!self.vote).then_some(self.rank).into_iter().collect(),
            earlier: self.accepted.clone(),
            proposal: None,
            acceptances: BTreeMap::new(),
        });
        self.pending()
    }

    /// Proposes the survivors, once all participants follow the ballot.
    fn propose(&mut self) -> Outbox {
        let Some(ballot) = &self.ballot else {
            return Vec::new();
        };
        if ballot.proposal.is_some()
            || self.present().any(|rank| !ballot.promises.contains(&rank))
            || !self.is_quorum(&ballot.promises, &self.ended)
        {
            return Vec::new();
        }
        let survivors = match &ballot.earlier {
            Some((_, accepted)) => accepted.clone(),
            None => {
                let living = ballot.promises.difference(&self.ended);
                let members: Ranks = living.copied().collect();
                let unanimous = members.is_disjoint(&ballot.noes);
                Survivors { members, unanimous }
            }
        };
        let (number, ended) = (ballot.number, self.ended.clone());
        self.accepted = Some((number, survivors.clone()));
        if let Some(ballot) = &mut self.ballot {
            ballot.proposal = Some(survivors);
            ballot.acceptances.insert(self.rank, ended);
        }
        self.pending()
    }

    /// Decides, once a quorum has accepted.
    fn conclude(&mut self) -> Outbox {
        let Some(Ballot {
            proposal: Some(survivors),
            acceptances,
            ..
        }) = &mut self.ballot
        else {
            return Vec::new();
        };
        acceptances.insert(self.rank, self.ended.clone());
        let accepted: Ranks = acceptances.keys().copied().collect();
        // Only ends that every living rank that accepted knew of.
        let mut ended = self.ended.clone();
        for (rank, known) in acceptances {
            if !self.ended.contains(rank) {
                ended.retain(|rank| known.contains(rank));
            }
        }
        let survivors = survivors.clone();
        if !self.is_quorum(&accepted, &ended) {
            return Vec::new();
        }
        self.decide(survivors.clone());
        let receivers: Ranks = self
            .participants
            .union(&survivors.members)
            .copied()
            .collect();
        let receivers = receivers.difference(&self.ended).copied();
        let receivers: Vec<u32> = receivers.filter(|rank| *rank != self.rank).collect();
        let message = self.message(ShrinkStep::Decided { survivors });
        receivers
            .into_iter()
            .map(|to| (to, message.clone()))
            .collect()
    }

    fn decide(&mut self, survivors: Survivors) {
        if self.decided.is_none() {
            self.decided = Some(survivors);
            self.ballot = None;
        }
    }

    /// Messages to other ranks that are not answered yet.
    fn pending(&self) -> Outbox {
        if !self.calling || self.decided.is_some() {
            return Vec::new();
        }
        if !self.leads() {
            return vec![(self.leader(), self.message(ShrinkStep::Join))];
        }
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        let living = others.filter(|rank| !self.ended.contains(rank));
        let messages = living.filter_map(|rank| {
            // A rank with another leader learns that this leader has ended. A rank that was given
            // up may answer again, or know the decision.
            let step = match self.participants.contains(&rank) && self.is_active(rank) {
                true => self.request(rank)?,
                false => ShrinkStep::Acknowledge,
            };
            Some((rank, self.message(step)))
        });
        messages.collect()
    }

    /// The request of the current ballot that a participant has not answered.
    fn request(&self, rank: u32) -> Option<ShrinkStep> {
        let Ballot {
            number: ballot,
            promises,
            proposal,
            acceptances,
            ..
        } = self.ballot.as_ref()?;
        let ballot = *ballot;
        let Some(survivors) = proposal.clone() else {
            return (!promises.contains(&rank)).then_some(ShrinkStep::Prepare { ballot });
        };
        let known = acceptances.get(&rank);
        let knows = known.is_some_and(|known| known.is_superset(&self.ended));
        (!knows).then_some(ShrinkStep::Accept { ballot, survivors })
    }

    /// The other ranks that take part and are neither ended nor given up.
    fn present(&self) -> impl Iterator<Item = u32> {
        self.participants
            .iter()
            .copied()
            .filter(|rank| self.is_active(*rank))
    }

    /// Whether `ranks` are a quorum. See [Note: Agreement].
    fn is_quorum(&self, ranks: &Ranks, ended: &Ranks) -> bool {
        let (count, size) = (2 * ranks.len(), self.size as usize);
        let greater = count > size || (count == size && ranks.contains(&0));
        greater || (0..self.size).all(|rank| ranks.contains(&rank) || ended.contains(&rank))
    }

    fn message(&self, step: ShrinkStep) -> ShrinkMessage {
        ShrinkMessage {
            ended: self.ended.clone(),
            step,
        }
    }
}

#[cfg(test)]
mod tests;
