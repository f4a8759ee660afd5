//! The contents of all buffers, and who touched them last: the race detector.

use std::collections::HashMap;

use super::lane::{Clock, Run};
use super::value::{ValueId, Values};
use super::{Mapped, Place, Problem, Team};
use crate::ir::{Buffer, Encoding, Rank, Slice};

/// One contiguous piece of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RegionKey {
    pub(super) rank: Rank,
    pub(super) store: Store,
    /// Of temporary memory the slot. Of the user's the tile: each has its own share of that.
    part: u32,
}

/// Which memory of a rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Store {
    Input,
    Output,
    Scratch { entry: u32 },
    Landing { from: Rank, entry: u32 },
}

/// How chunks lie in a region. Chunk sizes differ, so contents with another layout lie at other places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    base: u32,
    encoding: Encoding,
}

/// In which memory of its rank a slice is, and how it lies there. The base of user memory counts as 0.
pub(super) fn locate(slice: &Slice) -> (Store, Layout) {
    let (store, base) = match slice.buffer {
        Buffer::Input => (Store::Input, 0),
        Buffer::Output => (Store::Output, 0),
        Buffer::Scratch { entry, base } => (Store::Scratch { entry }, base),
        Buffer::Landing { from, entry, base } => (Store::Landing { from, entry }, base),
    };
    let layout = Layout {
        base,
        encoding: slice.encoding,
    };
    (store, layout)
}

/// Who touches memory, and what is known to have happened before.
pub(super) struct Access<'a> {
    pub(super) place: Place,
    pub(super) clock: &'a Clock,
    /// By rank: how many of its steps in this tile happened before, counting only its own signals to this rank.
    pub(super) direct: &'a [u32],
}

/// A problem with one chunk.
pub(super) type ChunkProblem = (u32, Problem);

/// All memory of all ranks.
pub(super) struct Memory<'a> {
    team: &'a Team<'a>,
    regions: HashMap<RegionKey, Region>,
}

struct Region {
    /// `None` before anything was written.
    layout: Option<Layout>,
    /// The chunk in the first cell, less the base.
    first: u32,
    cells: Vec<Cell>,
}

/// One chunk's place.
#[derive(Clone, Default)]
struct Cell {
    value: Option<ValueId>,
    /// The last write; `None` for what was there from the start.
    write: Option<Place>,
    /// The last read of each run since that write.
    reads: Vec<Place>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(team: &'a Team<'a>) -> Self {
        let regions = HashMap::new();
        Memory { team, regions }
    }

    /// What `slice` holds, by chunk.
    pub(super) fn read(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        values: &mut Values,
    ) -> Result<Vec<ValueId>, ChunkProblem> {
        self.check_entry(access, slice)
            .map_err(|problem| (slice.chunks.start, problem))?;
        let (key, layout) = key(self.team, access.place.tile, slice);
        let directly = matches!(key.store, Store::Landing { from, .. }
            if self.team.options.between(key.rank, from) == Mapped::None);
        let region = self.region(key, values);
        let mut contents = Vec::with_capacity(slice.chunks.len());
        for chunk in slice.chunks.clone() {
            let value = region.read(access, slice, layout, chunk, directly);
            contents.push(value.map_err(|problem| (chunk, problem))?);
        }
        Ok(contents)
    }

    /// Replaces what `slice` holds.
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
        let (key, layout) = key(self.team, access.place.tile, slice);
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

    /// What a rank has in its `Output` at the end of a tile.
    pub(super) fn output(&mut self, run: Run, chunk: u32, values: &mut Values) -> Option<ValueId> {
        let key = RegionKey {
            rank: run.rank,
            store: Store::Output,
            part: run.tile,
        };
        let region = self.region(key, values);
        region.cells[(chunk - region.first) as usize].value
    }

