//! Schedules lowered for the latency path: one tile, all memory mapped, addresses left to fill in.

use std::ops::Range;

use weft_schedule::{Buffer, Collective, Encoding, Grid, Rank, Schedule, Slice, Step};

use crate::channel::{INLINE_HEADER, INLINE_LANDING, INLINE_LINE, INLINE_SCRATCH};
use crate::geometry::{grid_largest, grid_start};
use crate::inline::INLINE_RANKS;

/// Entries of at least so many bytes begin on such a boundary, for the sake of vector loads.
const ALIGNMENT: u64 = INLINE_LINE;

/// Where an operand lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Store {
    /// A rank's source memory.
    Input(Rank),
    /// A rank's destination memory.
    Output(Rank),
    /// A rank's temporary memory.
    Scratch { rank: Rank, entry: u32 },
    /// Where a peer puts something for this rank.
    Inbox { from: Rank, entry: u32 },
    /// Where this rank puts something for a peer.
    Outbox { to: Rank, entry: u32 },
}

/// Some chunks in a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operand {
    pub(crate) store: Store,
    pub(crate) chunks: Range<u32>,
    /// The chunk that lies at the store's beginning.
    origin: u32,
}

/// One step of a lowered schedule.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Action {
    Signal {
        to: Rank,
        id: u32,
    },
    Wait {
        from: Rank,
        id: u32,
    },
    Copy {
        dsts: Vec<Operand>,
        src: Operand,
    },
    Reduce {
        dsts: Vec<Operand>,
        srcs: Vec<Operand>,
        last: bool,
    },
}

/// A lowered schedule.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    pub(crate) actions: Vec<Action>,
    grid: Grid,
    landing: Vec<u32>,
    scratch: Vec<u32>,
}

impl Program {
    /// Lowers a schedule that leaves nothing to claim, converts nothing, and has no step with more slices than there can be ranks.
    pub(crate) fn lower(schedule: &Schedule) -> Option<Program> {
        let actions: Vec<Action> = schedule
            .steps
            .iter()
            .map(|step| lower_step(step, schedule))
            .collect::<Option<_>>()?;
        Some(Program {
            actions,
            grid: schedule.grid.clone(),
            landing: schedule.landing.clone(),
            scratch: schedule.scratch.clone(),
        })
    }

    /// Whether the rank signals to every other and waits for every other. If all ranks do, none ends before all have begun.
    pub(crate) fn is_in_step(&self, ranks: u32) -> bool {
        let first = |action: &&Action| {
            matches!(
                action,
                Action::Signal { id: 0, .. } | Action::Wait { id: 0, .. }
            )
        };
        self.actions.iter().filter(first).count() == 2 * (ranks as usize - 1)
    }

    /// Whom the first signal tells no more than that this rank has entered.
    pub(crate) fn entries(&self) -> Vec<Rank> {
        let entry = |action: &Action| match action {
            Action::Signal { to, id: 0 } => Some(*to),
            _ => None,
        };
        self.actions.iter().map_while(entry).collect()
    }

    /// What is left of a rank's program if all have told each other that they have entered, by a signal before the others. `entries` are
    /// those of every rank.
    pub(crate) fn after_entry(self, rank: Rank, entries: &[Vec<Rank>]) -> Program {
        let entry = |from: Rank, to: Rank| entries[from as usize].contains(&to);
        let left = |action| match action {
            Action::Signal { to, id } if !entry(rank, to) => {
                Some(Action::Signal { to, id: id + 1 })
            }
            Action::Wait { from, id } if !entry(from, rank) => {
                Some(Action::Wait { from, id: id + 1 })
            }
            Action::Signal { id: 0, .. } | Action::Wait { id: 0, .. } => None,
            action => Some(action),
        };
        Program {
            actions: self.actions.into_iter().filter_map(left).collect(),
            ..self
        }
    }

    /// Whether an operation's temporary entries have room in their slots.
    pub(crate) fn fits(&self, elements: u64, size: u64) -> bool {
        let total = |widths: &[u32]| -> u64 {
            widths
                .iter()
                .map(|width| self.entry_bytes(*width, elements, size))
                .sum()
        };
        total(&self.landing) <= INLINE_LANDING && total(&self.scratch) <= INLINE_SCRATCH
    }

    /// Where its chunks lie in a message of so many elements of this size.
    pub(crate) fn cut(&self, elements: u64, size: u64) -> Cut<'_> {
        let mut starts = [0; FEW_CHUNKS];
        for (chunk, start) in (0..=self.grid.chunks()).zip(&mut starts) {
            *start = grid_start(&self.grid, elements, chunk);
        }
        Cut {
            program: self,
            elements,
            size,
            largest: grid_largest(&self.grid, elements),
            starts,
        }
    }

    fn entry_bytes(&self, width: u32, elements: u64, size: u64) -> u64 {
        entry_bytes(width, grid_largest(&self.grid, elements) * size)
    }
}

