//! Shares and rounds that the closed forms of costs have in common.

use weft_schedule::Rank;

use super::formula::Rounds;
use super::phases::Phase;
use crate::{MemoryClass, ScheduleRequest};

/// Shares and rounds of closed forms.
impl ScheduleRequest<'_> {
    /// The share of one block, where the message has one per rank.
    pub(crate) fn block_share(&self) -> f64 {
        1.0 / f64::from(self.ranks)
    }

    /// The share of all blocks but one.
    pub(crate) fn others_share(&self) -> f64 {
        f64::from(self.ranks - 1) / f64::from(self.ranks)
    }

    /// Whether ranks reach each other's input and output.
    pub(crate) fn symmetric(&self) -> bool {
        self.memory == MemoryClass::Symmetric
    }

    /// This share where data from peers are staged, none where they are not.
    pub(crate) fn staged<T: Default>(&self, share: T) -> T {
        if self.symmetric() {
            T::default()
        } else {
            share
        }
    }

    /// The round in which ranks signal each other that they have entered, where that matters.
    pub(crate) fn entry(&self) -> Phase {
        Phase::signals(self.entries())
    }

    /// As [`ScheduleRequest::entry`], as a formula.
    pub(crate) fn entering(&self) -> Rounds {
        Rounds::signals(self.entries())
    }

    /// The number of these rounds.
    pub(crate) fn entries(&self) -> u32 {
        u32::from(self.symmetric())
    }

    /// All ranks but one.
    pub(crate) fn others(&self, rank: Rank) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks).filter(move |other| *other != rank)
    }
}