    /// The first access to a peer's memory that does not happen before that peer's end of the tile, as far as
    /// `knows` says what happened before the end of a run. Landing is left out: the writer waits for credit.
    pub(super) fn late_access(
        &self,
        knows: &dyn Fn(Run, Place) -> bool,
    ) -> Option<(RegionKey, u32, Place)> {
        let mut keys: Vec<&RegionKey> = self.regions.keys().collect();
        keys.sort_unstable();
        keys.retain(|key| !matches!(key.store, Store::Landing { .. }));
        for key in keys {
            let region = &self.regions[key];
            let late = |place: &&Place| {
                let (rank, tile) = (key.rank, place.tile);
                place.rank != rank && !knows(Run { rank, tile }, **place)
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
        let entered = |rank| self.team.lane.entered(access.clock, rank, place.tile);
        if user && slice.rank != place.rank && !entered(slice.rank) {
            let slice = slice.to_string();
            return Err(Problem::BeforeEntry { slice });
        }
        Ok(())
    }

    /// Checks that the owner of scratch memory is known to have begun the tile: before, its former tile has the slot.
    fn check_begun(&self, access: &Access<'_>, slice: &Slice) -> Result<(), Problem> {
        let place = access.place;
        let scratch = matches!(slice.buffer, Buffer::Scratch { .. });
        let begun = |rank| self.team.lane.begun(access.clock, rank, place.tile);
        if scratch && slice.rank != place.rank && !begun(slice.rank) {
            let slice = slice.to_string();
            return Err(Problem::BeforeTile { slice });
        }
        Ok(())
    }

    fn region(&mut self, key: RegionKey, values: &mut Values) -> &mut Region {
        let team = self.team;
        self.regions
            .entry(key)
            .or_insert_with(|| Region::new(team, key, values))
    }
}

impl Region {
    fn new(team: &Team<'_>, key: RegionKey, values: &mut Values) -> Self {
        let (buffer, filled) = match key.store {
            Store::Scratch { entry } => {
                return Region::temporary(team.schedules[0].scratch[entry as usize]);
            }
            Store::Landing { entry, .. } => {
                return Region::temporary(team.schedules[0].landing[entry as usize]);
            }
            Store::Input => (Buffer::Input, true),
            Store::Output => (Buffer::Output, team.shape.in_place(key.rank)),
        };
        let held = team.shape.held(key.rank, buffer);
        let cell = |chunk| Cell {
            value: filled.then(|| values.leaf(key.rank, chunk)),
            ..Cell::default()
        };
        Region {
            layout: Some(Layout {
                base: 0,
                encoding: Encoding::Native,
            }),
            first: held.start,
            cells: held.map(cell).collect(),
        }
    }

    fn temporary(width: u32) -> Self {
        Region {
            layout: None,
            first: 0,
            cells: vec![Cell::default(); width as usize],
        }
    }

    fn cell(&mut self, layout: Layout, chunk: u32) -> &mut Cell {
        &mut self.cells[(chunk - layout.base - self.first) as usize]
    }

    fn read(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        layout: Layout,
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
                // What an earlier tile has left in the slot.
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
            |read: &Place| (read.rank, read.tile) == (access.place.rank, access.place.tile);
        cell.reads.retain(|read| !same_run(read));
        cell.reads.push(access.place);
        Ok(value)
    }

    /// Changes the layout, which destroys all contents.
    fn lay_out(
        &mut self,
        access: &Access<'_>,
        slice: &Slice,
        layout: Layout,
    ) -> Result<(), Problem> {
        for cell in &mut self.cells {
            cell.check_write(access, slice)?;
            cell.replace(access.place, None);
        }
        self.layout = Some(layout);
        Ok(())
    }
}

impl Cell {
    fn check_write(&self, access: &Access<'_>, slice: &Slice) -> Result<(), Problem> {
        let unordered = |place: &&Place| !access.clock.knows(**place);
        if let Some(write) = self.write.as_ref().filter(unordered) {
            return Err(race(slice, true, *write, true));
        }
        if let Some(read) = self.reads.iter().find(unordered) {
            return Err(race(slice, true, *read, false));
        }
        Ok(())
    }

    fn replace(&mut self, place: Place, value: Option<ValueId>) {
        self.value = value;
        self.write = Some(place);
        self.reads.clear();
    }
}

/// The piece of memory that a slice means in a tile.
fn key(team: &Team<'_>, tile: u32, slice: &Slice) -> (RegionKey, Layout) {
    let (store, layout) = locate(slice);
    let part = match store {
        Store::Input | Store::Output => tile,
        Store::Scratch { .. } | Store::Landing { .. } => team.lane.slot(tile),
    };
    let rank = slice.rank;
    (RegionKey { rank, store, part }, layout)
}

fn race(slice: &Slice, write: bool, other: Place, other_write: bool) -> Problem {
    Problem::Race {
        slice: slice.to_string(),
        write,
        other,
        other_write,
    }
}
