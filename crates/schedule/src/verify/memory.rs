//! Race detector: the contents of all buffers, and the last accesses to them.

use std::collections::HashMap;

use super::lane::Clock;
use super::location::TileRun;
use super::value::{ValueId, Values};
use super::verification::Verification;
use super::{Mapped, Problem, StepLocation};
use crate::encoding::Encoding;
use crate::ir::{Buffer, Rank, Slice};

/// One contiguous piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct BufferKey {
    pub(super) rank: Rank,
    pub(super) store: MemoryPart,
    /// Of temporary memory the slot. Of the user's the tile: each has its own share of that.
    part: u32,
}

/// Which memory of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum MemoryPart {
    Input,
    Output,
    Scratch { entry: u32 },
    Receive { from: Rank, entry: u32 },
}

/// The layout of chunks in a region. Chunk sizes differ, so contents with another layout are at
/// other places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemoryLayout {
    base: u32,
    encoding: Encoding,
}

/// The memory of a slice in its rank, and its layout there. The base of user memory counts as 0.
pub(super) fn locate(slice: &Slice) -> (MemoryPart, MemoryLayout) {
    let (store, base) = match slice.buffer {
        Buffer::Input => (MemoryPart::Input, 0),
        Buffer::Output => (MemoryPart::Output, 0),
        Buffer::Scratch { entry, base } => (MemoryPart::Scratch { entry }, base),
        Buffer::Receive { from, entry, base } => (MemoryPart::Receive { from, entry }, base),
    };
    let layout = MemoryLayout {
        base,
        encoding: slice.encoding,
    };
    (store, layout)
}

/// An access to memory, with the events that are known to precede it.
pub(super) struct Access<'a> {
    pub(super) place: StepLocation,
    pub(super) clock: &'a Clock,
    /// By rank: how many of its steps in this tile happened before, counting only its own signals
    /// to this rank.
    pub(super) direct: &'a [u32],
}

/// A problem with one chunk.
pub(super) type ChunkProblem = (u32, Problem);

/// All memory of all ranks.
pub(super) struct VerifierMemory<'a> {
    verification: &'a Verification<'a>,
    regions: HashMap<BufferKey, BufferState>,
}

struct BufferState {
    /// `None` before anything was written.
    layout: Option<MemoryLayout>,
    /// The chunk in the first cell, less the base.
    first: u32,
    cells: Vec<MemoryCell>,
}

/// One chunk's place.
#[derive(Clone, Default)]
struct MemoryCell {
    value: Option<ValueId>,
    /// The last write; `None` for the initial content.
    write: Option<StepLocation>,
    /// The last read of each run since that write.
    reads: Vec<StepLocation>,
}

impl<'a> VerifierMemory<'a> {
    pub(super) fn new(verification: &'a Verification<'a>) -> Self {
        let regions = HashMap::new();
        VerifierMemory {
            verification,
            regions,
        }
    }

    /// The content of `slice`, by chunk.
    pub(super) fn read(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        values: &mut Values,
    ) -> Result<Vec<ValueId>, ChunkProblem> {
        self.check_entry(access, slice)
            .map_err(|problem| (slice.chunks.start, problem))?;
        let (key, layout) = key(self.verification, access.place.tile, slice);
        let directly = matches!(key.store, MemoryPart::Receive { from, .. }
            if self.verification.options.between(key.rank, from) == Mapped::None);
        let region = self.region(key, values);
        let mut contents = Vec::with_capacity(slice.chunks.len());
        for chunk in slice.chunks.clone() {
            let value = region.read(access, slice, layout, chunk, directly);
            contents.push(value.map_err(|problem| (chunk, problem))?);
        }
        Ok(contents)
    }

