//! Plans: an algorithm chosen for a call and compiled for a group.

use std::collections::BTreeSet;

use weft_algorithms::{Algorithm, Memory, Reach, Request, Sizes, Topology};
use weft_schedule::{Buffer, Collective, Encoding, Rank, Schedule, Slice, Step};

use crate::Error;
use crate::call::{Call, Counts, collective_name};

/// One thing that the executor does: a step of the schedule, bound to the links of a group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Instruction {
    /// Copies within memory that this rank reaches.
    Copy { dsts: Vec<Slice>, src: Slice },
    /// Reduces within memory that this rank reaches.
    Reduce {
        dsts: Vec<Slice>,
        srcs: Vec<Slice>,
        last: bool,
    },
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
}

/// What every rank of a group knows alike, and a choice may therefore depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    /// The number of ranks.
    pub(crate) ranks: u32,
    /// Whether all ranks map each other's pools.
    pub(crate) mapped: bool,
    /// Whether all ranks passed the same piece of symmetric memory, mapped by all.
    pub(crate) symmetric: bool,
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
    /// The ranks in whose landing memory this rank writes.
    pub(crate) landing_targets: Vec<Rank>,
    /// The ranks that write in this rank's landing memory.
    pub(crate) landing_sources: Vec<Rank>,
}

/// Tells plans of one group apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlanKey {
    pub(crate) algorithm: u16,
    pub(crate) root: u32,
    pub(crate) symmetric: bool,
    pub(crate) per_rank: bool,
}

impl PlanKey {
    /// The part of a fingerprint that names the plan.
    ///
    /// Never 0, which stands for a plan that is not settled yet.
    pub(crate) fn short(self) -> u16 {
        (self.algorithm + 1) << 1 | u16::from(self.symmetric)
    }
}

/// Below this size a call is bound by latency, in bytes.
const SMALL_BYTES: u64 = 8 << 10;
/// Below this size few steps matter more than few bytes on a network, in bytes.
const MEDIUM_BYTES: u64 = 128 << 10;
/// Beyond this many ranks, the rings that need a landing entry per rank no longer fit.
const RING_RANKS: u32 = 128;
/// Up to this many ranks, latency-bound calls send everything to everybody.
const DIRECT_RANKS: u32 = 16;

/// Chooses the algorithm for a call, from what all ranks know alike.
pub(crate) fn choose(call: &Call, setting: Setting) -> Result<PlanKey, Error> {
    let collective = collective_name(call.collective);
    let per_rank = !matches!(call.counts, Counts::Equal(_));
    let position = match &call.algorithm {
        Some(name) => forced(collective, name, setting, per_rank)?,
        None => preferences(call, setting)
            .iter()
            .find_map(|name| {
                position(collective, name).filter(|p| usable(*p, setting, per_rank).is_ok())
            })
            .ok_or_else(|| {
                Error::Unsupported(format!("no algorithm for {collective} fits this group"))
            })?,
    };
    Ok(PlanKey {
        algorithm: position,
        root: crate::call::root(call.collective).unwrap_or(0),
        symmetric: setting.symmetric && message_bytes(call, setting) > SMALL_BYTES,
        per_rank,
    })
}

fn message_bytes(call: &Call, setting: Setting) -> u64 {
    call.message_elements(setting.ranks) * call.dtype.size() as u64
}

/// The names of the algorithms to try for a call, best first.
fn preferences(call: &Call, setting: Setting) -> &'static [&'static str] {
    let per_rank = !matches!(call.counts, Counts::Equal(_));
    let bytes = if per_rank {
        u64::MAX
    } else {
        message_bytes(call, setting)
    };
    let small = bytes <= SMALL_BYTES && setting.ranks <= DIRECT_RANKS;
    let medium = bytes <= MEDIUM_BYTES && setting.ranks <= DIRECT_RANKS;
    match call.collective {
        Collective::AllReduce if small => &["direct", "ring"],
        Collective::AllReduce if setting.mapped => &["slice-reduce", "ring"],
        Collective::AllReduce if medium => &["two-shot", "ring"],
        Collective::AllReduce => &["ring"],
        Collective::AllGather if setting.mapped && !small => &["mapped", "direct"],
        Collective::AllGather | Collective::ReduceScatter if medium || setting.mapped => {
            &["direct", "ring"]
        }
        Collective::AllGather | Collective::ReduceScatter if setting.ranks > RING_RANKS => {
            &["direct"]
        }
        Collective::AllGather | Collective::ReduceScatter => &["ring", "direct"],
        Collective::Broadcast { .. } if setting.mapped && !small => &["mapped", "binomial"],
        Collective::Reduce { .. } if setting.mapped && !small => &["slice-reduce", "binomial"],
        Collective::Reduce { .. } | Collective::Broadcast { .. } => &["binomial"],
        Collective::AllToAll => &["pairwise"],
        Collective::Gather { .. } | Collective::Scatter { .. } => &["linear"],
        Collective::Barrier => &["dissemination"],
    }
}

