//! Programs for simulation: the executor's actions for a schedule, in few bytes, with times instead
//! of contents.

use std::collections::HashSet;

use weft_schedule::{Buffer, Rank, Schedule, Slice, Step};

use crate::{Host, Job, SimulationError};

/// No signal.
pub(crate) const NO_SIGNAL: u32 = u32::MAX;

/// One thing that a rank does. Peers are given by their place in [`SimulatedProgram::peers`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Action {
    /// Copies or reduces, for `seconds` of an undisturbed thread, reading and writing `traffic`
    /// bytes altogether.
    Work { seconds: f64, traffic: f64 },
    /// Sends bytes over the link to a peer, and a signal behind them unless there is none.
    Put { to: u32, signal: u32, bytes: f64 },
    /// Sends a signal.
    Signal { to: u32, id: u32 },
    /// Waits for a signal.
    Wait { from: u32, id: u32 },
}

/// An action, and the first step of the schedule that it comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SimulatedInstruction {
    pub(crate) action: Action,
    pub(crate) step: u32,
}

/// The work of one rank for every tile.
#[derive(Default)]
pub(crate) struct SimulatedProgram {
    pub(crate) instructions: Vec<SimulatedInstruction>,
    /// All ranks that it exchanges anything with, ascending.
    pub(crate) peers: Vec<Rank>,
    /// The order of peers whose messages arrive together: in the order in which the schedule
    /// mentions them, so that ranks with the same program treat their peers in the same way.
    pub(crate) turns: Vec<u32>,
    /// The peers in whose receive buffers it writes.
    pub(crate) receive_targets: Vec<u32>,
    /// The peers that write in its receive buffer, by turns.
    pub(crate) receive_sources: Vec<u32>,
    /// The steps that reduce. Only where a trace is wanted.
    pub(crate) reductions: Vec<u32>,
}

/// The target of lowering: job and machine.
pub(crate) struct LoweringTarget<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) host: &'a Host,
    pub(crate) host_of_rank: &'a [u32],
    pub(crate) tiles: u64,
}

impl LoweringTarget<'_> {
    /// Whether two ranks map each other's memory.
    fn mapped(&self, a: Rank, b: Rank) -> bool {
        let host = |rank: Rank| self.host_of_rank[rank as usize];
        a == b || (host(a) == host(b) && self.host.loopback.is_none())
    }

    fn bytes(&self, schedule: &Schedule, slice: &Slice) -> f64 {
        self.job
            .slice_bytes(&schedule.grid, &slice.chunks, slice.encoding, self.tiles)
    }

    /// Compiles a schedule as the executor does.
    pub(crate) fn compile(&self, schedule: &Schedule) -> Result<SimulatedProgram, SimulationError> {
        let rank = schedule.rank;
        let slices = || schedule.steps.iter().flat_map(Step::slices);
        let mentioned = schedule.steps.iter().flat_map(|step| {
            let signalled = match step {
                Step::Signal { to, .. } => Some(*to),
                Step::Wait { from, .. } => Some(*from),
                _ => None,
            };
            signalled
                .into_iter()
                .chain(step.slices().map(|slice| slice.rank))
        });
        let (peers, turns) = in_turn(mentioned.filter(|peer| *peer != rank));
        let targets = slices().filter_map(|slice| match slice.buffer {
            Buffer::Receive { from, .. } if from == rank => Some(slice.rank),
            _ => None,
        });
        let sources = slices().filter_map(|slice| match slice.buffer {
            Buffer::Receive { from, .. } if slice.rank == rank => Some(from),
            _ => None,
        });
        let (targets, sources) = (in_turn(targets).0, in_turn(sources).0);
        if let Some(stranger) = peers.iter().chain(&sources).find(|r| **r >= schedule.ranks) {
            return Err(SimulationError::Job(format!(
                "rank {rank}'s schedule names rank {stranger}, which there is not"
            )));
        }
        let receive_targets = places(&peers, &targets, rank)?;
        let mut receive_sources = places(&peers, &sources, rank)?;
        receive_sources.sort_unstable_by_key(|place| turns[*place as usize]);
        let mut lowering = Lowering {
            target: self,
            schedule,
            program: SimulatedProgram {
                receive_targets,
                receive_sources,
                peers,
                turns,
                ..SimulatedProgram::default()
            },
        };
        for (index, step) in schedule.steps.iter().enumerate() {
            lowering.step(index as u32, step)?;
        }
        lowering.program.instructions.shrink_to_fit();
        Ok(lowering.program)
    }
}

/// A program in the making.
struct Lowering<'a> {
    target: &'a LoweringTarget<'a>,
    schedule: &'a Schedule,
    program: SimulatedProgram,
}

