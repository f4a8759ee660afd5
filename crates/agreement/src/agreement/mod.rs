//! The agreement of a group's surviving ranks on who of them goes on: one rank's part of it,
//! without links and clocks.
//!
//! [Note: Agreement] It is Paxos, decided once for each group, with the set of ranks that go on as
//! the value. The lowest rank that is not given up leads; everybody else tells it to be here. Once
//! each rank is here, has ended or is given up, the leader asks all that are here to follow a
//! *ballot*, and to tell what they have accepted before. It then has them accept those that
//! answered, or what was accepted in the highest ballot before; with enough acceptances that is
//! decided. Who knows the decision answers everything with it. A rank that leads anew takes a
//! higher ballot, so that it finds what may have been decided.
//!
//! *Enough* are either more than half of the group's ranks (or half of them, with rank 0), or all
//! that have not ended. That a rank has ended is a proof: its kernel has said so. That it is given
//! up is a guess: it was silent for too long. So a part of a group that is cut off goes on only if
//! it is the greater one, while survivors of proven deaths go on however few they are.
//!
//! Two such sets of ranks have one in common, or all of one have ended: but what those have sent
//! may still be under way. So words of ranks that have ended are ignored, all words tell who has
//! ended, and an acceptance counts with what its sender knew of that. Nobody who lives then ever
//! learns of two decisions. The tests let all interleavings of small groups happen.

use std::collections::BTreeMap;

use crate::words::{Ranks, ShrinkStep, ShrinkWord};

/// Above the rank that leads it, a ballot has its round.
const ROUND_SHIFT: u32 = 32;

/// Words, and to whom.
pub type Words = Vec<(u32, ShrinkWord)>;

/// One rank's part of the agreement.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Agreement {
    rank: u32,
    size: u32,
    /// This rank takes part now. Otherwise it only listens.
    calling: bool,
    ended: Ranks,
    given_up: Ranks,
    /// Other ranks that have taken part.
    here: Ranks,
    /// The highest ballot that this rank follows.
    promised: u64,
    accepted: Option<(u64, Ranks)>,
    decided: Option<Ranks>,
    ballot: Option<Ballot>,
    /// This rank was superseded, and lets the other go first.
    yields: bool,
    /// More ranks have ended than was told with the last words.
    has_news: bool,
}

/// A ballot that this rank leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Ballot {
    number: u64,
    /// Who follows it.
    promises: Ranks,
    /// What was accepted in the highest ballot before.
    earlier: Option<(u64, Ranks)>,
    /// What is to be accepted.
    proposal: Option<Ranks>,
    /// Who has accepted it, and whom each knew to have ended.
    acceptances: BTreeMap<u32, Ranks>,
}

impl Agreement {
    /// The part of a rank in a group of this size, before any message.
    pub fn new(rank: u32, size: u32) -> Self {
        Agreement {
            rank,
            size,
            calling: false,
            ended: Ranks::new(),
            given_up: Ranks::new(),
            here: Ranks::new(),
            promised: 0,
            accepted: None,
            decided: None,
            ballot: None,
            yields: false,
            has_news: false,
        }
    }

    /// This rank takes part from now on.
    pub fn begin(&mut self) {
        self.calling = true;
    }

    /// This rank does not take part any more. What it has accepted stays so.
    pub fn withdraw(&mut self) {
        self.calling = false;
        self.ballot = None;
    }

    /// Whether this rank has said anything that others may count on.
    pub fn has_begun(&self) -> bool {
        self.calling || self.promised > 0
    }

    /// Who goes on, once that is settled.
    pub fn decided(&self) -> Option<&Ranks> {
        self.decided.as_ref()
    }

    /// A rank has ended, as is proven.
    pub fn note_ended(&mut self, rank: u32) {
        if rank != self.rank && self.ended.insert(rank) {
            self.has_news = true;
        }
    }

    /// A rank was silent for too long. It counts again as soon as it says something.
    pub fn give_up(&mut self, rank: u32) {
        if rank != self.rank {
            self.given_up.insert(rank);
        }
    }

    /// The rank that leads, as far as this one knows.
    pub fn leader(&self) -> u32 {
        (0..self.size)
            .find(|rank| self.counts(*rank))
            .unwrap_or(self.rank)
    }

    /// Whether a rank has neither ended nor been given up.
    fn counts(&self, rank: u32) -> bool {
        rank == self.rank || !(self.ended.contains(&rank) || self.given_up.contains(&rank))
    }

    fn leads(&self) -> bool {
        self.calling && self.decided.is_none() && self.leader() == self.rank
    }

