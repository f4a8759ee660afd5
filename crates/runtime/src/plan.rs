//! Plans: schedules compiled for the links of a group.

use std::collections::BTreeSet;

use weft_schedule::{Buffer, Claim, Encoding, Rank, Schedule, Slice, Step};
use weft_transport::claim::CLAIMANTS;

use crate::Error;
use crate::channel::CLAIMS;
use crate::ways::Way;

/// What the executor does within memory that this rank reaches.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Work {
    Copy {
        dsts: Vec<Slice>,
        src: Slice,
    },
    Reduce {
        dsts: Vec<Slice>,
        srcs: Vec<Slice>,
        last: bool,
    },
}

/// One thing that the executor does: a step of the schedule, bound to the links of a group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Instruction {
    /// Copies or reduces.
    Work(Work),
    /// Sends `src` into a peer's landing memory over its link, and then the signal.
    Put {
        dst: Slice,
        src: Slice,
        signal: Option<u32>,
    },
    /// Sends a signal.
    Signal { to: Rank, id: u32 },
    /// Waits for a signal.
    Wait { from: Rank, id: u32 },
    /// Copies or reduces, unless a helper has taken that over; then waits until it is done.
    Own { claim: u32, work: Work },
    /// What another rank may be helped with while this one would wait at what follows.
    Help { claim: u32, owner: Rank, work: Work },
}

/// An algorithm compiled for one rank of one group.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The schedule that it was compiled from.
    pub(crate) schedule: Schedule,
    /// What to do.
    pub(crate) program: Vec<Instruction>,
    /// All ranks that it exchanges anything with.
    pub(crate) neighbours: Vec<Rank>,
    /// The steps that others may take over from this rank.
    pub(crate) claims: Vec<u32>,
    /// Whether this rank may take over steps from others.
    pub(crate) helps: bool,
    /// The ranks in whose landing memory this rank writes.
    pub(crate) landing_targets: Vec<Rank>,
    /// The ranks that write in this rank's landing memory.
    pub(crate) landing_sources: Vec<Rank>,
    /// The part of the largest chunk that one tile takes, in bytes, if it shall be less than fits.
    pub(crate) tile_bytes: Option<u64>,
    /// The most tiles that may be under way at once.
    pub(crate) tiles_in_flight: usize,
}

/// Tells plans of one group apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlanKey {
    /// Which of the ways that the group's chooser knows.
    pub(crate) way: u32,
    pub(crate) root: u32,
    pub(crate) symmetric: bool,
    pub(crate) per_rank: bool,
    /// The part of a fingerprint that names the plan: a hash, the same on all ranks that mean the same. Never 0.
    pub(crate) short: u16,
}

impl Plan {
    /// Compiles a schedule. `mapped` says which ranks' memory this rank reaches.
    pub(crate) fn compile(
        schedule: Schedule,
        way: &Way,
        mapped: &dyn Fn(Rank) -> bool,
    ) -> Result<Plan, Error> {
        let rank = schedule.rank;
        let reach = |peer: Rank| peer == rank || mapped(peer);
        let program = fuse(
            schedule
                .steps
                .iter()
                .flat_map(|s| lower(s, rank, &reach))
                .collect(),
        );
        check_encodings(&program)?;
        let slices = || schedule.steps.iter().flat_map(slices_of);
        let targets = slices().filter_map(|slice| match slice.buffer {
            Buffer::Landing { from, .. } if from == rank => Some(slice.rank),
            _ => None,
        });
        let sources = slices().filter_map(|slice| match slice.buffer {
            Buffer::Landing { from, .. } if slice.rank == rank => Some(from),
            _ => None,
        });
        let told = schedule.steps.iter().filter_map(|step| match step {
            Step::Signal { to, .. } => Some(*to),
            Step::Wait { from, .. } => Some(*from),
            _ => None,
        });
        let touched = slices().map(|slice| slice.rank);
        let claims = schedule.steps.iter().filter_map(claim_of);
        let involved = told
            .chain(touched)
            .chain(claims.flat_map(|c| c.by.iter().copied()));
        let owned = program.iter().filter_map(|instruction| match instruction {
            Instruction::Own { claim, .. } => Some(*claim),
            _ => None,
        });
        Ok(Plan {
            neighbours: distinct(involved.filter(|r| *r != rank)),
            claims: owned.collect(),
            helps: program
                .iter()
                .any(|i| matches!(i, Instruction::Help { .. })),
            landing_targets: distinct(targets),
            landing_sources: distinct(sources),
            tile_bytes: way.tiling.tile_bytes,
            tiles_in_flight: way.tiles_in_flight(),
            program,
            schedule,
        })
    }
}

