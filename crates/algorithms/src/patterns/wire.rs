//! Wire formats: schedules in which the data between ranks is encoded.
//!
//! [Note: One rounding for all] Receive buffers hold encoded elements. A rank that sends its own
//! elements first writes them, encoded, into scratch memory, and sends that; received elements are
//! sent on unchanged. Reductions read encoded elements exactly and add in the message's own type.
//! If a sender uses sent elements again, as its part of the result or in a later sum, it replaces
//! them by what it has sent: so all ranks continue with the same rounded number. The result of an
//! all-reduce is rounded wherever it is computed, since some ranks may only receive it. The
//! verifier rejects schedules for which this does not suffice.

use std::collections::HashSet;
use std::ops::Range;

use weft_schedule::{Buffer, Collective, Encoding, Rank, Schedule, Slice, Step, WireFormat};

/// A rank's schedule over receive buffers in a wire format. Schedules of one rank stay as they are.
///
/// For ranks that do not all map each other's memory; what they read there directly stays native.
/// Every rank must ask for the same format.
pub fn on_wire(schedule: Schedule, format: WireFormat) -> Schedule {
    let encoding = format.encoding();
    if encoding == Encoding::Native || schedule.ranks == 1 {
        return schedule;
    }
    let staging = schedule.scratch.len() as u32;
    let mut rewriting = Rewriting {
        rank: schedule.rank,
        encoding,
        rounds_results: schedule.collective == Collective::AllReduce,
        staging,
        staged: Vec::new(),
        steps: Vec::with_capacity(schedule.steps.len()),
    };
    for (step, used) in schedule.steps.iter().zip(used_later(&schedule)) {
        rewriting.step(step.clone(), used);
    }
    let chunks = schedule.grid.chunks();
    Schedule {
        steps: rewriting.steps,
        scratch: schedule.scratch.into_iter().chain([chunks]).collect(),
        ..schedule
    }
}

struct Rewriting {
    rank: Rank,
    encoding: Encoding,
    /// Whether final sums are the result of all ranks.
    rounds_results: bool,
    /// The entry of scratch memory, as wide as the message, for what is to be sent.
    staging: u32,
    /// The parts of the output, which no peer writes, that are encoded in that entry.
    staged: Vec<Slice>,
    steps: Vec<Step>,
}

