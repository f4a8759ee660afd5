//! One call of a collective operation, as the user made it.

use std::fmt;
use std::time::Duration;

use weft_kernels::{DType, Finish, ReduceOp};
use weft_schedule::Collective;

use crate::Error;
use crate::policy::Tiling;

/// How contributions are combined.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    /// The sum.
    Sum,
    /// The sum divided by the number of ranks.
    Average,
    /// The product.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Bitwise and.
    BitAnd,
    /// Bitwise or.
    BitOr,
    /// Bitwise exclusive or.
    BitXor,
    /// The sum, each rank's contribution multiplied by that rank's factor first.
    PremulSum(f64),
}

impl Op {
    /// The kernel that combines two elements.
    pub fn kernel(self) -> ReduceOp {
        match self {
            Op::Sum | Op::Average | Op::PremulSum(_) => ReduceOp::Sum,
            Op::Product => ReduceOp::Product,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::BitAnd => ReduceOp::BitAnd,
            Op::BitOr => ReduceOp::BitOr,
            Op::BitXor => ReduceOp::BitXor,
        }
    }

    /// What a reduction does at its end; `last`: every rank's contribution is in.
    pub(crate) fn finish(self, last: bool, ranks: u32) -> Finish {
        match self {
            Op::Average if last => Finish::Average(ranks),
            _ => Finish::Keep,
        }
    }

    /// The name that users know.
    pub fn name(self) -> &'static str {
        NAMES[self.index() as usize]
    }

    fn index(self) -> u8 {
        match self {
            Op::Sum => 0,
            Op::Average => 1,
            Op::Product => 2,
            Op::Min => 3,
            Op::Max => 4,
            Op::BitAnd => 5,
            Op::BitOr => 6,
            Op::BitXor => 7,
            Op::PremulSum(_) => 8,
        }
    }
}

const NAMES: [&str; 9] = [
    "sum",
    "avg",
    "product",
    "min",
    "max",
    "band",
    "bor",
    "bxor",
    "premul_sum",
];

/// How much data a call moves, in elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counts {
    /// The message (all-reduce, reduce, broadcast), or each rank's block (all others).
    Equal(u64),
    /// Each rank's block, the same list on every rank.
    PerRank(Vec<u64>),
    /// All-to-all: what this rank sends to each rank and receives from each.
    PerPair {
        /// Elements sent to each rank.
        send: Vec<u64>,
        /// Elements received from each rank.
        receive: Vec<u64>,
    },
}

/// One call of a collective operation.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which operation.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// How contributions are combined, where they are.
    pub op: Op,
    /// The source. Where the operation works in place, it may equal `output`.
    pub input: *const u8,
    /// The destination.
    pub output: *mut u8,
    /// How many elements.
    pub counts: Counts,
    /// Operations with a higher priority go first.
    pub priority: i32,
    /// How long the operation may take before it fails; the group's timeout if none.
    pub timeout: Option<Duration>,
    /// The name of the algorithm with its parts, if the default is not wanted.
    pub algorithm: Option<String>,
    /// How the message is cut, if the default is not wanted.
    pub tiling: Tiling,
}

// SAFETY: the pointers are plain addresses; `Group::issue` says who answers for the memory.
unsafe impl Send for Call {}

impl Call {
    /// Checks everything that can be wrong without knowing what the other ranks call.
    pub(crate) fn check(&self, ranks: u32) -> Result<(), Error> {
        let root = self.collective.root();
        if root.is_some_and(|root| root >= ranks) {
            return Err(Error::Config(format!(
                "{}: the root must be less than the number of ranks ({ranks})",
                self.collective
            )));
        }
        if self.reduces() && !weft_kernels::supports(self.dtype, self.op.kernel()) {
            return Err(Error::Config(format!(
                "{} of {} elements is not defined; bitwise operations need integers or bool",
                self.op.name(),
                self.dtype.name()
            )));
        }
        if self.op == Op::Average && self.reduces() && !weft_kernels::supports_average(self.dtype) {
            return Err(Error::Config(format!(
                "the average of {} elements is not defined",
                self.dtype.name()
            )));
        }
        self.check_counts(ranks)
    }

    fn check_counts(&self, ranks: u32) -> Result<(), Error> {
        let lists: Vec<&Vec<u64>> = match &self.counts {
            Counts::Equal(_) => vec![],
            Counts::PerRank(list) => vec![list],
            Counts::PerPair { send, receive } => vec![send, receive],
        };
        for list in lists {
            if list.len() != ranks as usize {
                return Err(Error::Config(format!(
                    "{}: {} counts were given for {ranks} ranks; one per rank is needed",
                    self.collective,
                    list.len()
                )));
            }
        }
        let pairs = matches!(self.counts, Counts::PerPair { .. });
        if pairs
            != (self.collective == Collective::AllToAll && !matches!(self.counts, Counts::Equal(_)))
        {
            return Err(Error::Config(format!(
                "{}: counts per pair of ranks belong to all-to-all, and only there",
                self.collective
            )));
        }
        let per_rank = matches!(self.counts, Counts::PerRank(_));
        if per_rank && (self.works_in_place() || self.collective == Collective::Barrier) {
            return Err(Error::Config(format!(
                "{} takes one count, not one per rank",
                self.collective
            )));
        }
        Ok(())
    }