/// Whether a call would run differently on symmetric memory.
pub(crate) fn gains_from_symmetric_memory(call: &Call, setting: Setting) -> bool {
    let with = |symmetric| {
        choose(
            call,
            Setting {
                symmetric,
                ..setting
            },
        )
    };
    matches!((with(false), with(true)), (Ok(ordinary), Ok(symmetric)) if ordinary != symmetric)
}

fn position(collective: &str, name: &str) -> Option<u16> {
    weft_algorithms::registry()
        .iter()
        .position(|a| a.collective == collective && a.name == name)
        .map(|p| p as u16)
}

fn forced(collective: &str, name: &str, setting: Setting, per_rank: bool) -> Result<u16, Error> {
    let position = position(collective, name).ok_or_else(|| {
        let known: Vec<&str> = weft_algorithms::registry()
            .iter()
            .filter(|a| a.collective == collective)
            .map(|a| a.name)
            .collect();
        Error::Config(format!(
            "unknown algorithm {name:?} for {collective}; there are: {}",
            known.join(", ")
        ))
    })?;
    usable(position, setting, per_rank)
        .map_err(|why| Error::Config(format!("algorithm {name:?} for {collective} {why}")))?;
    Ok(position)
}

fn usable(position: u16, setting: Setting, per_rank: bool) -> Result<(), &'static str> {
    let requires = &weft_algorithms::registry()[position as usize].requires;
    if requires.symmetric && !setting.symmetric {
        return Err("needs symmetric memory on every rank, all on one host");
    }
    if requires.mapped == Reach::All && !setting.mapped {
        return Err("needs all ranks on one host");
    }
    if per_rank && !requires.per_rank_sizes {
        return Err("needs the same count on every rank");
    }
    Ok(())
}

impl Plan {
    /// Builds and compiles an algorithm. `mapped` says which ranks' memory this rank reaches.
    pub(crate) fn compile(
        key: PlanKey,
        collective: Collective,
        rank: Rank,
        ranks: u32,
        mapped: &dyn Fn(Rank) -> bool,
    ) -> Result<Plan, Error> {
        let algorithm: &'static Algorithm = &weft_algorithms::registry()[key.algorithm as usize];
        let schedule = (algorithm.build)(&Request {
            collective,
            ranks,
            rank,
            memory: if key.symmetric {
                Memory::Symmetric
            } else {
                Memory::Ordinary
            },
            sizes: if key.per_rank {
                Sizes::PerRank
            } else {
                Sizes::Equal
            },
            topology: &Topology::flat(ranks),
            parts: &[],
        });
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
        let touched = slices().map(|slice| slice.rank).filter(|r| *r != rank);
        Ok(Plan {
            neighbours: distinct(told.chain(touched)),
            landing_targets: distinct(targets),
            landing_sources: distinct(sources),
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

/// Splits a copy into what memory reaches and what links must carry. Claimable steps are executed by their owner.
fn lower(step: &Step, rank: Rank, reach: &dyn Fn(Rank) -> bool) -> Vec<Instruction> {
    match step {
        Step::Copy {
            claim: Some(claim), ..
        }
        | Step::Reduce {
            claim: Some(claim), ..
        } if claim.by[0] != rank => {
            vec![]
        }
        Step::Copy { dsts, src, .. } => {
            let (near, far): (Vec<Slice>, Vec<Slice>) =
                dsts.iter().cloned().partition(|dst| reach(dst.rank));
            let puts = far.into_iter().map(|dst| Instruction::Put {
                dst,
                src: src.clone(),
                signal: None,
            });
            let copy = (!near.is_empty()).then(|| Instruction::Copy {
                dsts: near,
                src: src.clone(),
            });
            puts.chain(copy).collect()
        }
        Step::Reduce {
            dsts, srcs, last, ..
        } => vec![Instruction::Reduce {
            dsts: dsts.clone(),
            srcs: srcs.clone(),
            last: *last,
        }],
        Step::Signal { to, id } => vec![Instruction::Signal { to: *to, id: *id }],
        Step::Wait { from, id } => vec![Instruction::Wait {
            from: *from,
            id: *id,
        }],
    }
}

/// Lets a put carry the signal that follows it. The first signal to a peer goes alone: it carries the fingerprint.
fn fuse(program: Vec<Instruction>) -> Vec<Instruction> {
    let mut fused: Vec<Instruction> = Vec::with_capacity(program.len());
    for instruction in program {
        if let (Instruction::Signal { to, id }, Some(Instruction::Put { dst, signal, .. })) =
            (&instruction, fused.last_mut())
            && *to == dst.rank
            && *id > 0
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
    let odd = program.iter().any(|instruction| match instruction {
        Instruction::Copy { dsts, src } => {
            let mixed = dsts.iter().any(|dst| dst.encoding != dsts[0].encoding);
            mixed || dsts[0].encoding == Encoding::Fp8 || src.encoding == Encoding::Fp8
        }
        Instruction::Reduce { dsts, srcs, .. } => dsts
            .iter()
            .chain(srcs)
            .any(|s| s.encoding != Encoding::Native),
        Instruction::Put { dst, src, .. } => dst.encoding != src.encoding,
        _ => false,
    });
    match odd {
        true => Err(Error::Unsupported(
            "this schedule's element encodings".into(),
        )),
        false => Ok(()),
    }
}