impl Lowering<'_> {
    fn step(&mut self, index: u32, step: &Step) -> Result<(), SimulationError> {
        let rank = self.schedule.rank;
        match step {
            // Claimable steps are executed by their owner.
            Step::Copy {
                claim: Some(claim), ..
            }
            | Step::Reduce {
                claim: Some(claim), ..
            } if claim.by.first() != Some(&rank) => {}
            Step::Copy { dsts, src, .. } => self.copy(index, dsts, src)?,
            Step::Reduce { dsts, srcs, .. } => self.reduce(index, dsts, srcs)?,
            Step::Signal { to, id } => self.signal(index, *to, *id),
            Step::Wait { from, id } => {
                let from = self.place(*from);
                self.push(index, Action::Wait { from, id: *id });
            }
        }
        Ok(())
    }

    /// Puts use links; mapped destinations are written in one pass.
    fn copy(&mut self, index: u32, dsts: &[Slice], src: &Slice) -> Result<(), SimulationError> {
        self.check_reach(index, src)?;
        let bytes = self.target.bytes(self.schedule, src);
        let rank = self.schedule.rank;
        let (mut written, mut foreign) = (0.0, 0.0);
        for dst in dsts {
            if !self.target.mapped(rank, dst.rank) {
                let to = self.place(dst.rank);
                self.put(index, to, bytes);
                continue;
            }
            let bytes = self.target.bytes(self.schedule, dst);
            written += bytes;
            foreign += if dst.rank == rank { 0.0 } else { bytes };
        }
        if dsts.iter().any(|dst| self.target.mapped(rank, dst.rank)) {
            foreign += self.foreign(src);
            let host = self.target.host;
            let seconds = bytes * host.read_s_per_byte
                + written * host.write_s_per_byte
                + foreign * host.peer_s_per_byte;
            self.work(index, seconds, bytes + written);
        }
        Ok(())
    }

    fn reduce(
        &mut self,
        index: u32,
        dsts: &[Slice],
        srcs: &[Slice],
    ) -> Result<(), SimulationError> {
        let (mut read, mut foreign, mut written) = (0.0, 0.0, 0.0);
        for src in srcs {
            self.check_reach(index, src)?;
            read += self.target.bytes(self.schedule, src);
            foreign += self.foreign(src);
        }
        for dst in dsts {
            self.check_reach(index, dst)?;
            let bytes = self.target.bytes(self.schedule, dst);
            // Elements reduced in place are in cache when they are written.
            written += if srcs.contains(dst) { 0.0 } else { bytes };
            foreign += if dst.rank == self.schedule.rank {
                0.0
            } else {
                bytes
            };
        }
        let host = self.target.host;
        let seconds = read * host.read_s_per_byte
            + written * host.write_s_per_byte
            + foreign * host.peer_s_per_byte;
        self.program.reductions.push(index);
        self.work(index, seconds, read + written);
        Ok(())
    }

    /// The bytes of a source that are in another rank's memory, or that another rank of the host
    /// has written.
    fn foreign(&self, src: &Slice) -> f64 {
        let rank = self.schedule.rank;
        let written_by_peer = match src.buffer {
            Buffer::Receive { from, .. } => self.target.mapped(rank, from),
            _ => false,
        };
        if src.rank != rank || written_by_peer {
            self.target.bytes(self.schedule, src)
        } else {
            0.0
        }
    }

    /// Neighbouring pieces of work are one, so that it does not matter into how many steps an
    /// algorithm divides it.
    fn work(&mut self, index: u32, more: f64, bytes: f64) {
        if let Some(SimulatedInstruction {
            action: Action::Work { seconds, traffic },
            ..
        }) = self.program.instructions.last_mut()
        {
            *seconds += more;
            *traffic += bytes;
            return;
        }
        let seconds = more + self.target.host.step_s;
        self.push(
            index,
            Action::Work {
                seconds,
                traffic: bytes,
            },
        );
    }

    /// Neighbouring puts to one peer are one message: they are where an algorithm divides a range
    /// of chunks because numbers wrap.
    fn put(&mut self, index: u32, to: u32, more: f64) {
        if let Some(SimulatedInstruction {
            action:
                Action::Put {
                    to: target,
                    signal: NO_SIGNAL,
                    bytes,
                },
            ..
        }) = self.program.instructions.last_mut()
            && *target == to
        {
            *bytes += more;
            return;
        }
        let put = Action::Put {
            to,
            signal: NO_SIGNAL,
            bytes: more,
        };
        self.push(index, put);
    }

    /// A signal behind a put to the same peer travels with it.
    fn signal(&mut self, index: u32, to: Rank, id: u32) {
        let to = self.place(to);
        if let Some(SimulatedInstruction {
            action: Action::Put {
                to: target, signal, ..
            },
            ..
        }) = self.program.instructions.last_mut()
            && *target == to
            && *signal == NO_SIGNAL
        {
            *signal = id;
            return;
        }
        self.push(index, Action::Signal { to, id });
    }

    fn push(&mut self, step: u32, action: Action) {
        self.program
            .instructions
            .push(SimulatedInstruction { action, step });
    }

    /// The place of a peer, which is known to be one.
    fn place(&self, peer: Rank) -> u32 {
        self.program.peers.partition_point(|other| *other < peer) as u32
    }

    fn check_reach(&self, index: u32, slice: &Slice) -> Result<(), SimulationError> {
        let rank = self.schedule.rank;
        if self.target.mapped(rank, slice.rank) {
            return Ok(());
        }
        Err(SimulationError::Job(format!(
            "at step {index} rank {rank} reaches into the memory of rank {}, which it does not map",
            slice.rank
        )))
    }
}

/// The ranks without repetition, ascending, and as which one each was first mentioned.
fn in_turn(mentioned: impl Iterator<Item = Rank>) -> (Vec<Rank>, Vec<u32>) {
    let mut mentions: Vec<(Rank, u32)> = Vec::new();
    let mut seen = HashSet::new();
    for rank in mentioned {
        if seen.insert(rank) {
            mentions.push((rank, mentions.len() as u32));
        }
    }
    mentions.sort_unstable();
    mentions.into_iter().unzip()
}

fn places(peers: &[Rank], of: &[Rank], rank: Rank) -> Result<Vec<u32>, SimulationError> {
    let place = |peer: &Rank| {
        peers
            .binary_search(peer)
            .map(|place| place as u32)
            .map_err(|_| {
                SimulationError::Job(format!(
                    "rank {rank}'s receive buffer is written by rank {peer}, which sends it no \
                                          signal"
                ))
            })
    };
    of.iter().map(place).collect()
}
