//! Interpreter of compiled programs, shared by both drivers: tiles in lanes, and operations on the
//! calling thread.
//!
//! A driver implements the differences: the places of slots, the numbers of flags, the sending of
//! fingerprints, puts over links, and claims of steps. All of it is resolved at compile time.

use std::fmt;

use weft_call::{Call, Fingerprint};
use weft_channel::INLINE_RANKS;
use weft_flight::OpenStage;
use weft_kernels::AverageStep;
use weft_memory::access::{self, represented};
use weft_program::{Geometry, Instruction, Kernel, LocalStep, Location, Operand, Program};
use weft_schedule::{Rank, SignalId};
use weft_transport::LinkError;

use crate::Error;

/// The least bytes of a message whose results are copied past the caches, which will not keep them
/// until they are used.
const PAST_CACHES_BYTES: u64 = 16 << 20;

/// The reason why an operation is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// A signal has not arrived.
    Signal { from: u32, id: u32 },
    /// A peer has not ended an earlier tile that used the same receive buffer.
    Credit { from: u32 },
    /// A peer has not granted its memory: it has not made this call, or not yet.
    Grant { from: u32 },
    /// The link to a peer accepts no more bytes for now.
    Link { to: u32 },
    /// The memory to send to a peer is not registered yet.
    Registration { to: u32 },
    /// A peer is executing a step of this rank's.
    Claimed { by: u32 },
}

impl Blocked {
    /// Whether the link to the rank takes no more bytes.
    pub(crate) fn is_link(self) -> bool {
        matches!(self, Blocked::Link { .. })
    }

    /// The rank that it waits for.
    pub(crate) fn rank(self) -> u32 {
        match self {
            Blocked::Signal { from, .. } | Blocked::Credit { from } | Blocked::Grant { from } => {
                from
            }
            Blocked::Link { to } | Blocked::Registration { to } => to,
            Blocked::Claimed { by } => by,
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocked::Signal { id: 0, .. } => {
                write!(f, "which has not made this call, or not begun its part")
            }
            Blocked::Signal { .. } => write!(f, "which has not completed its part of this call"),
            Blocked::Credit { .. } => write!(f, "which has not received what was sent before"),
            Blocked::Grant { .. } => write!(f, "which has not made this call"),
            Blocked::Link { .. } => write!(f, "which does not receive what is being sent"),
            Blocked::Registration { .. } => {
                write!(
                    f,
                    "to which nothing is sent before this rank's memory is registered"
                )
            }
            Blocked::Claimed { .. } => {
                write!(f, "which has not finished a step that it has claimed")
            }
        }
    }
}

/// A failure that ends a group.
#[derive(Debug)]
pub(crate) enum GroupFailure {
    /// The link to this rank has failed.
    Link(u32, LinkError),
    /// A rank made another call.
    Desync {
        rank: u32,
        mine: Fingerprint,
        theirs: Fingerprint,
    },
    /// Any other error.
    Other(Error),
}

impl GroupFailure {
    pub(crate) fn internal(message: &str) -> Self {
        GroupFailure::Other(Error::Internal(message.into()))
    }
}

/// The reason why an operation is blocked; `None` if it has advanced.
pub(crate) type Advance = Result<Option<Blocked>, GroupFailure>;

/// The tile of an operation that a driver runs.
#[derive(Clone, Copy)]
pub(crate) struct ProgramFrame<'a> {
    pub(crate) program: &'a Program,
    pub(crate) geometry: &'a Geometry,
    pub(crate) call: &'a Call,
    pub(crate) tile: u64,
}

/// The instructions that the two drivers execute differently.
pub(crate) trait Driver {
    /// The first byte of a location's slot; for user memory, of the rank's buffer.
    fn base(&self, location: Location) -> *mut u8;

    /// Waits for a signal and, at a peer's first, compares its call with this rank's.
    fn wait(&mut self, from: Rank, id: SignalId) -> Advance;

    /// Signals and, at the first to a peer, sends the fingerprint of this rank's call.
    fn signal(&mut self, to: Rank, id: SignalId) -> Advance;

    /// Sends an operand over a link, then signals.
    fn put(&mut self, _to: Rank, _dst: u32, _src: u32, _signal: Option<SignalId>) -> Advance {
        Err(GroupFailure::internal("a put where all memory is mapped"))
    }

    /// Copies the bytes of an arrival that are not in the output already.
    fn arrive(&mut self, _arrival: u32, _step: LocalStep) -> Result<(), GroupFailure> {
        Err(GroupFailure::internal(
            "an arrival where all memory is mapped",
        ))
    }

    /// Executes the step at this place of the program unless another rank has, or leaves it to
    /// others.
    fn claimable(&mut self, _at: usize, _claim: u32, _owner: Rank, _step: LocalStep) -> Advance {
        Err(GroupFailure::internal("a claimable step outside of lanes"))
    }

    /// Returns what a step in mapped memory waits for.
    #[inline]
    fn before_local(&mut self, _step: LocalStep) -> Advance {
        Ok(None)
    }

    /// Records that a step in mapped memory begins.
    #[inline]
    fn begin_step(&self, _step: LocalStep) -> Option<OpenStage> {
        None
    }

    /// Records that a step has ended, and the bytes that it has read and written.
    #[inline]
    fn end_step(&self, _stage: Option<OpenStage>, _bytes: u64) {}

    /// Counts bytes read or written. False if other operations should get their turn now.
    fn spend(&mut self, _bytes: u64) -> bool {
        true
    }

    /// A buffer for the addresses of a step with many operands, reused for later steps.
    fn addresses(&mut self) -> Vec<*mut u8> {
        Vec::new()
    }

    /// Returns that buffer.
    fn keep_addresses(&mut self, _addresses: Vec<*mut u8>) {}
}