    /// Replaces the content of `slice`.
    pub(super) fn write(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        contents: &[ValueId],
        values: &mut Values,
    ) -> Result<(), ChunkProblem> {
        self.check_entry(access, slice)
            .and_then(|()| self.check_begun(access, slice))
            .map_err(|problem| (slice.chunks.start, problem))?;
        let (key, layout) = key(self.verification, access.place.tile, slice);
        let region = self.region(key, values);
        if region.layout != Some(layout) {
            region
                .lay_out(access, slice, layout)
                .map_err(|problem| (slice.chunks.start, problem))?;
        }
        for (chunk, value) in slice.chunks.clone().zip(contents) {
            let cell = region.cell(layout, chunk);
            cell.check_write(access, slice)
                .map_err(|problem| (chunk, problem))?;
            cell.replace(access.place, Some(*value));
        }
        Ok(())
    }

    /// The content of a rank's `Output` at the end of a tile.
    pub(super) fn output(
        &mut self,
        run: TileRun,
        chunk: u32,
        values: &mut Values,
    ) -> Option<ValueId> {
        let key = BufferKey {
            rank: run.rank,
            store: MemoryPart::Output,
            part: run.tile,
        };
        let region = self.region(key, values);
        region.cells[(chunk - region.first) as usize].value
    }

    /// The first access to a peer's memory that does not happen before that peer's end of the tile,
    /// where `knows` lists the events before the end of a run. Receive is left out: the writer
    /// waits for credit.
    pub(super) fn late_access(
        &self,
        knows: &dyn Fn(TileRun, StepLocation) -> bool,
    ) -> Option<(BufferKey, u32, StepLocation)> {
        let mut keys: Vec<&BufferKey> = self.regions.keys().collect();
        keys.sort_unstable();
        keys.retain(|key| !matches!(key.store, MemoryPart::Receive { .. }));
        for key in keys {
            let region = &self.regions[key];
            let late = |place: &&StepLocation| {
                let (rank, tile) = (key.rank, place.tile);
                place.rank != rank && !knows(TileRun { rank, tile }, **place)
            };
            let base = region.layout.map_or(0, |layout| layout.base) + region.first;
            for (index, cell) in region.cells.iter().enumerate() {
                let mut touched = cell.write.iter().chain(&cell.reads);
                if let Some(place) = touched.find(late) {
                    return Some((*key, base + index as u32, *place));
                }
            }
        }
        None
    }

    /// Checks that the owner of user memory is known to have entered.
    fn check_entry(&self, access: &Access<'_>, slice: &Slice) -> Result<(), Problem> {
        let place = access.place;
        let user = matches!(slice.buffer, Buffer::Input | Buffer::Output);
        let entered = |rank| {
            self.verification
                .lane
                .entered(access.clock, rank, place.tile)
        };
        if user && slice.rank != place.rank && !entered(slice.rank) {
            let slice = slice.to_string();
            return Err(Problem::BeforeEntry { slice });
        }
        Ok(())
    }

    /// Checks that the owner of scratch memory is known to have begun the tile: before, its former
    /// tile has the slot.
    fn check_begun(&self, access: &Access<'_>, slice: &Slice) -> Result<(), Problem> {
        let place = access.place;
        let scratch = matches!(slice.buffer, Buffer::Scratch { .. });
        let begun = |rank| self.verification.lane.begun(access.clock, rank, place.tile);
        if scratch && slice.rank != place.rank && !begun(slice.rank) {
            let slice = slice.to_string();
            return Err(Problem::BeforeTile { slice });
        }
        Ok(())
    }

    fn region(&mut self, key: BufferKey, values: &mut Values) -> &mut BufferState {
        let verification = self.verification;
        self.regions
            .entry(key)
            .or_insert_with(|| BufferState::new(verification, key, values))
    }
}

