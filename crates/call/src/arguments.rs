//! Arguments of a collective call, and their checks.

use std::time::Duration;

use weft_flight::{Entry, Kind, NO_RANK, short_plan};
use weft_kernels::{DType, Finish, ReduceOp};
use weft_schedule::{Collective, WireFormat};

use super::Tiling;
use crate::Error;

/// A reduction: the operation that combines the ranks' contributions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    /// The sum.
    Sum,
    /// The sum divided by the number of ranks.
    Average,
    /// The sum divided by this number, of single and double precision on two ranks or more: an
    /// average where ranks contribute sums of their own.
    AverageOf(u32),
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
    /// The sum of the contributions, each multiplied by its rank's factor first.
    PremulSum(f64),
}

impl Op {
    /// The kernel that combines two elements.
    #[inline]
    pub fn kernel(self) -> ReduceOp {
        match self {
            Op::Sum | Op::Average | Op::AverageOf(_) | Op::PremulSum(_) => ReduceOp::Sum,
            Op::Product => ReduceOp::Product,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::BitAnd => ReduceOp::BitAnd,
            Op::BitOr => ReduceOp::BitOr,
            Op::BitXor => ReduceOp::BitXor,
        }
    }

    /// Returns why elements of this type cannot be combined by this operation; `None` if they can.
    pub fn refusal(self, dtype: DType) -> Option<String> {
        let supported = match self {
            Op::Average => weft_kernels::supports_average(dtype),
            Op::AverageOf(_) => matches!(dtype, DType::F32 | DType::F64),
            _ => weft_kernels::supports(dtype, self.kernel()),
        };
        if supported {
            return None;
        }
        let expected = match self {
            Op::Average => "numbers",
            Op::AverageOf(_) => "float32 and float64",
            _ => "integers and bool",
        };
        let name = self.name();
        Some(format!("{name} is defined for {expected}, not for {dtype}"))
    }

    /// The last step of a reduction; `last`: every rank's contribution is included.
    pub fn finish(self, last: bool, ranks: u32) -> Finish {
        match self {
            Op::Average if last => Finish::Average(ranks),
            Op::AverageOf(contributions) if last => Finish::Average(contributions),
            _ => Finish::Keep,
        }
    }

    /// Whether contributions are added.
    pub fn sums(self) -> bool {
        self.kernel() == ReduceOp::Sum
    }