fn entry_bytes(width: u32, largest: u64) -> u64 {
    (u64::from(width) * largest).next_multiple_of(ALIGNMENT)
}

/// So many boundaries of chunks are computed once: divisions are what a short call would spend its time with.
const FEW_CHUNKS: usize = INLINE_RANKS + 1;

/// A message, cut into the chunks of a program.
pub(crate) struct Cut<'a> {
    program: &'a Program,
    elements: u64,
    size: u64,
    /// The elements of the largest chunk.
    largest: u64,
    starts: [u64; FEW_CHUNKS],
}

impl Cut<'_> {
    /// The bytes from the beginning of a store's slot to an operand; for user memory, from the rank's buffer.
    pub(crate) fn offset(&self, operand: &Operand) -> u64 {
        let within = (self.start(operand.chunks.start) - self.start(operand.origin)) * self.size;
        within
            + match operand.store {
                Store::Input(_) | Store::Output(_) => 0,
                Store::Scratch { entry, .. } => self.before(&self.program.scratch, entry),
                Store::Inbox { entry, .. } | Store::Outbox { entry, .. } => {
                    self.payload() + self.before(&self.program.landing, entry)
                }
            }
    }

    /// The elements of an operand.
    pub(crate) fn elements(&self, operand: &Operand) -> u64 {
        self.start(operand.chunks.end) - self.start(operand.chunks.start)
    }

    fn start(&self, chunk: u32) -> u64 {
        match self.starts.get(chunk as usize) {
            Some(start) => *start,
            None => grid_start(&self.program.grid, self.elements, chunk),
        }
    }

    /// Where the payload begins in its slot: a small one in the header's own cache line.
    fn payload(&self) -> u64 {
        let header = INLINE_HEADER as u64;
        match self.largest * self.size < ALIGNMENT {
            true => header,
            false => header.next_multiple_of(ALIGNMENT),
        }
    }

    /// The bytes of the entries before one.
    fn before(&self, widths: &[u32], entry: u32) -> u64 {
        let widths = widths[..entry as usize].iter();
        widths
            .map(|width| entry_bytes(*width, self.largest * self.size))
            .sum()
    }
}

