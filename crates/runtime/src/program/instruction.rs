//! Compiled programs: one rank's instructions in a collective, with operands resolved as far as the
//! links of its group allow.

use std::ops::Range;
use std::sync::OnceLock;

use weft_kernels::{DType, Float8, Representation};
use weft_schedule::{Encoding, Rank, Schedule, SignalId, sums_in_transit};

use super::Arrival;
use crate::{Call, Error, Op};

/// Which memory an operand lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    /// A rank's source memory.
    Input(Rank),
    /// A rank's destination memory.
    Output(Rank),
    /// A rank's temporary memory.
    Scratch { rank: Rank, entry: u32 },
    /// This rank's receive buffer for a peer.
    Receive { from: Rank, entry: u32 },
    /// A peer's receive buffer for this rank.
    PeerReceive { to: Rank, entry: u32 },
}

/// Some chunks of a message, and where they lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operand {
    pub(crate) location: Location,
    pub(crate) chunks: Range<u32>,
    /// The chunk that lies at the location's beginning.
    pub(crate) origin: u32,
    pub(crate) encoding: Encoding,
}

impl Operand {
    /// Whether it lies in the caller's memory, where chunks lie as in the message.
    pub(crate) fn is_user(&self) -> bool {
        matches!(self.location, Location::Input(_) | Location::Output(_))
    }

    /// How its elements are represented in a call of so many ranks.
    pub(crate) fn representation(&self, call: &Call, ranks: u32) -> Representation {
        match self.encoding {
            Encoding::Native => Representation::Plain(call.dtype),
            Encoding::F32 => Representation::Plain(DType::F32),
            Encoding::F16 if call.op == Op::Average => Representation::AveragedF16(ranks),
            Encoding::F16 => Representation::Plain(DType::F16),
            Encoding::Bf16 => Representation::Plain(DType::Bf16),
            Encoding::E4m3 => Representation::Scaled(Float8::E4m3),
            Encoding::E5m2 => Representation::Scaled(Float8::E5m2),
        }
    }
}

/// Some consecutive operands of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operands {
    pub(super) first: u32,
    pub(super) end: u32,
}

/// How a step makes its destinations of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// Copies the one source.
    Copy,
    /// Copies the one source into another encoding.
    Convert,
    /// Combines the sources; `is_final`: every contribution is now in, `native`: all operands are
    /// elements of the message's own type.
    Reduce { is_final: bool, native: bool },
}

/// What a rank does within memory that it reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalStep {
    pub(crate) kernel: Kernel,
    /// The destinations, then the sources.
    pub(crate) operands: Operands,
    /// How many of them are destinations.
    pub(crate) destinations: u32,
    /// The operand that tells how many elements: one in the caller's memory, if there is any.
    pub(crate) measured: u32,
}

/// One thing that a rank does: a step of the schedule, bound to the links of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Instruction {
    /// Copies or reduces.
    Local(LocalStep),
    /// Copies what has not come to the output already, of the arrival with this number.
    Arrive { arrival: u32, step: LocalStep },
    /// Sends `src` into a peer's receive buffer over its link, and then the signal.
    Put {
        to: Rank,
        dst: u32,
        src: u32,
        signal: Option<SignalId>,
    },
    /// Sends a signal.
    Signal { to: Rank, id: SignalId },
    /// Waits for a signal.
    Wait { from: Rank, id: SignalId },
    /// Copies or reduces, unless another of the ranks that may do so has: see
    /// `execution/tiles/claims.rs`.
    Claimable {
        claim: u32,
        owner: Rank,
        step: LocalStep,
    },
}

/// A schedule, compiled for one rank of one group.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) instructions: Vec<Instruction>,
    pub(super) operands: Vec<Operand>,
    /// The sources of each reduction of the schedule, in order.
    pub(super) reductions: Vec<Operands>,
    /// By operand: whether it is a source that holds a sum in transit. What averages of 16-bit
    /// floats need, and nothing else.
    pub(super) sums: OnceLock<Vec<bool>>,
    /// What may come to the output: see [Note: Arrivals].
    pub(crate) arrivals: Vec<Arrival>,
    /// The schedule without its steps: how the message and temporary memory are divided.
    pub(crate) shape: Schedule,
    /// The other ranks that it exchanges anything with.
    pub(crate) neighbours: Vec<Rank>,
    /// The steps that others may take over from this rank.
    pub(crate) claims: Vec<u32>,
    /// Whether this rank may take over steps from others.
    pub(crate) helps: bool,
    /// The ranks in whose receive buffers this rank writes.
    pub(crate) receivers: Vec<Rank>,
    /// The ranks that write in this rank's receive buffers.
    pub(crate) senders: Vec<Rank>,
}

impl Program {
    pub(crate) fn operand(&self, index: u32) -> &Operand {
        &self.operands[index as usize]
    }

    /// Whether some operand's elements share scales, so that tiles consist of whole blocks.
    pub(crate) fn is_scaled(&self) -> bool {
        self.operands
            .iter()
            .any(|operand| operand.encoding.is_scaled())
    }

    /// Finds out which sources hold sums in transit, from the schedules of all ranks, unless that
    /// is known.
    pub(crate) fn find_sums(
        &self,
        schedules: impl FnOnce() -> Result<Vec<Schedule>, Error>,
    ) -> Result<(), Error> {
        if self.sums.get().is_some() {
            return Ok(());
        }
        let of_reductions = sums_in_transit(&schedules()?, self.shape.rank);
        let mut sums = vec![false; self.operands.len()];
        for (sources, of_sources) in self.reductions.iter().zip(of_reductions) {
            sums[sources.first as usize..sources.end as usize].copy_from_slice(&of_sources);
        }
        self.sums.get_or_init(|| sums);
        Ok(())
    }

    /// Which of some operands hold sums in transit, if that has been found out.
    pub(crate) fn sums(&self, some: Operands) -> &[bool] {
        let known = self.sums.get();
        known.map_or(&[], |sums| &sums[some.first as usize..some.end as usize])
    }

    pub(crate) fn operands(&self, some: Operands) -> &[Operand] {
        &self.operands[some.first as usize..some.end as usize]
    }
}
