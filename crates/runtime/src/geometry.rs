//! Where the chunks of one operation lie, tile by tile.

use std::ops::Range;

use weft_schedule::{Collective, Grid, Schedule, entry_bytes};

use crate::Error;
use crate::call::{Call, Counts};
use crate::channel::Layout;

/// Which user buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Input,
    Output,
}

/// The sizes of one operation: how chunks map to elements and entries to bytes.
#[derive(Debug)]
pub(crate) struct Geometry {
    input: Extents,
    output: Extents,
    collective: Collective,
    ranks: u32,
    chunks: u32,
    element_bytes: u64,
    /// The number of tiles.
    pub(crate) tiles: u64,
    landing: Vec<u64>,
    scratch: Vec<u64>,
}

/// Where each chunk begins and ends, in elements of the message.
#[derive(Clone, Debug)]
enum Extents {
    Grid(Grid, u64),
    Starts(Vec<u64>),
}

impl Extents {
    fn from_counts(counts: &[u64]) -> Self {
        let mut starts = vec![0];
        for count in counts {
            starts.push(starts[starts.len() - 1] + count);
        }
        Extents::Starts(starts)
    }

    fn start(&self, chunk: u32) -> u64 {
        match self {
            Extents::Grid(grid, elements) => grid_start(grid, *elements, chunk),
            Extents::Starts(starts) => starts[chunk as usize],
        }
    }

    fn largest(&self, chunks: u32) -> u64 {
        match self {
            Extents::Grid(grid, elements) => grid_largest(grid, *elements),
            Extents::Starts(_) => largest(chunks, &|chunk| self.start(chunk)),
        }
    }
}

/// The element at which a chunk of a message begins. The blocks of a grid of blocks are equal here.
pub(crate) fn grid_start(grid: &Grid, elements: u64, chunk: u32) -> u64 {
    match grid {
        Grid::Equal(chunks) | Grid::Blocks(chunks) => {
            match elements.checked_mul(u64::from(chunk)) {
                Some(product) => product / u64::from(*chunks),
                None => (u128::from(elements) * u128::from(chunk) / u128::from(*chunks)) as u64,
            }
        }
        Grid::Cuts(cuts) => cuts[chunk as usize].of(elements),
    }
}

/// The elements of the largest chunk of a message.
pub(crate) fn grid_largest(grid: &Grid, elements: u64) -> u64 {
    match grid {
        Grid::Equal(chunks) | Grid::Blocks(chunks) => elements.div_ceil(u64::from(*chunks)),
        Grid::Cuts(cuts) => largest(cuts.len() as u32 - 1, &|chunk| {
            grid_start(grid, elements, chunk)
        }),
    }
}

fn largest(chunks: u32, start: &dyn Fn(u32) -> u64) -> u64 {
    let lengths = (0..chunks).map(|chunk| start(chunk + 1) - start(chunk));
    lengths.max().unwrap_or(0)
}

impl Geometry {
    /// Lays out a call. `largest_chunk` is the largest chunk on any rank, where this rank cannot know it. `tile_bytes` is the
    /// part of the largest chunk that a tile takes, if it shall be less than fits.
    pub(crate) fn new(
        call: &Call,
        schedule: &Schedule,
        layout: Layout,
        largest_chunk: Option<u64>,
        tile_bytes: Option<u64>,
    ) -> Result<Self, Error> {
        let elements = call.message_elements(schedule.ranks);
        let (input, output) = match &call.counts {
            Counts::Equal(_) => {
                let grid = Extents::Grid(schedule.grid.clone(), elements);
                (grid.clone(), grid)
            }
            Counts::PerRank(list) => (Extents::from_counts(list), Extents::from_counts(list)),
            Counts::PerPair { send, receive } => {
                (Extents::from_counts(send), Extents::from_counts(receive))
            }
        };
        let chunks = schedule.grid.chunks();
        let largest_chunk =
            largest_chunk.unwrap_or_else(|| input.largest(chunks).max(output.largest(chunks)));
        let element_bytes = call.dtype.size() as u64;
        let mut limits = layout.limits;
        limits.chunk_bytes = limits.chunk_bytes.min(tile_bytes.unwrap_or(u64::MAX));
        let Some(tiles) = limits.tiles(schedule, largest_chunk, element_bytes) else {
            return Err(Error::Unsupported(format!(
                "this algorithm for {} with {} ranks: its temporary memory does not fit",
                call.collective, schedule.ranks
            )));
        };
        let largest = largest_chunk.div_ceil(tiles);
        let offsets = |widths: &[u32]| {
            widths
                .iter()
                .scan(0, |next, width| {
                    let start = *next;
                    *next += entry_bytes(*width, largest, element_bytes);
                    Some(start)
                })
                .collect::<Vec<u64>>()
        };
        let (landing, scratch) = (offsets(&schedule.landing), offsets(&schedule.scratch));
        let geometry = Geometry {
            input,
            output,
            collective: call.collective,
            ranks: schedule.ranks,
            chunks,
            element_bytes,
            tiles,
            landing,
            scratch,
        };
        Ok(geometry)
    }