/// Executes instructions from `next` on, until one is blocked, other operations should get their
/// turn, or the program has ended.
#[inline]
pub(crate) fn run<D: Driver>(driver: &mut D, frame: ProgramFrame<'_>, next: &mut usize) -> Advance {
    while let Some(instruction) = frame.program.instructions.get(*next) {
        let blocked = match *instruction {
            Instruction::Wait { from, id } => driver.wait(from, id)?,
            Instruction::Signal { to, id } => driver.signal(to, id)?,
            Instruction::Local(step) => {
                let blocked = driver.before_local(step)?;
                if blocked.is_none() {
                    execute(driver, frame, step);
                }
                blocked
            }
            Instruction::Arrive { arrival, step } => {
                let blocked = driver.before_local(step)?;
                if blocked.is_none() {
                    driver.arrive(arrival, step)?;
                }
                blocked
            }
            Instruction::Put {
                to,
                dst,
                src,
                signal,
            } => driver.put(to, dst, src, signal)?,
            Instruction::Claimable { claim, owner, step } => {
                driver.claimable(*next, claim, owner, step)?
            }
        };
        if blocked.is_some() {
            return Ok(blocked);
        }
        *next += 1;
        if !driver.spend(0) {
            break;
        }
    }
    Ok(None)
}

/// Executes a step in mapped memory.
#[inline]
pub(crate) fn execute<D: Driver>(driver: &mut D, frame: ProgramFrame<'_>, step: LocalStep) {
    const FEW: usize = 8;
    const SOME: usize = 2 * INLINE_RANKS;
    let operands = frame.program.operands(step.operands);
    let stage = driver.begin_step(step);
    let bytes = if operands.len() <= FEW {
        let mut addresses = [std::ptr::null_mut(); FEW];
        execute_at(
            driver,
            frame,
            step,
            operands,
            &mut addresses[..operands.len()],
        )
    } else if operands.len() <= SOME {
        let mut addresses = [std::ptr::null_mut(); SOME];
        execute_at(
            driver,
            frame,
            step,
            operands,
            &mut addresses[..operands.len()],
        )
    } else {
        let mut addresses = driver.addresses();
        addresses.resize(operands.len(), std::ptr::null_mut());
        let bytes = execute_at(driver, frame, step, operands, &mut addresses);
        driver.keep_addresses(addresses);
        bytes
    };
    driver.end_step(stage, bytes);
    driver.spend(bytes);
}

#[inline]
fn execute_at<D: Driver>(
    driver: &D,
    frame: ProgramFrame<'_>,
    step: LocalStep,
    operands: &[Operand],
    addresses: &mut [*mut u8],
) -> u64 {
    let ProgramFrame {
        program,
        geometry,
        call,
        tile,
    } = frame;
    let shape = &program.shape;
    let destinations = step.destinations as usize;
    let measured = program.operand(step.measured);
    let past_caches = || {
        geometry.message_bytes() >= PAST_CACHES_BYTES
            && operands[..destinations]
                .iter()
                .all(|operand| matches!(operand.location, Location::Output(_)))
    };
    let mut moved = 0;
    for piece in 0..geometry.pieces(measured) {
        let elements = geometry.elements(shape, measured, piece, tile);
        for (address, operand) in addresses.iter_mut().zip(operands) {
            let offset = geometry.offset(shape, operand, piece, tile);
            *address = driver.base(operand.location).wrapping_add(offset as usize);
        }
        let (dsts, srcs) = addresses.split_at(destinations);
        let bytes = |operand: &Operand| geometry.bytes(operand.encoding, elements);
        match step.kernel {
            // SAFETY: see [Note: Memory access].
            Kernel::Copy if past_caches() => unsafe {
                access::copy_past_caches(dsts, srcs[0], bytes(&operands[0]));
            },
            // SAFETY: as above.
            Kernel::Copy => unsafe { access::copy(dsts, srcs[0], bytes(&operands[0])) },
            Kernel::Convert => {
                let of = |operand: &Operand| operand.representation(call, shape.ranks);
                let (to, from) = (of(&operands[0]), of(&operands[destinations]));
                // SAFETY: as above.
                unsafe { access::convert(dsts, to, srcs[0], from, elements) };
            }
            Kernel::Reduce {
                is_final,
                native: true,
            } => {
                let elements = elements as usize;
                if call.averages_halves() {
                    let average = AverageStep {
                        contributions: shape.ranks,
                        is_last: is_final,
                        sums: program
                            .sums(step.operands)
                            .get(destinations..)
                            .unwrap_or(&[]),
                    };
                    // SAFETY: as above.
                    unsafe { access::average_halves(call, average, dsts, srcs, elements) };
                } else {
                    let finish = call.op.finish(is_final, shape.ranks);
                    // SAFETY: as above.
                    unsafe { access::reduce(call, finish, dsts, srcs, elements) };
                }
            }
            Kernel::Reduce { is_final, .. } => {
                let finish = call.op.finish(is_final, shape.ranks);
                let (to, from) = operands.split_at(destinations);
                let of = |operand: &Operand| operand.representation(call, shape.ranks);
                let dsts = dsts.iter().zip(to).map(|(at, to)| represented(*at, of(to)));
                let srcs = srcs.iter().zip(from);
                let srcs = srcs.map(|(at, from)| represented(at.cast_const(), of(from)));
                let (dsts, srcs): (Vec<_>, Vec<_>) = (dsts.collect(), srcs.collect());
                let elements = elements as usize;
                // SAFETY: as above.
                unsafe { access::reduce_represented(call, finish, &dsts, &srcs, elements) };
            }
        }
        moved += bytes(&operands[0]) * operands.len() as u64;
    }
    moved
}
