//! Detection of splits that ranks call with different members or options.

use weft_call::Finished;
use weft_channel::{ControlMessage, SplitCall};

use super::group_name::{GroupName, listed};
use super::state::ProgressState;
use crate::Error;

impl ProgressState {
    /// Reports this rank's split call to the members of the new group, and breaks that group if
    /// another rank called it with other members or options.
    pub(crate) fn settle_split(
        &mut self,
        parent: u64,
        mine: &SplitCall,
        finished: &mut Finished,
    ) -> Result<(), Error> {
        if let Some(child) = self.groups.get(&mine.child) {
            child.connections.send_to_all(&ControlMessage::Split {
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

    /// Handles the split call that another rank reports.
    pub(super) fn on_split_message(
        &mut self,
        parent: u64,
        from: u32,
        theirs: &SplitCall,
        finished: &mut Finished,
    ) {
        let group = self.groups.get_mut(&parent);
        if let Some(mine) = group.and_then(|group| group.splits.on_call(from, theirs)) {
            self.disagree(parent, &mine, from, theirs, finished);
        }
    }

    /// Breaks the groups that two ranks made with different members or options.
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
            child.break_as_reported(error.clone(), None, 0, finished);
        }
        if let Some(link) = self.any_link_to(peer) {
            let broken = ControlMessage::Broken {
                group: theirs.child,
                error: error.clone(),
                origin: None,
                limit: 0,
            };
            // A broken link is detected when it is read.
            let _ = link.message(&broken.encode());
        }
        Some(error)
    }
}

/// The error of two ranks whose calls differ, with the same text on both.
fn differing_calls(
    parent: &GroupName,
    mine: (u32, &SplitCall),
    theirs: (u32, &SplitCall),
) -> Error {
    if mine.1.ranks == theirs.1.ranks {
        let mut ranks = [mine.0, theirs.0].map(|rank| parent.rank(rank));
        ranks.sort_unstable();
        return Error::Config(format!(
            "ranks {} and {} made group {} with different options: algorithm, schedules, \
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
        "ranks made group {} with different members: rank {a} listed ranks {first}, rank {b} \
         listed ranks {second}. All ranks must pass the same list of ranks",
        mine.1.name
    ))
}