fn distinct(ranks: impl Iterator<Item = Rank>) -> Vec<Rank> {
    ranks.collect::<BTreeSet<Rank>>().into_iter().collect()
}

fn slices_of(step: &Step) -> Vec<&Slice> {
    match step {
        Step::Copy { dsts, src, .. } => dsts.iter().chain([src]).collect(),
        Step::Reduce { dsts, srcs, .. } => dsts.iter().chain(srcs).collect(),
        Step::Signal { .. } | Step::Wait { .. } => vec![],
    }
}

fn claim_of(step: &Step) -> Option<&Claim> {
    match step {
        Step::Copy { claim, .. } | Step::Reduce { claim, .. } => claim.as_ref(),
        Step::Signal { .. } | Step::Wait { .. } => None,
    }
}

/// Binds a step to links, and to the word by which it is claimed. Those that there is no word for are executed by their owner.
fn lower(step: &Step, rank: Rank, reach: &dyn Fn(Rank) -> bool) -> Vec<Instruction> {
    let program = split(step, reach);
    let Some(claim) = claim_of(step) else {
        return program;
    };
    let (id, owner) = (claim.id, claim.by[0]);
    let known = id < CLAIMS && claim.by.len() > 1 && claim.by.iter().all(|by| *by < CLAIMANTS);
    let wrap = |instruction| match instruction {
        Instruction::Work(work) if owner == rank => Instruction::Own { claim: id, work },
        Instruction::Work(work) => Instruction::Help {
            claim: id,
            owner,
            work,
        },
        // Who may claim a step maps all of its slices, so there is nothing else.
        other => other,
    };
    match known {
        true => program.into_iter().map(wrap).collect(),
        false if owner == rank => program,
        false => vec![],
    }
}

/// Splits a copy into what memory reaches and what links must carry.
fn split(step: &Step, reach: &dyn Fn(Rank) -> bool) -> Vec<Instruction> {
    match step {
        Step::Copy { dsts, src, .. } => {
            let (near, far): (Vec<Slice>, Vec<Slice>) =
                dsts.iter().cloned().partition(|dst| reach(dst.rank));
            let puts = far.into_iter().map(|dst| Instruction::Put {
                dst,
                src: src.clone(),
                signal: None,
            });
            let copy = (!near.is_empty()).then(|| {
                Instruction::Work(Work::Copy {
                    dsts: near,
                    src: src.clone(),
                })
            });
            puts.chain(copy).collect()
        }
        Step::Reduce {
            dsts, srcs, last, ..
        } => vec![Instruction::Work(Work::Reduce {
            dsts: dsts.clone(),
            srcs: srcs.clone(),
            last: *last,
        })],
        Step::Signal { to, id } => vec![Instruction::Signal { to: *to, id: *id }],
        Step::Wait { from, id } => vec![Instruction::Wait {
            from: *from,
            id: *id,
        }],
    }
}

/// Lets a put carry the signal that follows it.
fn fuse(program: Vec<Instruction>) -> Vec<Instruction> {
    let mut fused: Vec<Instruction> = Vec::with_capacity(program.len());
    for instruction in program {
        if let (Instruction::Signal { to, id }, Some(Instruction::Put { dst, signal, .. })) =
            (&instruction, fused.last_mut())
            && *to == dst.rank
            && signal.is_none()
        {
            *signal = Some(*id);
            continue;
        }
        fused.push(instruction);
    }
    fused
}

fn check_encodings(program: &[Instruction]) -> Result<(), Error> {
    match program.iter().any(is_odd) {
        true => Err(Error::Unsupported(
            "this schedule's element encodings".into(),
        )),
        false => Ok(()),
    }
}

/// Whether the kernels have no conversion for it.
fn is_odd(instruction: &Instruction) -> bool {
    match instruction {
        Instruction::Work(work)
        | Instruction::Own { work, .. }
        | Instruction::Help { work, .. } => match work {
            Work::Copy { dsts, src } => {
                let mixed = dsts.iter().any(|dst| dst.encoding != dsts[0].encoding);
                mixed || dsts[0].encoding == Encoding::Fp8 || src.encoding == Encoding::Fp8
            }
            Work::Reduce { dsts, srcs, .. } => dsts
                .iter()
                .chain(srcs)
                .any(|s| s.encoding != Encoding::Native),
        },
        Instruction::Put { dst, src, .. } => dst.encoding != src.encoding,
        Instruction::Signal { .. } | Instruction::Wait { .. } => false,
    }
}
