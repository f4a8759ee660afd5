//! Compiler from a schedule to a program for the links of a group.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use weft_call::Error;
use weft_channel::CLAIMS;
use weft_schedule::{Buffer, Claim, Encoding, Rank, Schedule, Slice, Step};
use weft_transport::claim::CLAIMANTS;

use super::arrivals::{Arrival, ArrivalSteps, arrivals, output_first};
use super::instruction::{Instruction, Kernel, LocalStep, Location, Operand, Operands, Program};

impl Program {
    /// Compiles a schedule. `mapped` returns whether this rank maps the memory of another.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the kernels lack a conversion between its element encodings.
    pub fn compile(schedule: &Schedule, mapped: &dyn Fn(Rank) -> bool) -> Result<Program, Error> {
        let rank = schedule.rank;
        let reached = |other: Rank| other == rank || mapped(other);
        check_encodings(schedule, &reached)?;
        let linked = |other: Rank| !reached(other);
        let schedule = &output_first(schedule, &linked);
        let compiler = Compiler {
            schedule,
            reached: &reached,
            operands: Vec::new(),
            reductions: Vec::new(),
            instructions: Vec::with_capacity(schedule.steps.len()),
        };
        let Compiled {
            operands,
            reductions,
            instructions,
            arrivals,
        } = compiler.compile(&arrivals(schedule, &linked));
        let slices = || schedule.steps.iter().flat_map(Step::slices);
        let receivers = slices().filter_map(|slice| match slice.buffer {
            Buffer::Receive { from, .. } if from == rank => Some(slice.rank),
            _ => None,
        });
        let senders = slices().filter_map(|slice| match slice.buffer {
            Buffer::Receive { from, .. } if slice.rank == rank => Some(from),
            _ => None,
        });
        let signalled = schedule.steps.iter().filter_map(|step| match step {
            Step::Signal { to, .. } => Some(*to),
            Step::Wait { from, .. } => Some(*from),
            _ => None,
        });
        let touched = slices().map(|slice| slice.rank);
        let claimants = schedule.steps.iter().filter_map(claim_of);
        let claimants = claimants.flat_map(|claim| claim.by.iter().copied());
        let involved = signalled.chain(touched).chain(claimants);
        let claimable = |instruction: &Instruction| match instruction {
            Instruction::Claimable { claim, owner, .. } => Some((*claim, *owner)),
            _ => None,
        };
        let claims = || instructions.iter().filter_map(claimable);
        Ok(Program {
            neighbours: distinct(involved.filter(|other| *other != rank)),
            claims: (claims().filter(|(_, owner)| *owner == rank))
                .map(|(claim, _)| claim)
                .collect(),
            helps: claims().any(|(_, owner)| owner != rank),
            receivers: distinct(receivers),
            senders: distinct(senders),
            shape: Schedule {
                steps: Vec::new(),
                ..schedule.clone()
            },
            operands,
            reductions,
            sums: OnceLock::new(),
            instructions,
            arrivals,
        })
    }
}

fn distinct(ranks: impl Iterator<Item = Rank>) -> Vec<Rank> {
    ranks.collect::<BTreeSet<Rank>>().into_iter().collect()
}

fn claim_of(step: &Step) -> Option<&Claim> {
    match step {
        Step::Copy { claim, .. } | Step::Reduce { claim, .. } => claim.as_ref(),
        Step::Signal { .. } | Step::Wait { .. } => None,
    }
}

struct Compiler<'a> {
    schedule: &'a Schedule,
    reached: &'a dyn Fn(Rank) -> bool,
    operands: Vec<Operand>,
    reductions: Vec<Operands>,
    instructions: Vec<Instruction>,
}

struct Compiled {
    operands: Vec<Operand>,
    reductions: Vec<Operands>,
    instructions: Vec<Instruction>,
    arrivals: Vec<Arrival>,
}