    /// The ranks that this one waits for a word from.
    pub fn awaited(&self) -> Ranks {
        if !self.calling || self.decided.is_some() {
            return Ranks::new();
        }
        if !self.leads() {
            return Ranks::from([self.leader()]);
        }
        let answered = |rank: &u32| match &self.ballot {
            None => self.here.contains(rank),
            Some(ballot) if ballot.proposal.is_none() => {
                ballot.promises.contains(rank) || !self.here.contains(rank)
            }
            Some(ballot) => ballot.acceptances.contains_key(rank) || !self.here.contains(rank),
        };
        let others = (0..self.size).filter(|rank| *rank != self.rank && self.counts(*rank));
        others.filter(|rank| !answered(rank)).collect()
    }

    /// The ranks that are neither here nor known to have ended.
    pub fn missing(&self) -> Vec<u32> {
        let knows = |rank: &u32| {
            *rank == self.rank
                || self.ended.contains(rank)
                || (self.here.contains(rank) && !self.given_up.contains(rank))
        };
        (0..self.size).filter(|rank| !knows(rank)).collect()
    }

    /// Takes in what another rank says. Returns what to say to that.
    pub fn hear(&mut self, from: u32, word: &ShrinkWord) -> Words {
        if from == self.rank || self.ended.contains(&from) || !word.is_among(self.size) {
            return Vec::new();
        }
        self.given_up.remove(&from);
        word.ended.iter().for_each(|rank| self.note_ended(*rank));
        if let (Some(members), false) = (
            &self.decided,
            matches!(word.what, ShrinkStep::Decided { .. }),
        ) {
            let members = members.clone();
            return vec![(from, self.word(ShrinkStep::Decided { members }))];
        }
        let mut words = Vec::new();
        if let Some(answer) = self.answer(from, word) {
            words.push((from, self.word(answer)));
        }
        words.extend(self.advance());
        words
    }