impl BufferState {
    fn new(verification: &Verification<'_>, key: BufferKey, values: &mut Values) -> Self {
        let (buffer, filled) = match key.store {
            MemoryPart::Scratch { entry } => {
                return BufferState::temporary(verification.schedules[0].scratch[entry as usize]);
            }
            MemoryPart::Receive { entry, .. } => {
                return BufferState::temporary(verification.schedules[0].receive[entry as usize]);
            }
            MemoryPart::Input => (Buffer::Input, true),
            MemoryPart::Output => (Buffer::Output, verification.shape.in_place(key.rank)),
        };
        let held = verification.shape.held(key.rank, buffer);
        let cell = |chunk| MemoryCell {
            value: filled.then(|| values.leaf(key.rank, chunk)),
            ..MemoryCell::default()
        };
        BufferState {
            layout: Some(MemoryLayout {
                base: 0,
                encoding: Encoding::Native,
            }),
            first: held.start,
            cells: held.map(cell).collect(),
        }
    }

    fn temporary(width: u32) -> Self {
        BufferState {
            layout: None,
            first: 0,
            cells: vec![MemoryCell::default(); width as usize],
        }
    }

    fn cell(&mut self, layout: MemoryLayout, chunk: u32) -> &mut MemoryCell {
        &mut self.cells[(chunk - layout.base - self.first) as usize]
    }

    fn read(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        layout: MemoryLayout,
        chunk: u32,
        directly: bool,
    ) -> Result<ValueId, Problem> {
        let unwritten = || Problem::Unwritten {
            slice: slice.to_string(),
        };
        let written = self.layout.ok_or_else(unwritten)?;
        let cell = self.cell(layout, chunk);
        if let Some(write) = cell.write {
            if !access.clock.knows(write) {
                return Err(race(slice, false, write, true));
            }
            if write.tile != access.place.tile {
                // Remains of an earlier tile in the slot.
                return Err(unwritten());
            }
        }
        if written != layout {
            return Err(Problem::Elsewhere {
                slice: slice.to_string(),
                base: written.base,
                encoding: written.encoding,
            });
        }
        let value = cell.value.ok_or_else(unwritten)?;
        if let Some(put) = cell.write
            && directly
            && access.direct[put.rank as usize] <= put.step
        {
            let slice = slice.to_string();
            return Err(Problem::Undelivered { slice, put });
        }
        let same_run =
            |read: &StepLocation| (read.rank, read.tile) == (access.place.rank, access.place.tile);
        cell.reads.retain(|read| !same_run(read));
        cell.reads.push(access.place);
        Ok(value)
    }

    /// Changes the layout, which destroys all contents.
    fn lay_out(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        layout: MemoryLayout,
    ) -> Result<(), Problem> {
        for cell in &mut self.cells {
            cell.check_write(access, slice)?;
            cell.replace(access.place, None);
        }
        self.layout = Some(layout);
        Ok(())
    }
}

impl MemoryCell {
    fn check_write(&self, access: &Access<'_>, slice: &Slice) -> Result<(), Problem> {
        let unordered = |place: &&StepLocation| !access.clock.knows(**place);
        if let Some(write) = self.write.as_ref().filter(unordered) {
            return Err(race(slice, true, *write, true));
        }
        if let Some(read) = self.reads.iter().find(unordered) {
            return Err(race(slice, true, *read, false));
        }
        Ok(())
    }

    fn replace(&mut self, place: StepLocation, value: Option<ValueId>) {
        self.value = value;
        self.write = Some(place);
        self.reads.clear();
    }
}

/// The piece of memory that a slice means in a tile.
fn key(verification: &Verification<'_>, tile: u32, slice: &Slice) -> (BufferKey, MemoryLayout) {
    let (store, layout) = locate(slice);
    let part = match store {
        MemoryPart::Input | MemoryPart::Output => tile,
        MemoryPart::Scratch { .. } | MemoryPart::Receive { .. } => verification.lane.slot(tile),
    };
    let rank = slice.rank;
    (BufferKey { rank, store, part }, layout)
}

fn race(slice: &Slice, write: bool, other: StepLocation, other_write: bool) -> Problem {
    Problem::Race {
        slice: slice.to_string(),
        write,
        other,
        other_write,
    }
}
