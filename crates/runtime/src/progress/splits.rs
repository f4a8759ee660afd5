//! Splits of a group that ranks call with different lists or options.

use weft_call::Finished;
use weft_channel::{ControlMessage, SplitCall};

use super::group_name::{GroupName, listed};
use super::state::ProgressState;
use crate::Error;

impl ProgressState {
    /// Tells the members of a new group how it was made, and breaks it if others have listed other
    /// ranks, or chose by other terms.
    pub(crate) fn settle_split(
        &mut self,
        parent: u64,
        mine: &SplitCall,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        if let Some(child) = self.groups.get(&mine.child) {
            child.connections.tell_all(&ControlMessage::Split {
                group: parent,
                split: mine.clone(),
            });
        }
        let others = match self.groups.get_mut(&parent) {
            Some(group) => group.splits.settle(mine),
            None => Vec::new(),
        };
        let disagree = |(from, theirs)| self.disagree(parent, mine, from, &theirs, finished);
        others
            .into_iter()
            .filter_map(disagree)
            .next()
            .map_or(Ok(()), Err)
    }

    /// Another rank tells what it has called.
    pub(super) fn hear_split(
        &mut self,
        parent: u64,
        from: u32,
        theirs: &SplitCall,
        finished: &mut Finished,
    ) {
        let group = self.groups.get_mut(&parent);
        if let Some(mine) = group.and_then(|group| group.splits.hear(from, theirs)) {
            self.disagree(parent, &mine, from, theirs, finished);
        }
    }

    /// Breaks the groups that two ranks have made of different lists, or by different terms.
    fn disagree(
        &mut self,
        parent: u64,
        mine: &SplitCall,
        from: u32,
        theirs: &SplitCall,
        finished: &mut Finished,
    ) -> Option<Error> {
        let group = self.groups.get(&parent)?;
        let (rank, peer) = (group.connections.rank, group.connections.endpoint_of(from));
        let error = differing_calls(&group.name, (rank, mine), (from, theirs));
        if let Some(child) = self.groups.get_mut(&mine.child) {
            child.told_broken(error.clone(), None, 0, finished);
        }
        if let Some(link) = self.any_link_to(peer) {
            let broken = ControlMessage::Broken {
                group: theirs.child,
                error: error.clone(),
                origin: None,
                limit: 0,
            };
            // A link that fails is noticed when it is read.
            let _ = link.message(&broken.encode());
        }
        Some(error)
    }
}

/// The same text on both ranks.
fn differing_calls(
    parent: &GroupName,
    mine: (u32, &SplitCall),
    theirs: (u32, &SplitCall),
) -> Error {
    if mine.1.ranks == theirs.1.ranks {
        let mut ranks = [mine.0, theirs.0].map(|rank| parent.rank(rank));
        ranks.sort_unstable();
        return Error::Config(format!(
            "ranks {} and {} disagree about the options of group {}: algorithm, schedules, \
             reproducible, topology, domains and wire must be the same on all of its ranks",
            ranks[0], ranks[1], mine.1.name
        ));
    }
    let mut calls = [mine, theirs].map(|(rank, split)| {
        let members: Vec<u32> = split.ranks.iter().map(|rank| parent.rank(*rank)).collect();
        (parent.rank(rank), listed(&members))
    });
    calls.sort();
    let [(a, first), (b, second)] = calls;
    Error::Config(format!(
        "ranks disagree about the members of group {}: rank {a} made it of ranks {first}, rank {b} of \
         ranks {second}. All ranks must make a group with the same list of ranks",
        mine.1.name
    ))
}
