//! Builder of one rank's program: counting of signals, naming of slices, and staging where memory
//! is not shared.

use std::collections::HashMap;
use std::ops::Range;

use weft_schedule::{Buffer, Encoding, Grid, Rank, Schedule, Slice, Step};

use crate::patterns::compose::Entries;
use crate::{MemoryClass, ScheduleRequest};

/// An entry of temporary memory.
///
/// An area as wide as the message begins with chunk 0. A narrower one begins with the chunk given
/// to [`Area::starting_at`], or else with the first chunk of each slice.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    entry: u32,
    base: Option<u32>,
}

impl Area {
    /// The same entry, beginning with this chunk.
    pub(crate) fn starting_at(self, chunk: u32) -> Area {
        Area {
            base: Some(chunk),
            ..self
        }
    }

    fn base(self, chunks: &Range<u32>) -> u32 {
        self.base.unwrap_or(chunks.start)
    }
}

/// The chunks of one rank's block, where the grid has one chunk per rank.
pub(crate) fn block(rank: Rank) -> Range<u32> {
    rank..rank + 1
}

/// A program in the making.
pub(crate) struct ProgramBuilder {
    schedule: Schedule,
    memory: MemoryClass,
    /// By peer.
    signals_sent: HashMap<Rank, u32>,
    signals_awaited: HashMap<Rank, u32>,
}

impl ProgramBuilder {
    pub(crate) fn new(request: &ScheduleRequest, grid: Grid) -> Self {
        ProgramBuilder {
            schedule: Schedule {
                collective: request.collective,
                ranks: request.ranks,
                rank: request.rank,
                grid,
                scratch: Vec::new(),
                receive: Vec::new(),
                steps: Vec::new(),
            },
            memory: request.memory,
            signals_sent: HashMap::new(),
            signals_awaited: HashMap::new(),
        }
    }

    /// For a program that is put together from parts, which need these entries of temporary memory.
    pub(crate) fn composed(request: &ScheduleRequest, grid: Grid, entries: Entries) -> Self {
        let mut builder = ProgramBuilder::new(request, grid);
        builder.schedule.scratch = entries.scratch;
        builder.schedule.receive = entries.receive;
        builder
    }