    fn answer(&mut self, from: u32, word: &ShrinkWord) -> Option<ShrinkStep> {
        match &word.what {
            ShrinkStep::Here => {
                self.here.insert(from);
                self.calling.then_some(ShrinkStep::Heard)
            }
            ShrinkStep::Heard => {
                self.here.insert(from);
                None
            }
            ShrinkStep::Gone => {
                self.note_ended(from);
                None
            }
            ShrinkStep::Prepare { ballot } => {
                self.here.insert(from);
                self.follow(*ballot, |this| ShrinkStep::Promise {
                    ballot: *ballot,
                    accepted: this.accepted.clone(),
                })
            }
            ShrinkStep::Accept { ballot, members } => {
                self.here.insert(from);
                self.follow(*ballot, |this| {
                    this.accepted = Some((*ballot, members.clone()));
                    ShrinkStep::Accepted { ballot: *ballot }
                })
            }
            ShrinkStep::Promise { ballot, accepted } => {
                self.here.insert(from);
                if let Some(mine) = self.ballot_numbered(*ballot)
                    && mine.proposal.is_none()
                {
                    mine.promises.insert(from);
                    // Ordered by their ballots first.
                    mine.earlier = mine.earlier.take().max(accepted.clone());
                }
                None
            }
            ShrinkStep::Accepted { ballot } => {
                if let Some(mine) = self.ballot_numbered(*ballot) {
                    mine.acceptances.insert(from, word.ended.clone());
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
            ShrinkStep::Decided { members } => {
                self.settle(members.clone());
                None
            }
        }
    }

    fn ballot_numbered(&mut self, number: u64) -> Option<&mut Ballot> {
        self.ballot.as_mut().filter(|mine| mine.number == number)
    }

    /// Follows a ballot, unless it follows a higher one.
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

    /// What has to be said again, now and then: words may be lost with their links. Lets a rank
    /// lead that was superseded before.
    pub fn repeat(&mut self) -> Words {
        self.yields = false;
        let mut words = self.advance();
        if words.is_empty() {
            words = self.pending();
        }
        words
    }

    /// Goes on as far as it can.
    pub fn advance(&mut self) -> Words {
        let mut words = Vec::new();
        if !self.leads() {
            self.ballot = None;
        } else if self.ballot.is_none() {
            words.extend(self.open_ballot());
        }
        words.extend(self.propose());
        words.extend(self.conclude());
        if std::mem::take(&mut self.has_news) && words.is_empty() {
            words = self.pending();
        }
        words
    }

    /// Begins a ballot once each rank is here, has ended or is given up, and those are enough.
    fn open_ballot(&mut self) -> Words {
        let mut present: Ranks = self.present().collect();
        present.insert(self.rank);
        let all = (0..self.size).all(|rank| present.contains(&rank) || !self.counts(rank));
        if self.yields || !all || !self.are_enough(&present, &self.ended) {
            return Vec::new();
        }
        let number = ((self.promised >> ROUND_SHIFT) + 1) << ROUND_SHIFT | u64::from(self.rank);
        self.promised = number;
        self.ballot = Some(Ballot {
            number,
            promises: Ranks::from([self.rank]),
            earlier: self.accepted.clone(),
            proposal: None,
            acceptances: BTreeMap::new(),
        });
        self.pending()
    }

    /// Proposes who goes on, once all that are here follow the ballot.
    fn propose(&mut self) -> Words {
        let Some(ballot) = &self.ballot else {
            return Vec::new();
        };
        if ballot.proposal.is_some()
            || self.present().any(|rank| !ballot.promises.contains(&rank))
            || !self.are_enough(&ballot.promises, &self.ended)
        {
            return Vec::new();
        }
        let living = ballot.promises.difference(&self.ended).copied().collect();
        let members = ballot
            .earlier
            .clone()
            .map_or(living, |(_, members)| members);
        let (number, ended) = (ballot.number, self.ended.clone());
        self.accepted = Some((number, members.clone()));
        if let Some(ballot) = &mut self.ballot {
            ballot.proposal = Some(members);
            ballot.acceptances.insert(self.rank, ended);
        }
        self.pending()
    }

    /// Settles it, once enough have accepted.
    fn conclude(&mut self) -> Words {
        let Some(Ballot {
            proposal: Some(members),
            acceptances,
            ..
        }) = &mut self.ballot
        else {
            return Vec::new();
        };
        acceptances.insert(self.rank, self.ended.clone());
        let accepted: Ranks = acceptances.keys().copied().collect();
        // Who has ended, as all know that accepted and live.
        let mut ended = self.ended.clone();
        for (rank, known) in acceptances {
            if !self.ended.contains(rank) {
                ended.retain(|rank| known.contains(rank));
            }
        }
        let members = members.clone();
        if !self.are_enough(&accepted, &ended) {
            return Vec::new();
        }
        self.settle(members.clone());
        let concerned: Ranks = self.here.union(&members).copied().collect();
        let concerned = concerned.difference(&self.ended).copied();
        let concerned: Vec<u32> = concerned.filter(|rank| *rank != self.rank).collect();
        let word = self.word(ShrinkStep::Decided { members });
        concerned.into_iter().map(|to| (to, word.clone())).collect()
    }

    fn settle(&mut self, members: Ranks) {
        if self.decided.is_none() {
            self.decided = Some(members);
            self.ballot = None;
        }
    }

    /// What others have been told and not answered yet.
    fn pending(&self) -> Words {
        if !self.calling || self.decided.is_some() {
            return Vec::new();
        }
        if !self.leads() {
            return vec![(self.leader(), self.word(ShrinkStep::Here))];
        }
        let others = (0..self.size).filter(|rank| *rank != self.rank);
        let living = others.filter(|rank| !self.ended.contains(rank));
        let words = living.filter_map(|rank| {
            // Who takes another for the leader learns that it has ended. Who was given up may speak
            // again, or know what is decided.
            let step = match self.here.contains(&rank) && self.counts(rank) {
                true => self.request(rank)?,
                false => ShrinkStep::Heard,
            };
            Some((rank, self.word(step)))
        });
        words.collect()
    }

    /// What a rank that is here has been asked in the ballot under way, and has not answered.
    fn request(&self, rank: u32) -> Option<ShrinkStep> {
        let Ballot {
            number: ballot,
            promises,
            proposal,
            acceptances,
            ..
        } = self.ballot.as_ref()?;
        let ballot = *ballot;
        let Some(members) = proposal.clone() else {
            return (!promises.contains(&rank)).then_some(ShrinkStep::Prepare { ballot });
        };
        let known = acceptances.get(&rank);
        let knows = known.is_some_and(|known| known.is_superset(&self.ended));
        (!knows).then_some(ShrinkStep::Accept { ballot, members })
    }

    /// The other ranks that are here and count.
    fn present(&self) -> impl Iterator<Item = u32> {
        self.here.iter().copied().filter(|rank| self.counts(*rank))
    }

    /// See [Note: Agreement].
    fn are_enough(&self, ranks: &Ranks, ended: &Ranks) -> bool {
        let (count, size) = (2 * ranks.len(), self.size as usize);
        let greater = count > size || (count == size && ranks.contains(&0));
        greater || (0..self.size).all(|rank| ranks.contains(&rank) || ended.contains(&rank))
    }

    fn word(&self, what: ShrinkStep) -> ShrinkWord {
        ShrinkWord {
            ended: self.ended.clone(),
            what,
        }
    }
}

#[cfg(test)]
mod tests;