    /// Whether contributions are combined.
    pub(crate) fn reduces(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter
        )
    }

    /// Whether the schedule knows `Output` only.
    pub(crate) fn works_in_place(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. }
        )
    }

    /// Whether a rank's vector must be in `Output` before the schedule begins.
    pub(crate) fn brings_in(&self, rank: u32) -> bool {
        match self.collective {
            Collective::AllReduce => true,
            Collective::Reduce { root } | Collective::Broadcast { root } => root == rank,
            _ => false,
        }
    }

    /// The call as schedules see it: who is not the root of a reduction only reads, and its contribution stands in for its output.
    pub(crate) fn for_schedules(self, rank: u32) -> Call {
        match self.collective {
            Collective::Reduce { root } if root != rank => Call {
                output: self.input.cast_mut(),
                ..self
            },
            _ => self,
        }
    }

    /// The elements of the whole message, as far as this rank knows them.
    pub(crate) fn message_elements(&self, ranks: u32) -> u64 {
        match &self.counts {
            Counts::Equal(n) if self.works_in_place() => *n,
            Counts::Equal(n) => n * u64::from(ranks),
            Counts::PerRank(list) => list.iter().sum(),
            Counts::PerPair { send, receive } => send.iter().sum::<u64>().max(receive.iter().sum()),
        }
    }
}

/// What a rank called, in a form that travels with its signals so that ranks that call different things find out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Fingerprint {
    /// Elements; for counts that differ between ranks, nothing.
    pub(crate) count: u64,
    /// Collective, dtype, op, root, and what the algorithm was chosen from.
    pub(crate) kind: u64,
    /// All operations of the group so far, hashed.
    pub(crate) history: u64,
}

const PLAN_BITS: u64 = 0xffff << 16;

impl Fingerprint {
    /// As it travels, word by word.
    pub(crate) fn words(self) -> [u64; 3] {
        [self.count, self.kind, self.history]
    }

    /// From the words behind a flag: words 1 to 3 of its line.
    pub(crate) fn behind_flag(word: impl Fn(u64) -> u64) -> Self {
        Fingerprint {
            count: word(1),
            kind: word(2),
            history: word(3),
        }
    }

    /// The fingerprint of a call whose plan is not settled yet.
    pub(crate) fn new(call: &Call, history: u64) -> Self {
        let count = match &call.counts {
            Counts::Equal(n) => *n,
            Counts::PerRank(list) if knows_all_counts(call.collective) => {
                list.iter().fold(1, |hash, n| mix(hash, *n))
            }
            _ => 0,
        };
        let (per_rank, op) = (
            u64::from(!matches!(call.counts, Counts::Equal(_))),
            if call.reduces() { call.op.index() } else { 15 },
        );
        let kind = u64::from(collective_index(call.collective))
            | (call.dtype as u64) << 4
            | u64::from(op) << 8
            | per_rank << 12
            | u64::from(call.collective.root().unwrap_or(0)) << 32;
        Fingerprint {
            count,
            kind,
            history,
        }
    }

    pub(crate) fn with_plan(self, plan: u16) -> Self {
        Fingerprint {
            kind: (self.kind & !PLAN_BITS) | u64::from(plan) << 16,
            ..self
        }
    }

    /// The collective's name and the hash that names its plan, once that is settled.
    pub(crate) fn plan(self) -> Option<(&'static str, u16)> {
        let collective = COLLECTIVES.get((self.kind & 15) as usize)?;
        let short = (self.kind >> 16) as u16;
        (short != 0).then_some((*collective, short))
    }

    /// As it travels from one rank to another: with the elements of that pair, where they are known to these two only.
    pub(crate) fn between(self, call: &Call, me: u32, from: u32, to: u32) -> Self {
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

    /// Extends the hash of all operations by this one.
    pub(crate) fn extended(self) -> u64 {
        mix(mix(self.history, self.kind & !PLAN_BITS), self.count)
    }

    /// Detects words of two fingerprints mixed up by an overwrite under way.
    pub(crate) fn checksum(self, g: u64) -> u64 {
        mix(mix(self.extended(), self.kind), g)
    }

    /// Whether the calls agree, and their plans as far as they are settled.
    pub(crate) fn agrees(self, other: Self) -> bool {
        let settled = self.kind & PLAN_BITS != 0 && other.kind & PLAN_BITS != 0;
        let mask = if settled { u64::MAX } else { !PLAN_BITS };
        self.count == other.count && self.kind & mask == other.kind & mask
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collective = COLLECTIVES.get((self.kind & 15) as usize).unwrap_or(&"?");
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
            write!(f, ", root {}", (self.kind >> 32) & 0xffff_ffff)?;
        }
        f.write_str(")")
    }
}

pub(crate) const COLLECTIVES: [&str; 9] = [
    "all-reduce",
    "reduce",
    "broadcast",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "gather",
    "scatter",
    "barrier",
];

/// The collective's place in [`COLLECTIVES`].
pub(crate) fn collective_index(collective: Collective) -> u8 {
    match collective {
        Collective::AllReduce => 0,
        Collective::Reduce { .. } => 1,
        Collective::Broadcast { .. } => 2,
        Collective::AllGather => 3,
        Collective::ReduceScatter => 4,
        Collective::AllToAll => 5,
        Collective::Gather { .. } => 6,
        Collective::Scatter { .. } => 7,
        Collective::Barrier => 8,
    }
}

/// Whether every rank of a call with counts per rank is given all of them.
pub(crate) fn knows_all_counts(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGather | Collective::ReduceScatter
    )
}

/// A 64-bit mixing step (the finaliser of SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut z = hash.rotate_left(5) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{COLLECTIVES, collective_index};
    use weft_schedule::Collective;

    #[test]
    fn collectives_are_listed_by_their_index() {
        for (index, name) in (0..).zip(COLLECTIVES) {
            let collective = Collective::named(name, 0).unwrap();
            assert_eq!(collective_index(collective), index, "{name}");
        }
    }
}