    /// Adds a part's steps. Their signals are counted on.
    pub(crate) fn append(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Signal { to, .. } => self.signal(to),
                Step::Wait { from, .. } => self.wait(from),
                step => self.schedule.steps.push(step),
            }
        }
    }

    pub(crate) fn build(self) -> Schedule {
        self.schedule
    }

    pub(crate) fn symmetric(&self) -> bool {
        self.memory == MemoryClass::Symmetric
    }

    pub(crate) fn rank(&self) -> Rank {
        self.schedule.rank
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.schedule.ranks
    }

    /// The rank that is `distance` (at most the number of ranks) after this one, around the ring.
    pub(crate) fn after(&self, distance: u32) -> Rank {
        (self.rank() + distance) % self.ranks()
    }

    /// The rank that is `distance` (at most the number of ranks) before this one, around the ring.
    pub(crate) fn before(&self, distance: u32) -> Rank {
        (self.rank() + self.ranks() - distance) % self.ranks()
    }

    /// All other ranks, beginning behind this one: at every moment each rank talks to a different
    /// one.
    pub(crate) fn peers(&self) -> Vec<Rank> {
        (1..self.ranks())
            .map(|distance| self.after(distance))
            .collect()
    }

    /// All other ranks in the order in which their [`ProgramBuilder::peers`] reach this one.
    pub(crate) fn sources(&self) -> Vec<Rank> {
        (1..self.ranks())
            .map(|distance| self.before(distance))
            .collect()
    }

    /// All chunks of the message.
    pub(crate) fn everything(&self) -> Range<u32> {
        0..self.schedule.grid.chunks()
    }

    /// All chunks but one rank's block, where the grid has one chunk per rank: the ranges before
    /// and behind it.
    pub(crate) fn all_but(&self, rank: Rank) -> Vec<Range<u32>> {
        let ranges = [0..rank, rank + 1..self.ranks()];
        ranges
            .into_iter()
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// All ranks' contributions, ordered by rank, so that all ranks round the same: `own` and the
    /// slices that `of_peer` returns.
    pub(crate) fn in_rank_order(
        &self,
        own: Slice,
        of_peer: impl Fn(&ProgramBuilder, Rank) -> Slice,
    ) -> Vec<Slice> {
        (0..self.ranks())
            .map(|rank| match rank == self.rank() {
                true => own.clone(),
                false => of_peer(self, rank),
            })
            .collect()
    }

    /// Adds an entry of `width` chunks to every rank's own temporary memory.
    pub(crate) fn add_scratch(&mut self, width: u32) -> Area {
        self.schedule.scratch.push(width);
        self.area(self.schedule.scratch.len(), width)
    }

    /// Adds an entry of `width` chunks to the temporary memory of each ordered pair of ranks.
    pub(crate) fn add_receive_buffer(&mut self, width: u32) -> Area {
        self.schedule.receive.push(width);
        self.area(self.schedule.receive.len(), width)
    }

    fn area(&self, entries: usize, width: u32) -> Area {
        Area {
            entry: entries as u32 - 1,
            base: (width == self.schedule.grid.chunks()).then_some(0),
        }
    }

    /// Adds the staging area of [`ProgramBuilder::deliver`] and [`ProgramBuilder::accept`]: `width`
    /// chunks of a receive buffer, or nothing where peers write into the output itself.
    pub(crate) fn add_staging(&mut self, width: u32) -> Option<Area> {
        (!self.symmetric()).then(|| self.add_receive_buffer(width))
    }

    /// A rank's `Input`.
    pub(crate) fn input_of(&self, rank: Rank, chunks: Range<u32>) -> Slice {
        slice(rank, Buffer::Input, chunks)
    }

    /// This rank's `Input`.
    pub(crate) fn input(&self, chunks: Range<u32>) -> Slice {
        self.input_of(self.rank(), chunks)
    }

    /// A rank's `Output`.
    pub(crate) fn output_of(&self, rank: Rank, chunks: Range<u32>) -> Slice {
        slice(rank, Buffer::Output, chunks)
    }

    /// This rank's `Output`.
    pub(crate) fn output(&self, chunks: Range<u32>) -> Slice {
        self.output_of(self.rank(), chunks)
    }

    /// A rank's own temporary memory.
    pub(crate) fn scratch_of(&self, rank: Rank, area: Area, chunks: Range<u32>) -> Slice {
        let buffer = Buffer::Scratch {
            entry: area.entry,
            base: area.base(&chunks),
        };
        slice(rank, buffer, chunks)
    }

    /// This rank's own temporary memory.
    pub(crate) fn scratch(&self, area: Area, chunks: Range<u32>) -> Slice {
        self.scratch_of(self.rank(), area, chunks)
    }

    /// Where a peer's puts land here.
    pub(crate) fn inbox(&self, from: Rank, area: Area, chunks: Range<u32>) -> Slice {
        receive(self.rank(), from, area, chunks)
    }

    /// Where this rank's puts land at a peer.
    pub(crate) fn outbox(&self, to: Rank, area: Area, chunks: Range<u32>) -> Slice {
        receive(to, self.rank(), area, chunks)
    }

    /// The slice to which this rank writes data for `chunks` of a peer's output.
    pub(crate) fn destination(&self, to: Rank, staging: Option<Area>, chunks: Range<u32>) -> Slice {
        match staging {
            Some(area) => self.outbox(to, area, chunks),
            None => self.output_of(to, chunks),
        }
    }

    /// Sends `src`, which becomes `chunks` of a peer's output.
    ///
    /// With symmetric memory the peer must be known to have entered: see
    /// [`ProgramBuilder::await_open`].
    pub(crate) fn deliver(
        &mut self,
        to: Rank,
        src: Slice,
        staging: Option<Area>,
        chunks: Range<u32>,
    ) {
        let dst = self.destination(to, staging, chunks);
        self.copy(vec![dst], src);
        self.signal(to);
    }

    /// Accepts a peer's data for `chunks` of this rank's output.
    pub(crate) fn accept(&mut self, from: Rank, staging: Option<Area>, chunks: Range<u32>) {
        self.wait(from);
        if let Some(area) = staging {
            let landed = self.inbox(from, area, chunks.clone());
            self.copy(vec![self.output(chunks)], landed);
        }
    }

    /// Notifies a peer that writes into this rank's output that it may.
    pub(crate) fn open_to(&mut self, peer: Rank) {
        if self.symmetric() {
            self.signal(peer);
        }
    }

    /// Waits for a peer's [`ProgramBuilder::open_to`].
    pub(crate) fn await_open(&mut self, peer: Rank) {
        if self.symmetric() {
            self.wait(peer);
        }
    }

    /// Writes `src` to every destination.
    pub(crate) fn copy(&mut self, dsts: Vec<Slice>, src: Slice) {
        self.schedule.steps.push(Step::Copy {
            dsts,
            src,
            claim: None,
        });
    }

    /// Combines some contributions.
    pub(crate) fn reduce(&mut self, dst: Slice, srcs: Vec<Slice>) {
        self.push_reduce(vec![dst], srcs, false);
    }

    /// Combines the last contributions that were missing.
    pub(crate) fn reduce_final(&mut self, dsts: Vec<Slice>, srcs: Vec<Slice>) {
        self.push_reduce(dsts, srcs, true);
    }

    fn push_reduce(&mut self, dsts: Vec<Slice>, srcs: Vec<Slice>, is_final: bool) {
        self.schedule.steps.push(Step::Reduce {
            dsts,
            srcs,
            is_final,
            claim: None,
        });
    }

    /// Notifies `to` that everything so far is done.
    pub(crate) fn signal(&mut self, to: Rank) {
        let id = next(self.signals_sent.entry(to).or_default());
        self.schedule.steps.push(Step::Signal { to, id });
    }

    /// Waits for the next signal of `from`.
    pub(crate) fn wait(&mut self, from: Rank) {
        let id = next(self.signals_awaited.entry(from).or_default());
        self.schedule.steps.push(Step::Wait { from, id });
    }

    /// Signals every peer.
    pub(crate) fn signal_all(&mut self) {
        for peer in self.peers() {
            self.signal(peer);
        }
    }

    /// Waits for the next signal of every peer.
    pub(crate) fn wait_all(&mut self) {
        for peer in self.peers() {
            self.wait(peer);
        }
    }
}

fn next(counter: &mut u32) -> u32 {
    *counter += 1;
    *counter - 1
}

fn receive(at: Rank, from: Rank, area: Area, chunks: Range<u32>) -> Slice {
    let buffer = Buffer::Receive {
        from,
        entry: area.entry,
        base: area.base(&chunks),
    };
    slice(at, buffer, chunks)
}

fn slice(rank: Rank, buffer: Buffer, chunks: Range<u32>) -> Slice {
    Slice {
        rank,
        buffer,
        chunks,
        encoding: Encoding::Native,
    }
}
