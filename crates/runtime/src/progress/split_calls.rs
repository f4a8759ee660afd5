//! Splits of a group: the calls under each name, on this rank and on the ranks listed there.

use std::collections::HashMap;

use weft_call::mix;

use weft_channel::SplitCall;

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
    pub(super) fn settle(&mut self, mine: &SplitCall) -> Vec<(u32, SplitCall)> {
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
    pub(super) fn hear(&mut self, from: u32, theirs: &SplitCall) -> Option<SplitCall> {
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