    /// The largest part of a chunk that a tile takes, in bytes.
    pub(crate) fn tile_bytes(&self) -> u64 {
        let largest = self
            .input
            .largest(self.chunks)
            .max(self.output.largest(self.chunks));
        largest.div_ceil(self.tiles) * self.element_bytes
    }

    /// The elements of a chunk that belong to a tile, in coordinates of the message.
    pub(crate) fn chunk(&self, side: Side, chunk: u32, tile: u64) -> Range<u64> {
        let extents = self.extents(side);
        let (start, end) = (extents.start(chunk), extents.start(chunk + 1));
        let cut = |k: u64| {
            start + (u128::from(end - start) * u128::from(k) / u128::from(self.tiles)) as u64
        };
        cut(tile)..cut(tile + 1)
    }

    /// The element of the message at which the buffer of a rank begins.
    pub(crate) fn origin(&self, side: Side, rank: u32) -> u64 {
        let windowed = match side {
            Side::Input => matches!(
                self.collective,
                Collective::AllGather | Collective::Gather { .. }
            ),
            Side::Output => matches!(
                self.collective,
                Collective::ReduceScatter | Collective::Scatter { .. }
            ),
        };
        match (windowed, side) {
            (false, _) => 0,
            (true, Side::Input) => self.input.start(rank * (self.chunks / self.ranks)),
            (true, Side::Output) => self.output.start(rank * (self.chunks / self.ranks)),
        }
    }

    /// The number of elements between a chunk and the start of its temporary entry.
    pub(crate) fn packed_before(&self, side: Side, base: u32, chunk: u32, tile: u64) -> u64 {
        if self.whole() {
            let extents = self.extents(side);
            return extents.start(chunk) - extents.start(base);
        }
        let length = |c| {
            let range = self.chunk(side, c, tile);
            range.end - range.start
        };
        (base..chunk).map(length).sum()
    }

    fn extents(&self, side: Side) -> &Extents {
        match side {
            Side::Input => &self.input,
            Side::Output => &self.output,
        }
    }

    /// Where a landing entry begins within its slot, in bytes.
    pub(crate) fn landing_entry(&self, entry: u32) -> u64 {
        self.landing[entry as usize]
    }

    /// Where a scratch entry begins within its slot, in bytes.
    pub(crate) fn scratch_entry(&self, entry: u32) -> u64 {
        self.scratch[entry as usize]
    }

    /// Whether the whole of every chunk is in one tile, so that neighbouring chunks are contiguous.
    pub(crate) fn whole(&self) -> bool {
        self.tiles == 1
    }

    pub(crate) fn element_bytes(&self) -> u64 {
        self.element_bytes
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_kernels::DType;

    fn schedule(grid: Grid, landing: Vec<u32>) -> Schedule {
        Schedule {
            collective: Collective::AllReduce,
            ranks: 4,
            rank: 0,
            grid,
            scratch: vec![],
            landing,
            steps: vec![],
        }
    }

    fn call(elements: u64) -> Call {
        Call {
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: crate::Op::Sum,
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            counts: Counts::Equal(elements),
            priority: 0,
            timeout: None,
            algorithm: None,
            tiling: Default::default(),
        }
    }

    #[test]
    fn tiles_cover_every_chunk_once() {
        for elements in [0, 1, 3, 7, 1000, 1_000_003, 50_000_017] {
            let schedule = schedule(Grid::Equal(4), vec![1, 1]);
            let layout = Layout::new(4);
            let geometry = Geometry::new(&call(elements), &schedule, layout, None, None).unwrap();
            let mut next = 0;
            for chunk in 0..4 {
                for tile in 0..geometry.tiles {
                    let range = geometry.chunk(Side::Output, chunk, tile);
                    assert_eq!(range.start, next);
                    assert!(
                        range.end - range.start <= elements.div_ceil(4).div_ceil(geometry.tiles)
                    );
                    next = range.end;
                }
            }
            assert_eq!(next, elements);
            let largest = elements.div_ceil(4).div_ceil(geometry.tiles);
            let end = geometry.landing_entry(1) + entry_bytes(1, largest, 4);
            assert!(end <= layout.limits.landing_bytes);
        }
    }
}