fn lower_step(step: &Step, schedule: &Schedule) -> Option<Action> {
    let operand = |slice: &Slice| lower_slice(slice, schedule);
    let operands = |slices: &[Slice]| match slices.len() {
        0..=INLINE_RANKS => slices.iter().map(operand).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    Some(match step {
        Step::Copy {
            dsts,
            src,
            claim: None,
        } => Action::Copy {
            dsts: operands(dsts)?,
            src: operand(src)?,
        },
        Step::Reduce {
            dsts,
            srcs,
            last,
            claim: None,
        } => Action::Reduce {
            dsts: operands(dsts)?,
            srcs: operands(srcs)?,
            last: *last,
        },
        // Flag words have 16 bits for the numbers of signals, and one more may go before them.
        Step::Signal { id, .. } if *id >= u32::from(u16::MAX) - 1 => return None,
        Step::Signal { to, id } => Action::Signal { to: *to, id: *id },
        Step::Wait { from, id } => Action::Wait {
            from: *from,
            id: *id,
        },
        Step::Copy { .. } | Step::Reduce { .. } => return None,
    })
}

fn lower_slice(slice: &Slice, schedule: &Schedule) -> Option<Operand> {
    if slice.encoding != Encoding::Native {
        return None;
    }
    let rank = slice.rank;
    // The blocks of these collectives are one per rank, and the buffer begins at the rank's own.
    let window = |windowed: bool| if windowed { rank } else { 0 };
    let collective = schedule.collective;
    let (store, origin) = match slice.buffer {
        Buffer::Input => (
            Store::Input(rank),
            window(matches!(
                collective,
                Collective::AllGather | Collective::Gather { .. }
            )),
        ),
        Buffer::Output => (
            Store::Output(rank),
            window(matches!(
                collective,
                Collective::ReduceScatter | Collective::Scatter { .. }
            )),
        ),
        Buffer::Scratch { entry, base } => (Store::Scratch { rank, entry }, base),
        Buffer::Landing { from, entry, base } if rank == schedule.rank => {
            (Store::Inbox { from, entry }, base)
        }
        Buffer::Landing { entry, base, .. } => (Store::Outbox { to: rank, entry }, base),
    };
    Some(Operand {
        store,
        chunks: slice.chunks.clone(),
        origin,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_algorithms::{Memory, Request, Sizes, Topology, select};

    fn schedule(collective: Collective, name: &str, ranks: u32, memory: Memory) -> Schedule {
        let topology = Topology::flat(ranks);
        let request = Request {
            collective,
            ranks,
            rank: ranks - 1,
            memory,
            sizes: Sizes::Equal,
            topology: &topology,
            parts: &[],
        };
        let collective = collective.name();
        select(collective, name).unwrap().build(&request)
    }

    fn lowered(collective: Collective, name: &str, ranks: u32, memory: Memory) -> Program {
        Program::lower(&schedule(collective, name, ranks, memory)).unwrap()
    }

    #[test]
    fn direct_schedules_keep_ranks_in_step_but_towards_a_root() {
        for ranks in 2..9 {
            for (collective, in_step) in [
                (Collective::AllReduce, true),
                (Collective::AllToAll, true),
                (Collective::Barrier, true),
                (Collective::Reduce { root: 0 }, ranks == 1),
            ] {
                let program = lowered(collective, "direct", ranks, Memory::Ordinary);
                assert_eq!(program.is_in_step(ranks), in_step, "{collective}");
            }
        }
    }

    #[test]
    fn ranks_that_do_not_talk_to_all_others_are_not_in_step() {
        let barrier = lowered(Collective::Barrier, "dissemination", 4, Memory::Ordinary);
        assert!(!barrier.is_in_step(4));
        let ring = lowered(Collective::AllReduce, "ring", 4, Memory::Ordinary);
        assert!(!ring.is_in_step(4));
    }

    #[test]
    fn on_symmetric_memory_the_first_signals_are_entries() {
        for (collective, name) in [
            (Collective::AllReduce, "slice-reduce"),
            (Collective::AllGather, "mapped"),
            (Collective::ReduceScatter, "slice-reduce"),
        ] {
            let entries = |memory| lowered(collective, name, 4, memory).entries().len();
            assert_eq!(entries(Memory::Symmetric), 3, "{collective}");
            assert_eq!(entries(Memory::Ordinary), 0, "{collective}");
        }
    }

    #[test]
    fn what_was_told_before_is_left_out() {
        let barrier = lowered(Collective::Barrier, "direct", 3, Memory::Ordinary);
        let entries = [vec![1, 2], vec![0, 2], vec![0, 1]];
        assert_eq!(barrier.after_entry(2, &entries).actions, []);
        // The root of a scatter tells that its blocks are there, before it has done anything; the last rank that it has read.
        let collective = Collective::Scatter { root: 0 };
        let scatter = lowered(collective, "linear", 3, Memory::Symmetric);
        let [
            Action::Wait { from: 0, id: 0 },
            Action::Copy { .. },
            Action::Signal { to: 0, id: 0 },
        ] = &scatter.actions[..]
        else {
            panic!("{scatter:?}");
        };
        let left = scatter
            .after_entry(2, &[vec![1, 2], vec![], vec![]])
            .actions;
        let [Action::Copy { .. }, Action::Signal { to: 0, id: 1 }] = &left[..] else {
            panic!("{left:?}");
        };
    }

    #[test]
    fn entries_lie_one_behind_the_other_within_their_slots() {
        for (elements, size) in [(0, 4), (1, 4), (3, 8), (1000, 2), (5000, 1), (65_536, 4)] {
            let program = lowered(Collective::AllReduce, "slice-reduce", 4, Memory::Ordinary);
            assert!(program.fits(elements, size));
            let ends = program.actions.iter().filter_map(|action| match action {
                Action::Copy { dsts, .. } => Some(&dsts[0]),
                _ => None,
            });
            let scratch = |operand: &&Operand| matches!(operand.store, Store::Scratch { .. });
            let cut = program.cut(elements, size);
            let end = ends
                .filter(scratch)
                .map(|operand| cut.offset(operand) + cut.elements(operand) * size);
            assert!(end.max().unwrap() <= INLINE_SCRATCH);
        }
    }

    #[test]
    fn a_small_payload_shares_the_line_of_its_flag() {
        let program = lowered(Collective::AllReduce, "direct", 2, Memory::Ordinary);
        let inbox = Operand {
            store: Store::Inbox { from: 0, entry: 0 },
            chunks: 0..1,
            origin: 0,
        };
        assert_eq!(program.cut(2, 4).offset(&inbox), INLINE_HEADER as u64);
        assert_eq!(program.cut(1024, 4).offset(&inbox), 64);
        assert!(program.fits(INLINE_LANDING / 4, 4));
        assert!(!program.fits(INLINE_LANDING / 4 + 1, 4));
    }
}