    /// The name in the public interface.
    pub fn name(self) -> &'static str {
        NAMES[self.index() as usize]
    }

    pub(super) fn index(self) -> u8 {
        match self {
            Op::Sum => 0,
            Op::Average | Op::AverageOf(_) => 1,
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

/// The names of all operations, by [`Op::index`].
pub const NAMES: [&str; 9] = [
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

/// The amount of data of a call, in elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counts {
    /// The message (all-reduce, reduce, broadcast), or each rank's block (all others).
    Equal(u64),
    /// Each rank's block, the same list on every rank.
    PerRank(Vec<u64>),
    /// All-to-all: the blocks that this rank sends to and receives from each rank.
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
    /// The collective operation.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// The reduction, for collectives that reduce.
    pub op: Op,
    /// The source. Where the operation works in place, it may equal `output`.
    pub input: *const u8,
    /// The destination.
    pub output: *mut u8,
    /// The number of elements.
    pub counts: Counts,
    /// Operations with a higher priority run first, even before operations that were issued
    /// earlier. Must be the same on all ranks. Operations of one priority run in the order of their
    /// calls.
    pub priority: i32,
    /// The time after which the operation fails; the group's timeout if `None`.
    pub timeout: Option<Duration>,
    /// The full name of the algorithm; the default if `None`.
    pub algorithm: Option<String>,
    /// The division of the message into tiles.
    pub tiling: Tiling,
    /// The wire format between ranks that share no memory; the group's if `None`.
    pub wire: Option<WireFormat>,
}

// SAFETY: the pointers are plain addresses; `Group::issue` states the requirements on the memory.
unsafe impl Send for Call {}

impl Call {
    /// Checks everything that does not depend on the other ranks' calls.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if an argument is invalid, or does not fit the collective.
    pub fn check(&self, rank: u32, ranks: u32) -> Result<(), Error> {
        let root = self.collective.root();
        if root.is_some_and(|root| root >= ranks) {
            return Err(Error::Config(format!(
                "{}: no such root: the group has the ranks 0 to {}",
                self.collective,
                ranks - 1
            )));
        }
        if self.collective.reduces()
            && let Some(why) = self.op.refusal(self.dtype)
        {
            return Err(Error::Config(why));
        }
        if matches!(self.op, Op::AverageOf(_)) && ranks == 1 {
            let why = "an average of a given number is for two ranks or more: one has no sum";
            return Err(Error::Config(why.into()));
        }
        self.check_wire()?;
        self.check_counts(ranks)?;
        match self.input.is_null() || self.output.is_null() {
            true => self.check_memory(rank, ranks),
            false => Ok(()),
        }
    }

    /// Checks that there is memory where this rank has elements.
    #[cold]
    fn check_memory(&self, rank: u32, ranks: u32) -> Result<(), Error> {
        let (read, written) = self.own_elements(rank, ranks);
        let missing = match (self.input.is_null(), self.output.is_null()) {
            (true, _) if read > 0 => Some(("input", read)),
            (_, true) if written > 0 => Some(("output", written)),
            _ => None,
        };
        missing.map_or(Ok(()), |(name, elements)| {
            Err(Error::Config(format!(
                "{}: the {name} has {elements} elements of {} but no memory (its address is 0): \
                 pass memory that the processor reaches",
                self.collective, self.dtype
            )))
        })
    }

    /// The number of elements that this rank has in `input` and in `output`.
    fn own_elements(&self, rank: u32, ranks: u32) -> (u64, u64) {
        let whole = self.message_elements(ranks);
        let block = match &self.counts {
            Counts::Equal(block) => *block,
            Counts::PerRank(blocks) => blocks[rank as usize],
            Counts::PerPair { send, receive } => {
                return (send.iter().sum(), receive.iter().sum());
            }
        };
        let at_root = |elements| match self.collective.root() {
            Some(root) if root != rank => 0,
            _ => elements,
        };
        match self.collective {
            Collective::Barrier => (0, 0),
            Collective::AllReduce => (whole, whole),
            Collective::Reduce { .. } => (whole, at_root(whole)),
            Collective::Broadcast { .. } => (at_root(whole), whole),
            Collective::AllGather | Collective::Gather { .. } => (block, at_root(whole)),
            Collective::ReduceScatter | Collective::Scatter { .. } => (at_root(whole), block),
            Collective::AllToAll => (whole, whole),
        }
    }

    /// Whether it averages 16-bit floats, whose sums in transit may exceed their range.
    #[inline]
    pub fn averages_halves(&self) -> bool {
        self.op == Op::Average && matches!(self.dtype, DType::F16 | DType::Bf16)
    }

    /// Checks that the requested wire format is defined for the call.
    fn check_wire(&self) -> Result<(), Error> {
        let Some(wire) = self.wire.filter(|wire| *wire != WireFormat::Full) else {
            return Ok(());
        };
        let refused = wire.refusal(self.collective).or_else(|| {
            let (name, dtype, op) = (wire.name(), self.dtype, self.op.name());
            if dtype != DType::F32 {
                return Some(format!(
                    "wire={name:?} is for elements of float32, not of {dtype}"
                ));
            }
            let combines = self.collective.reduces() && !self.op.sums();
            combines.then(|| format!("wire={name:?} is for sum, avg and premul_sum, not for {op}"))
        });
        refused.map_or(Ok(()), |why| Err(Error::Config(why)))
    }

    /// The call with its wire format set: its own or, for sums, the group's. A group's format does
    /// not apply to data that is only moved, such as parameters, which must not be rounded.
    pub fn with_wire_format(self, group: WireFormat) -> Call {
        let sums = self.collective.reduces() && self.op.sums() && self.dtype == DType::F32;
        let default = if sums { group } else { WireFormat::Full };
        Call {
            wire: Some(self.wire.unwrap_or(default)),
            ..self
        }
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
                "{}: counts per pair of ranks are for all-to-all only, which accepts no counts per rank",
                self.collective
            )));
        }
        let per_rank = matches!(self.counts, Counts::PerRank(_));
        if per_rank && (self.collective.in_place() || self.collective == Collective::Barrier) {
            return Err(Error::Config(format!(
                "{} takes one count, not one per rank",
                self.collective
            )));
        }
        Ok(())
    }

    /// Whether a rank's input must be copied into `Output` before the schedule begins.
    #[inline]
    pub fn copies_input(&self, rank: u32) -> bool {
        match self.collective {
            Collective::AllReduce => true,
            Collective::Reduce { root } | Collective::Broadcast { root } => root == rank,
            _ => false,
        }
    }

    /// The call as schedules see it. A rank that is not the root of a reduction only reads, and its
    /// input takes the place of its output.
    pub fn for_schedules(self, rank: u32) -> Call {
        match self.collective {
            Collective::Reduce { root } if root != rank => Call {
                output: self.input.cast_mut(),
                ..self
            },
            _ => self,
        }
    }

    /// The flight recorder's entry for the call, as operation `sequence` of its group.
    #[inline(always)]
    pub fn flight_entry(&self, sequence: u64, plan: u64, ranks: u32) -> Entry {
        let (count, per_rank) = match &self.counts {
            Counts::Equal(count) => (*count, false),
            _ => (self.message_elements(ranks), true),
        };
        Entry {
            kind: Kind::collective(self.collective.index()).per_rank(per_rank),
            dtype: self.dtype as u8,
            op: self.op.index(),
            plan: short_plan(plan),
            priority: self.priority,
            rank: self.collective.root().unwrap_or(NO_RANK),
            sequence,
            count,
        }
    }

    /// The elements of the whole message, as far as this rank knows them.
    #[inline]
    pub fn message_elements(&self, ranks: u32) -> u64 {
        match &self.counts {
            Counts::Equal(n) if self.collective.in_place() => *n,
            Counts::Equal(n) => n * u64::from(ranks),
            Counts::PerRank(list) => list.iter().sum(),
            Counts::PerPair { send, receive } => send.iter().sum::<u64>().max(receive.iter().sum()),
        }
    }

    /// Whether every rank knows the sizes of all blocks.
    pub fn knows_all_blocks(&self) -> bool {
        match &self.counts {
            Counts::Equal(_) => true,
            Counts::PerRank(_) => knows_all_counts(self.collective),
            Counts::PerPair { .. } => false,
        }
    }

    /// The bytes of the whole message, as far as this rank knows them.
    #[inline]
    pub fn message_bytes(&self, ranks: u32) -> u64 {
        self.message_elements(ranks) * self.dtype.size() as u64
    }
}

