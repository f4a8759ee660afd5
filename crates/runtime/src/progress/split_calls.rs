//! Comparison of split calls: those of this rank, and those that other ranks report.

use std::collections::HashMap;

use weft_call::mix;

use weft_channel::SplitCall;

/// The most calls of other ranks that are kept until this rank has made the same one.
const REPORTED_MAX: usize = 1024;

/// The splits of one group.
#[derive(Default)]
pub(crate) struct Splits {
    /// For each name, the calls of this rank in their order, and whether they are settled: the new
    /// group exists, so that reports of other ranks can break it.
    called: HashMap<String, Vec<(SplitCall, bool)>>,
    /// Calls of other ranks that are not settled here.
    reported: Vec<(u32, SplitCall)>,
}

impl Splits {
    /// Records a call of this rank. Ranks that make the same call derive the same group identity
    /// from it, without communication.
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

    /// Whether this rank has split off the group with this identity.
    pub(super) fn has_split_off(&self, child: u64) -> bool {
        let mut calls = self.called.values().flatten();
        calls.any(|(call, _)| call.child == child)
    }

    /// Settles a call. Returns the calls of other ranks that disagree with it, and their ranks.
    pub(super) fn settle(&mut self, mine: &SplitCall) -> Vec<(u32, SplitCall)> {
        let calls = self.called.get_mut(&mine.name);
        if let Some((_, settled)) = calls.and_then(|calls| calls.get_mut(mine.number)) {
            *settled = true;
        }
        let reported = std::mem::take(&mut self.reported).into_iter();
        let same =
            |(_, call): &(u32, SplitCall)| call.name == mine.name && call.number == mine.number;
        let (mut calls, others): (Vec<_>, Vec<_>) = reported.partition(same);
        self.reported = others;
        calls.retain(|(_, call)| !call.agrees_with(mine));
        calls
    }

    /// Records a call of another rank. Returns this rank's call if it is settled and disagrees: if
    /// it has other ranks or another policy.
    pub(super) fn on_call(&mut self, from: u32, theirs: &SplitCall) -> Option<SplitCall> {
        let calls = self.called.get(&theirs.name);
        match calls.and_then(|calls| calls.get(theirs.number)) {
            Some((mine, true)) => (!mine.agrees_with(theirs)).then(|| mine.clone()),
            _ => {
                self.reported.truncate(REPORTED_MAX - 1);
                self.reported.push((from, theirs.clone()));
                None
            }
        }
    }
}
