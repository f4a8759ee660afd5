//! Compiled programs: one rank's instructions in a collective, with operands resolved for the links
//! of its group.

use std::ops::Range;
use std::sync::OnceLock;

use weft_call::{Call, Error, Op};
use weft_kernels::{DType, Float8, Representation};
use weft_schedule::{Encoding, Rank, Schedule, SignalId, sums_in_transit};

use super::Arrival;

/// The memory that holds an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// A rank's source memory.
    Input(Rank),
    /// A rank's destination memory.
    Output(Rank),
    /// A rank's temporary memory.
    Scratch {
        /// The rank.
        rank: Rank,
        /// The entry.
        entry: u32,
    },
    /// This rank's receive buffer for a peer.
    Receive {
        /// The sender.
        from: Rank,
        /// The entry.
        entry: u32,
    },
    /// A peer's receive buffer for this rank.
    PeerReceive {
        /// The receiver.
        to: Rank,
        /// The entry.
        entry: u32,
    },
}

/// Some chunks of a message, and their location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operand {
    /// The memory.
    pub location: Location,
    /// The chunks.
    pub chunks: Range<u32>,
    /// The chunk at the location's beginning.
    pub origin: u32,
    /// The encoding of the elements there.
    pub encoding: Encoding,
}

impl Operand {
    /// Whether it is in the caller's memory, where chunks are laid out as in the message.
    pub fn is_user(&self) -> bool {
        matches!(self.location, Location::Input(_) | Location::Output(_))
    }

    /// The representation of its elements in a call of `ranks` ranks.
    pub fn representation(&self, call: &Call, ranks: u32) -> Representation {
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
pub struct Operands {
    pub(super) first: u32,
    pub(super) end: u32,
}

/// The computation of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Copies the one source.
    Copy,
    /// Copies the one source into another encoding.
    Convert,
    /// Combines the sources.
    Reduce {
        /// Whether the result includes every contribution.
        is_final: bool,
        /// Whether all operands are elements of the message's own type.
        native: bool,
    },
}

/// A step in memory that the rank reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalStep {
    /// The computation.
    pub kernel: Kernel,
    /// The destinations, then the sources.
    pub operands: Operands,
    /// The number of destinations.
    pub destinations: u32,
    /// The operand that determines the number of elements: one in the caller's memory, if any.
    pub measured: u32,
}

/// A step of the schedule, bound to the links of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction {
    /// Copies or reduces.
    Local(LocalStep),
    /// Copies the bytes of an arrival that are not in the output already.
    Arrive {
        /// The number of the arrival.
        arrival: u32,
        /// The step.
        step: LocalStep,
    },
    /// Sends `src` into a peer's receive buffer over its link, and then the signal.
    Put {
        /// The receiver.
        to: Rank,
        /// The destination, by its number among the operands.
        dst: u32,
        /// The source, by its number among the operands.
        src: u32,
        /// The signal that follows the payload, if any.
        signal: Option<SignalId>,
    },
    /// Sends a signal.
    Signal {
        /// The receiver.
        to: Rank,
        /// Its number at the sender.
        id: SignalId,
    },
    /// Waits for a signal.
    Wait {
        /// The sender.
        from: Rank,
        /// Its number at the sender.
        id: SignalId,
    },
    /// Copies or reduces, unless another of the ranks that may do so already has: see
    /// `execution/tiles/claims.rs`.
    Claimable {
        /// The number of the claim.
        claim: u32,
        /// Its owner.
        owner: Rank,
        /// The step.
        step: LocalStep,
    },
}

/// A schedule, compiled for one rank of one group.
#[derive(Debug, PartialEq)]
pub struct Program {
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    pub(super) operands: Vec<Operand>,
    /// The sources of each reduction of the schedule, in order.
    pub(super) reductions: Vec<Operands>,
    /// By operand: whether it is a source that holds a sum in transit. Only averages of 16-bit
    /// floats need this.
    pub(super) sums: OnceLock<Vec<bool>>,
    /// Data that links may receive directly into the output: see [Note: Arrivals].
    pub arrivals: Vec<Arrival>,
    /// The schedule without its steps: the division of the message and of temporary memory.
    pub shape: Schedule,
    /// The other ranks that it communicates with.
    pub neighbours: Vec<Rank>,
    /// The steps of this rank that others may take over.
    pub claims: Vec<u32>,
    /// Whether this rank may take over steps from others.
    pub helps: bool,
    /// The ranks in whose receive buffers this rank writes.
    pub receivers: Vec<Rank>,
    /// The ranks that write in this rank's receive buffers.
    pub senders: Vec<Rank>,
}

impl Program {
    /// One operand.
    #[inline]
    pub fn operand(&self, index: u32) -> &Operand {
        &self.operands[index as usize]
    }

    /// Whether some operand's elements share scales, so that tiles consist of whole blocks.
    pub fn is_scaled(&self) -> bool {
        self.operands
            .iter()
            .any(|operand| operand.encoding.is_scaled())
    }

    /// Determines which sources hold sums in transit, from the schedules of all ranks, unless that
    /// is known.
    ///
    /// # Errors
    ///
    /// The error of `schedules`.
    pub fn find_sums(
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

    /// Whether each of some operands holds a sum in transit, if that has been determined.
    pub fn sums(&self, some: Operands) -> &[bool] {
        let known = self.sums.get();
        known.map_or(&[], |sums| &sums[some.first as usize..some.end as usize])
    }

    /// The operands of a step.
    #[inline]
    pub fn operands(&self, some: Operands) -> &[Operand] {
        &self.operands[some.first as usize..some.end as usize]
    }
}