/// Whether every rank knows all counts of a call with counts per rank.
pub(crate) fn knows_all_counts(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::AllGather | Collective::ReduceScatter
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: u32 = 4;

    fn call(collective: Collective, input: usize, output: usize, elements: u64) -> Call {
        Call {
            collective,
            dtype: DType::F32,
            op: Op::Sum,
            input: input as *const u8,
            output: output as *mut u8,
            counts: Counts::Equal(elements),
            priority: 0,
            timeout: None,
            algorithm: None,
            tiling: Tiling::default(),
            wire: None,
        }
    }

    #[test]
    fn null_address_is_refused_where_rank_has_elements() {
        use Collective::*;
        // On rank 1: whether the input, and the output, may have no memory.
        for (collective, no_input, no_output) in [
            (AllReduce, false, false),
            (Reduce { root: 1 }, false, false),
            (Reduce { root: 0 }, false, true),
            (Broadcast { root: 1 }, false, false),
            (Broadcast { root: 0 }, true, false),
            (AllGather, false, false),
            (ReduceScatter, false, false),
            (AllToAll, false, false),
            (Gather { root: 1 }, false, false),
            (Gather { root: 0 }, false, true),
            (Scatter { root: 1 }, false, false),
            (Scatter { root: 0 }, true, false),
            (Barrier, true, true),
        ] {
            let checked = |input, output, elements| {
                let call = call(collective, input, output, elements);
                call.check(1, RANKS).map_err(|error| error.to_string())
            };
            assert_eq!(checked(0, 64, 8).is_ok(), no_input, "{collective}");
            assert_eq!(checked(64, 0, 8).is_ok(), no_output, "{collective}");
            assert_eq!(checked(64, 64, 8), Ok(()), "{collective}");
            assert_eq!(checked(0, 0, 0), Ok(()), "{collective}");
        }
        let error = call(AllReduce, 0, 0, 8).check(1, RANKS).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("the input has 8 elements of float32"),
            "{text}"
        );
    }
}
