//! Fingerprints of calls, which ranks send with their signals to detect different calls (desync).

use std::fmt;

use weft_kernels::DType;
use weft_schedule::{Collective, WireFormat};

use super::arguments::{NAMES, knows_all_counts};
use super::{Call, Counts, mix};

/// A rank's call in a form that is sent with its signals, so that ranks detect different calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Fingerprint {
    /// The number of elements; 0 for counts that differ between ranks.
    pub count: u64,
    /// Collective, dtype, op, level of the priority, root, and wire format.
    pub kind: u64,
    /// Hash of all earlier operations of the group.
    pub history: u64,
    /// The hash of the plan; 0 while no plan is chosen.
    pub plan: u64,
}

/// Position of the priority's level in `kind`: see `Order`.
const LEVEL_SHIFT: u32 = 13;
/// The bits of the upper half that hold the root.
const ROOT_MASK: u64 = (1 << 28) - 1;
const WIRE_SHIFT: u32 = 60;

impl Fingerprint {
    /// The words that are sent.
    #[inline]
    pub fn words(self) -> [u64; 4] {
        [self.count, self.kind, self.history, self.plan]
    }

    /// The fingerprint in the words behind a flag: words 1 to 4 of its line.
    #[inline]
    pub fn behind_flag(word: impl Fn(u64) -> u64) -> Self {
        Fingerprint {
            count: word(1),
            kind: word(2),
            history: word(3),
            plan: word(4),
        }
    }

    /// The fingerprint of a call whose plan is not chosen yet.
    pub fn new(call: &Call, history: u64, level: usize) -> Self {
        let count = match &call.counts {
            Counts::Equal(n) => *n,
            Counts::PerRank(list) if knows_all_counts(call.collective) => {
                list.iter().fold(1, |hash, n| mix(hash, *n))
            }
            _ => 0,
        };
        let (per_rank, op) = (
            u64::from(!matches!(call.counts, Counts::Equal(_))),
            if call.collective.reduces() {
                call.op.index()
            } else {
                15
            },
        );
        let kind = u64::from(call.collective.index())
            | (call.dtype as u64) << 4
            | u64::from(op) << 8
            | per_rank << 12
            | (level as u64) << LEVEL_SHIFT
            | (u64::from(call.collective.root().unwrap_or(0)) & ROOT_MASK) << 32
            | (call.wire.unwrap_or_default() as u64) << WIRE_SHIFT;
        Fingerprint {
            count,
            kind,
            history,
            plan: 0,
        }
    }

    /// The level of the call's priority.
    #[inline]
    pub fn level(self) -> usize {
        (self.kind >> LEVEL_SHIFT) as usize & 7
    }

    /// The same call with this plan.
    pub fn with_plan(self, plan: u64) -> Self {
        Fingerprint { plan, ..self }
    }

    /// The collective's name and the hash of the plan, once that is chosen.
    pub fn plan(self) -> Option<(&'static str, u64)> {
        let collective = Collective::NAMES.get((self.kind & 15) as usize)?;
        (self.plan != 0).then_some((*collective, self.plan))
    }

    /// The fingerprint that one rank sends to another: with the count of that pair, where only
    /// these two ranks know it.
    #[inline]
    pub fn between(self, call: &Call, me: u32, from: u32, to: u32) -> Self {
        let count = match (&call.counts, call.collective) {
            (Counts::PerPair { send, .. }, _) if me == from => send[to as usize],
            (Counts::PerPair { receive, .. }, _) => receive[from as usize],
            (Counts::PerRank(list), Collective::Gather { root }) if to == root => {
                list[from as usize]
            }
            (Counts::PerRank(list), Collective::Scatter { root }) if from == root => {
                list[to as usize]
            }
            _ => return self,
        };
        Fingerprint { count, ..self }
    }

    /// The hash of all operations, including this one.
    pub fn extended(self) -> u64 {
        mix(mix(self.history, self.kind), self.count)
    }

    /// A checksum that detects a mixture of two fingerprints during an overwrite.
    #[inline]
    pub fn checksum(self, g: u64) -> u64 {
        mix(mix(self.extended(), self.plan), g)
    }

    /// Whether the calls agree, and their plans if both are chosen.
    pub fn agrees(self, other: Self) -> bool {
        let settled = self.plan != 0 && other.plan != 0;
        let same_plan = !settled || self.plan == other.plan;
        self.count == other.count && self.kind == other.kind && same_plan
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collective = Collective::NAMES
            .get((self.kind & 15) as usize)
            .unwrap_or(&"?");
        let dtype = DType::ALL
            .iter()
            .find(|dtype| **dtype as u64 == (self.kind >> 4) & 15);
        write!(f, "{collective}(")?;
        match (self.kind >> 12) & 1 {
            0 => write!(
                f,
                "{} x {}",
                self.count,
                dtype.map_or("?", |dtype| dtype.name())
            )?,
            _ if matches!(self.kind & 15, 5..=7) => write!(
                f,
                "{} x {} between these two",
                self.count,
                dtype.map_or("?", |dtype| dtype.name())
            )?,
            _ => write!(
                f,
                "{} counted per rank",
                dtype.map_or("?", |dtype| dtype.name())
            )?,
        }
        if let Some(op) = NAMES.get(((self.kind >> 8) & 15) as usize) {
            write!(f, ", {op}")?;
        }
        if matches!(self.kind & 15, 1 | 2 | 6 | 7) {
            write!(f, ", root {}", (self.kind >> 32) & ROOT_MASK)?;
        }
        match WireFormat::ALL.get((self.kind >> WIRE_SHIFT) as usize) {
            None | Some(WireFormat::Full) => {}
            Some(wire) => write!(f, ", wire {wire}")?,
        }
        if self.level() != 0 {
            write!(f, ", priority level {}", self.level())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_compared_by_all_bits_once_chosen() {
        let call = Fingerprint::behind_flag(|word| word);
        let [first, last] = [1, 1 << 63].map(|plan| call.with_plan(plan));
        assert!(!first.agrees(last));
        assert_ne!(first.checksum(0), last.checksum(0));
        assert!(first.agrees(call.with_plan(0)) && call.with_plan(0).agrees(last));
        assert_eq!(first.extended(), last.extended());
        assert_eq!(last.plan(), Some((Collective::NAMES[2], 1 << 63)));
    }
}
