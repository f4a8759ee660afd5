//! Composition of schedules: embedding of the schedule of some ranks, for a window of the message,
//! in the program of all ranks.
//!
//! Ranks are renamed, chunks become ranges of a finer grid, entries of temporary memory follow
//! those of other parts, and signals are counted anew. The verifier proves each result as it proves
//! any other schedule.
//!
//! [Note: In place] A part's `Input` and `Output` both become the whole program's `Output`. So a
//! reduce-scatter leaves its block where its input was, and an all-gather starts from there. That
//! is right as long as a part neither reads its input after it wrote its output, nor writes its
//! output while a peer may read the same chunk of its input: true of all those that are components
//! here.

use std::collections::HashMap;

use weft_schedule::{Buffer, Rank, Schedule, Slice, Step};

use crate::patterns::cuts::Starts;

/// Where a part stands in the program that it is embedded in.
pub(crate) struct EmbeddingSite<'a> {
    /// Which rank a rank within the part is.
    pub(crate) rank_of: &'a dyn Fn(Rank) -> Rank,
    /// By chunk of the part: its first chunk in the whole grid.
    pub(crate) starts: &'a Starts,
    /// Where the part's entries begin among all.
    pub(crate) at: Offset,
    /// Whether all contributions are in once the part has combined those of its ranks.
    pub(crate) complete: bool,
    /// The place of the part's own user memory.
    pub(crate) own: OwnMemory,
}

/// The number of entries of temporary memory before those of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offset {
    pub(crate) scratch: u32,
    pub(crate) receive: u32,
}

/// The place of the user memory of a part's own rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnMemory {
    pub(crate) read: Buffer,
    pub(crate) written: Buffer,
}

impl OwnMemory {
    /// See [Note: In place].
    pub(crate) const IN_PLACE: OwnMemory = OwnMemory {
        read: Buffer::Output,
        written: Buffer::Output,
    };
}

/// The part's steps in the coordinates of the whole program. The numbers of signals are still the
/// part's.
pub(crate) fn embed(part: &Schedule, place: &EmbeddingSite<'_>) -> Vec<Step> {
    let embedding = Embedding {
        rank: part.rank,
        place,
    };
    part.steps
        .iter()
        .filter_map(|step| embedding.step(step))
        .collect()
}

/// The steps of several programs in turns, so that none waits for the end of another.
///
/// The programs must be one and the same but for names, on every rank, however many of them a rank
/// has. Then no rank waits forever: let T order the steps of the one program on all its ranks as
/// they can happen. Whether along a rank's program or from a signal to its wait, the pair of T and
/// the program's index grows. And two ranks meet the signals of all programs that they share in the
/// same order.
pub(crate) fn interleave(programs: Vec<Vec<Step>>) -> Vec<Step> {
    in_turns(
        programs
            .into_iter()
            .map(|steps| steps.into_iter().map(|step| vec![step])),
    )
}

/// The rounds of two programs in turns: a round begins with a wait for the rank that is waited for
/// most.
///
/// Every rank must have both programs, the same on all but for names, with signals that are awaited
/// in later rounds, except the first ones; and no pair of ranks may have signals in both. So no
/// rank waits forever, and no chain of signals gets longer than in the longer program alone.
pub(crate) fn side_by_side(one: Vec<Step>, other: Vec<Step>) -> Vec<Step> {
    in_turns([rounds(one), rounds(other)].map(Vec::into_iter))
}

fn rounds(steps: Vec<Step>) -> Vec<Vec<Step>> {
    let mut waits: HashMap<Rank, u32> = HashMap::new();
    for step in &steps {
        if let Step::Wait { from, .. } = step {
            *waits.entry(*from).or_default() += 1;
        }
    }
    let most = (waits.iter()).max_by_key(|(rank, waits)| (**waits, **rank));
    let source = most.map(|(rank, _)| *rank);
    let mut rounds: Vec<Vec<Step>> = vec![Vec::new()];
    let (mut waiting, mut first) = (false, true);
    for step in steps {
        let waits = matches!(&step, Step::Wait { .. });
        let of_source = matches!(&step, Step::Wait { from, .. } if Some(*from) == source);
        if waits && !waiting && (first || of_source) {
            rounds.push(Vec::new());
        }
        first &= !waits;
        waiting = waits;
        rounds.last_mut().expect("there is one at least").push(step);
    }
    rounds
}