impl Rewriting {
    /// `used`: what the step reads is used again.
    fn step(&mut self, step: Step, used: bool) {
        match step {
            Step::Copy { dsts, src, claim } => {
                let (dsts, src) = (self.received(dsts), self.encoded(src));
                let sends = dsts.iter().any(|dst| self.travels(dst));
                if sends && src.encoding == Encoding::Native && claim.is_none() {
                    self.send(dsts, src, used);
                } else {
                    self.push(Step::Copy { dsts, src, claim });
                }
            }
            Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim,
            } => {
                let (dsts, srcs) = (self.received(dsts), self.received(srcs));
                let rounds = is_final && self.rounds_results && claim.is_none();
                let staging = self.staging_of(dsts[0].chunks.clone());
                self.push(Step::Reduce {
                    dsts: if rounds {
                        vec![staging.clone()]
                    } else {
                        dsts.clone()
                    },
                    srcs,
                    is_final,
                    claim,
                });
                if rounds {
                    self.take_over(dsts, staging);
                }
            }
            step => self.push(step),
        }
    }

    /// Encodes `src`, unless that was done, and sends it. See [Note: One rounding for all].
    fn send(&mut self, mut dsts: Vec<Slice>, src: Slice, used: bool) {
        let staging = self.staging_of(src.chunks.clone());
        if !self.staged.iter().any(|staged| contains(staged, &src)) {
            if used && src.rank == self.rank && src.buffer != Buffer::Input {
                dsts.push(src.clone());
            }
            self.push(copy(vec![staging.clone()], src));
        }
        self.take_over(dsts, staging);
    }

    /// Copies from the staging entry, which then holds what those destinations do.
    fn take_over(&mut self, dsts: Vec<Slice>, staging: Slice) {
        let own = |dst: &&Slice| dst.rank == self.rank && dst.buffer == Buffer::Output;
        let taken: Vec<Slice> = dsts.iter().filter(own).cloned().collect();
        self.push(copy(dsts, staging));
        self.staged.extend(taken);
    }

    /// Adds a step, and forgets what it overwrites.
    fn push(&mut self, step: Step) {
        let dsts: &[Slice] = match &step {
            Step::Copy { dsts, .. } | Step::Reduce { dsts, .. } => dsts,
            Step::Signal { .. } | Step::Wait { .. } => &[],
        };
        let staging = self.staging_of(0..1).buffer;
        let overwrites = |staged: &Slice, dst: &Slice| {
            dst.rank == self.rank
                && (dst.buffer == staging || dst.buffer == staged.buffer)
                && meet(&dst.chunks, &staged.chunks)
        };
        let kept = |staged: &Slice| !dsts.iter().any(|dst| overwrites(staged, dst));
        self.staged.retain(kept);
        self.steps.push(step);
    }

    fn staging_of(&self, chunks: Range<u32>) -> Slice {
        Slice {
            rank: self.rank,
            buffer: Buffer::Scratch {
                entry: self.staging,
                base: 0,
            },
            chunks,
            encoding: self.encoding,
        }
    }

    /// Whether a slice is where a peer receives it.
    fn travels(&self, slice: &Slice) -> bool {
        slice.rank != self.rank && matches!(slice.buffer, Buffer::Receive { .. })
    }

    fn received(&self, slices: Vec<Slice>) -> Vec<Slice> {
        slices
            .into_iter()
            .map(|slice| self.encoded(slice))
            .collect()
    }

    fn encoded(&self, slice: Slice) -> Slice {
        match slice.buffer {
            Buffer::Receive { .. } => Slice {
                encoding: self.encoding,
                ..slice
            },
            _ => slice,
        }
    }
}

/// For each step: whether any of the elements that it reads in the rank's own memory are read
/// again, or are part of the result, before they are overwritten.
fn used_later(schedule: &Schedule) -> Vec<bool> {
    let rank = schedule.rank;
    let has_result = match schedule.collective {
        Collective::Reduce { root } => rank == root,
        _ => true,
    };
    let result = 0..if has_result {
        schedule.grid.chunks()
    } else {
        0
    };
    let mut live: HashSet<(Buffer, u32)> = result.map(|chunk| (Buffer::Output, chunk)).collect();
    let cells = |slices: &[Slice]| -> Vec<(Buffer, u32)> {
        let own = slices.iter().filter(|slice| slice.rank == rank);
        own.flat_map(|slice| slice.chunks.clone().map(|chunk| (slice.buffer, chunk)))
            .collect()
    };
    let mut used = vec![false; schedule.steps.len()];
    for (used, step) in used.iter_mut().zip(&schedule.steps).rev() {
        let (dsts, srcs) = match step {
            Step::Copy { dsts, src, .. } => (cells(dsts), cells(std::slice::from_ref(src))),
            Step::Reduce { dsts, srcs, .. } => (cells(dsts), cells(srcs)),
            Step::Signal { .. } | Step::Wait { .. } => continue,
        };
        *used = srcs.iter().any(|cell| live.contains(cell));
        for cell in dsts {
            live.remove(&cell);
        }
        live.extend(srcs);
    }
    used
}

fn copy(dsts: Vec<Slice>, src: Slice) -> Step {
    Step::Copy {
        dsts,
        src,
        claim: None,
    }
}

/// Whether a slice is part of another one.
fn contains(whole: &Slice, part: &Slice) -> bool {
    (whole.rank, whole.buffer) == (part.rank, part.buffer)
        && whole.chunks.start <= part.chunks.start
        && part.chunks.end <= whole.chunks.end
}

fn meet(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}