impl Compiler<'_> {
    fn compile(mut self, expected: &[ArrivalSteps]) -> Compiled {
        let mut arrivals: Vec<Arrival> = Vec::with_capacity(expected.len());
        // By step: the number of instructions before it.
        let mut starts = Vec::with_capacity(self.schedule.steps.len());
        for (at, step) in self.schedule.steps.iter().enumerate() {
            starts.push(self.instructions.len());
            self.step(step);
            if let Some(arrival) = expected.iter().find(|arrival| arrival.at == at)
                && let Some(Instruction::Local(step)) = self.instructions.pop()
            {
                self.instructions.push(Instruction::Arrive {
                    arrival: arrivals.len() as u32,
                    step,
                });
                arrivals.push(Arrival {
                    from: arrival.from,
                    after: starts[arrival.after],
                    at: starts[at],
                });
            }
        }
        Compiled {
            operands: self.operands,
            reductions: self.reductions,
            instructions: self.instructions,
            arrivals,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Copy { dsts, src, claim } => self.copy(dsts, src, claim.as_ref()),
            Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim,
            } => {
                let native = |slice: &Slice| slice.encoding == Encoding::Native;
                let kernel = Kernel::Reduce {
                    is_final: *is_final,
                    native: dsts.iter().chain(srcs).all(native),
                };
                let first = (self.operands.len() + dsts.len()) as u32;
                let end = first + srcs.len() as u32;
                self.reductions.push(Operands { first, end });
                self.local(kernel, dsts, srcs, claim.as_ref());
            }
            Step::Signal { to, id } => self.signal(*to, *id),
            Step::Wait { from, id } => self.instructions.push(Instruction::Wait {
                from: *from,
                id: *id,
            }),
        }
    }

    /// Splits a copy into its part in mapped memory and its parts over links.
    fn copy(&mut self, dsts: &[Slice], src: &Slice, claim: Option<&Claim>) {
        let reached = |dst: &Slice| (self.reached)(dst.rank);
        let (near, far): (Vec<Slice>, Vec<Slice>) = dsts.iter().cloned().partition(reached);
        for dst in far {
            let put = Instruction::Put {
                to: dst.rank,
                dst: self.add(&dst),
                src: self.add(src),
                signal: None,
            };
            self.instructions.push(put);
        }
        // One pass for each encoding; a step that may be claimed has only one.
        let mut near = near.as_slice();
        while let Some(first) = near.first() {
            let same_encoding = near.iter().take_while(|dst| dst.encoding == first.encoding);
            let (dsts, rest) = near.split_at(same_encoding.count());
            let kernel = match first.encoding == src.encoding {
                true => Kernel::Copy,
                false => Kernel::Convert,
            };
            self.local(kernel, dsts, std::slice::from_ref(src), claim);
            near = rest;
        }
    }

    /// Adds a step in mapped memory. The ranks that may claim it map all of its operands. A claim
    /// without a word for it is dropped: its owner executes the step.
    fn local(&mut self, kernel: Kernel, dsts: &[Slice], srcs: &[Slice], claim: Option<&Claim>) {
        let first = self.operands.len() as u32;
        for slice in dsts.iter().chain(srcs) {
            self.add(slice);
        }
        let end = self.operands.len() as u32;
        // The source determines the length of a copy; any operand that of a reduction.
        let (destinations, is_user) = (dsts.len() as u32, |i: &u32| {
            self.operands[*i as usize].is_user()
        });
        let candidates = match kernel {
            Kernel::Copy | Kernel::Convert => end - 1..end,
            Kernel::Reduce { .. } => first..end,
        };
        let step = LocalStep {
            kernel,
            operands: Operands { first, end },
            destinations,
            measured: candidates.into_iter().find(is_user).unwrap_or(first),
        };
        let instruction = match claim {
            None => Instruction::Local(step),
            Some(Claim { id, by }) => {
                let owner = by[0];
                let known = *id < CLAIMS && by.len() > 1 && by.iter().all(|by| *by < CLAIMANTS);
                match (known, owner == self.schedule.rank) {
                    (true, _) => Instruction::Claimable {
                        claim: *id,
                        owner,
                        step,
                    },
                    (false, true) => Instruction::Local(step),
                    (false, false) => return,
                }
            }
        };
        self.instructions.push(instruction);
    }

    /// Adds a signal, to the preceding put if there is one.
    fn signal(&mut self, to: Rank, id: u32) {
        match self.instructions.last_mut() {
            Some(Instruction::Put {
                to: receiver,
                signal: signal @ None,
                ..
            }) if *receiver == to => *signal = Some(id),
            _ => self.instructions.push(Instruction::Signal { to, id }),
        }
    }

    fn add(&mut self, slice: &Slice) -> u32 {
        let Schedule {
            collective,
            ranks,
            grid,
            ..
        } = self.schedule;
        let rank = slice.rank;
        // A buffer of one block begins at the rank's block.
        let block = |is_block: bool| match is_block {
            true => rank * (grid.chunks() / ranks),
            false => 0,
        };
        let (location, origin) = match slice.buffer {
            Buffer::Input => (Location::Input(rank), block(collective.input_is_block())),
            Buffer::Output => (Location::Output(rank), block(collective.output_is_block())),
            Buffer::Scratch { entry, base } => (Location::Scratch { rank, entry }, base),
            Buffer::Receive { from, entry, base } if rank == self.schedule.rank => {
                (Location::Receive { from, entry }, base)
            }
            Buffer::Receive { entry, base, .. } => {
                (Location::PeerReceive { to: rank, entry }, base)
            }
        };
        self.operands.push(Operand {
            location,
            chunks: slice.chunks.clone(),
            origin,
            encoding: slice.encoding,
        });
        self.operands.len() as u32 - 1
    }
}

/// Rejects encodings that the kernels cannot convert, and puts that would have to convert, since
/// links carry bytes unchanged. Both drivers of a program support everything else.
fn check_encodings(schedule: &Schedule, reached: &dyn Fn(Rank) -> bool) -> Result<(), Error> {
    let known = |step: &Step| match step {
        Step::Copy { dsts, src, claim } => {
            let mut near = dsts.iter().filter(|dst| reached(dst.rank));
            let mut far = dsts.iter().filter(|dst| !reached(dst.rank));
            let converts = |dst: &Slice| {
                dst.encoding == src.encoding
                    || [dst, src]
                        .iter()
                        .any(|slice| slice.encoding == Encoding::Native)
                    || ![dst, src].iter().any(|slice| slice.encoding.is_scaled())
            };
            let first = near.clone().next().map(|dst| dst.encoding);
            near.clone().all(converts)
                && (claim.is_none() || near.all(|dst| Some(dst.encoding) == first))
                && far.all(|dst| dst.encoding == src.encoding)
        }
        Step::Reduce { .. } | Step::Signal { .. } | Step::Wait { .. } => true,
    };
    match schedule.steps.iter().all(known) {
        true => Ok(()),
        false => Err(Error::Unsupported(
            "this schedule's element encodings".into(),
        )),
    }
}