fn in_turns(programs: impl IntoIterator<Item = impl Iterator<Item = Vec<Step>>>) -> Vec<Step> {
    let mut programs: Vec<_> = programs.into_iter().collect();
    let mut steps = Vec::new();
    loop {
        let turn: Vec<Vec<Step>> = programs.iter_mut().filter_map(Iterator::next).collect();
        if turn.is_empty() {
            return steps;
        }
        steps.extend(turn.into_iter().flatten());
    }
}

/// The widths of the entries of temporary memory that all parts together need.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) scratch: Vec<u32>,
    pub(crate) receive: Vec<u32>,
}

impl Entries {
    /// Makes room for a part. Parts at the same place share it.
    pub(crate) fn hold(&mut self, part: &Schedule, starts: &Starts, at: Offset) {
        hold(&mut self.scratch, &part.scratch, starts, at.scratch);
        hold(&mut self.receive, &part.receive, starts, at.receive);
    }

    /// Adds an entry to every rank's own temporary memory, and returns its number.
    pub(crate) fn add_scratch(&mut self, width: u32) -> u32 {
        self.scratch.push(width);
        self.scratch.len() as u32 - 1
    }
}

fn hold(widths: &mut Vec<u32>, part: &[u32], starts: &Starts, at: u32) {
    let end = at as usize + part.len();
    if widths.len() < end {
        widths.resize(end, 0);
    }
    // Some parts have as many entries as ranks, all of one width.
    let mut widest: HashMap<u32, u32> = HashMap::new();
    for (width, of_part) in widths[at as usize..].iter_mut().zip(part) {
        let needed = *(widest.entry(*of_part)).or_insert_with(|| starts.widest(*of_part));
        *width = needed.max(*width);
    }
}

/// Translates one part's steps.
struct Embedding<'a> {
    /// The part's own rank, within the part.
    rank: Rank,
    place: &'a EmbeddingSite<'a>,
}

impl Embedding<'_> {
    /// The step, unless nothing is left of it because it copies a place to itself.
    fn step(&self, step: &Step) -> Option<Step> {
        match step {
            Step::Copy { dsts, src, claim } => {
                assert!(claim.is_none(), "no component has claimable steps");
                let src = self.read(src);
                let mut dsts: Vec<Slice> = dsts.iter().map(|dst| self.written(dst)).collect();
                dsts.retain(|dst| *dst != src);
                (!dsts.is_empty()).then_some(Step::Copy {
                    dsts,
                    src,
                    claim: None,
                })
            }
            Step::Reduce {
                dsts,
                srcs,
                is_final,
                claim,
            } => {
                assert!(claim.is_none(), "no component has claimable steps");
                Some(Step::Reduce {
                    dsts: dsts.iter().map(|dst| self.written(dst)).collect(),
                    srcs: srcs.iter().map(|src| self.read(src)).collect(),
                    is_final: *is_final && self.place.complete,
                    claim: None,
                })
            }
            Step::Signal { to, id } => Some(Step::Signal {
                to: (self.place.rank_of)(*to),
                id: *id,
            }),
            Step::Wait { from, id } => Some(Step::Wait {
                from: (self.place.rank_of)(*from),
                id: *id,
            }),
        }
    }

    fn read(&self, slice: &Slice) -> Slice {
        self.slice(slice, self.place.own.read)
    }

    fn written(&self, slice: &Slice) -> Slice {
        self.slice(slice, self.place.own.written)
    }

    fn slice(&self, slice: &Slice, own: Buffer) -> Slice {
        let place = self.place;
        let start = |chunk: u32| place.starts.of(chunk);
        let buffer = match slice.buffer {
            Buffer::Input | Buffer::Output if slice.rank == self.rank => own,
            Buffer::Input | Buffer::Output => Buffer::Output,
            Buffer::Scratch { entry, base } => Buffer::Scratch {
                entry: place.at.scratch + entry,
                base: start(base),
            },
            Buffer::Receive { from, entry, base } => Buffer::Receive {
                from: (place.rank_of)(from),
                entry: place.at.receive + entry,
                base: start(base),
            },
        };
        Slice {
            rank: (place.rank_of)(slice.rank),
            buffer,
            chunks: start(slice.chunks.start)..start(slice.chunks.end),
            encoding: slice.encoding,
        }
    }
}
