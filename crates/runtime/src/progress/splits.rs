//! Splits of a group: the calls under each name, on this rank and on the ranks listed there.

use std::collections::HashMap;

use super::group_name::{GroupName, listed};
use super::state::ProgressState;
use crate::Error;
use crate::call::{Finished, mix};
use crate::channel::{ControlMessage, SplitCall};

/// So many calls are kept that other ranks have made and this one has not.
const HEARD: usize = 1024;

/// The splits of one group.
#[derive(Default)]
pub(crate) struct Splits {
    /// For each name, the calls of this rank in their order, and whether they are settled: the new
    /// group is there, so that what others tell can break it.
    called: HashMap<String, Vec<(SplitCall, bool)>>,
    /// What other ranks have called and is not settled here.
    heard: Vec<(u32, SplitCall)>,
}

impl Splits {
    /// Takes note of a call. Ranks that call alike derive the same identity from it without a word.
    pub(crate) fn call(&mut self, group: u64, name: &str, ranks: &[u32], policy: u64) -> SplitCall {
        let calls = self.called.entry(name.into()).or_default();
        let same = calls.iter().filter(|(call, _)| call.ranks == ranks).count() as u64 + 1;
        let words = name.bytes().map(u64::from);
        let words = words.chain(ranks.iter().map(|rank| u64::from(*rank) << 8));
        let split = SplitCall {
            child: mix(words.fold(group, mix), same),
            name: name.into(),
            number: calls.len(),
            ranks: ranks.to_vec(),
            policy,
        };
        calls.push((split.clone(), false));
        split
    }

    /// Whether this rank has split a group off that has this identity.
    pub(super) fn has_made(&self, child: u64) -> bool {
        let mut calls = self.called.values().flatten();
        calls.any(|(call, _)| call.child == child)
    }

    /// Settles a call. Returns what others have called in its place, and their ranks.
    fn settle(&mut self, mine: &SplitCall) -> Vec<(u32, SplitCall)> {
        let calls = self.called.get_mut(&mine.name);
        if let Some((_, settled)) = calls.and_then(|calls| calls.get_mut(mine.number)) {
            *settled = true;
        }
        let heard = std::mem::take(&mut self.heard).into_iter();
        let same =
            |(_, call): &(u32, SplitCall)| call.name == mine.name && call.number == mine.number;
        let (mut calls, others): (Vec<_>, Vec<_>) = heard.partition(same);
        self.heard = others;
        calls.retain(|(_, call)| !call.agrees_with(mine));
        calls
    }

    /// What this rank has called in place of another's call, if it is settled and has other ranks
    /// or another policy.
    fn hear(&mut self, from: u32, theirs: &SplitCall) -> Option<SplitCall> {
        let calls = self.called.get(&theirs.name);
        match calls.and_then(|calls| calls.get(theirs.number)) {
            Some((mine, true)) => (!mine.agrees_with(theirs)).then(|| mine.clone()),
            _ => {
                self.heard.truncate(HEARD - 1);
                self.heard.push((from, theirs.clone()));
                None
            }
        }
    }
}

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
