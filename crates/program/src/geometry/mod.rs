//! Geometry of one operation: the elements of its chunks and tiles, and their position in each
//! location.

use std::ops::Range;

use weft_call::Error;
use weft_call::{Call, Counts};
use weft_channel::{
    ChannelLayout, INLINE_HEADER, INLINE_LINE, INLINE_RANKS, Part, PartSet, Room, SMALL_RECEIVE,
    SMALL_SCRATCH,
};
use weft_schedule::{Encoding, Grid, Schedule, TemporaryEntries, TileLimits};

use super::instruction::{Location, Operand, Program};

/// What has room in a small slot.
const SMALL_LIMITS: TileLimits = TileLimits {
    receive_bytes: SMALL_RECEIVE,
    scratch_bytes: SMALL_SCRATCH,
    chunk_bytes: u64::MAX,
};
/// So many boundaries of chunks are computed once: divisions are what a short call would spend its
/// time with.
const FEW: usize = INLINE_RANKS + 1;

/// How chunks map to elements and bytes.
///
/// Without `tiled` it is one tile whose neighbouring chunks are contiguous, and costs no
/// allocation.
#[derive(Debug)]
pub struct Geometry {
    /// The elements at which the first chunks begin.
    few: [u64; FEW],
    elements: u64,
    element_bytes: u64,
    /// The elements of the largest part of a chunk that a tile takes.
    largest: u64,
    /// What lies in a slot before the entries of a receive buffer.
    header: u64,
    /// Bytes of the widest element that temporary entries have room for.
    widest: u64,
    /// The elements that neither chunks nor tiles divide: those that share a scale, or one.
    block: u64,
    tiled: Option<Box<Tiled>>,
    /// The number of tiles.
    pub tiles: u64,
}

/// What a message in lanes needs besides.
#[derive(Debug)]
struct Tiled {
    /// The elements at which chunks begin and the last one ends, where counts are told one by one;
    /// in the message or what this rank receives, and in what it sends where that is another list.
    told: Option<Vec<u64>>,
    told_input: Option<Vec<u64>>,
    /// Where the entries of receive buffers and of scratch memory begin.
    receive: Vec<u64>,
    scratch: Vec<u64>,
    /// Whether those of a tile have room in small slots.
    small: bool,
}

fn starts_of_counts(counts: &[u64]) -> Vec<u64> {
    let mut starts = vec![0];
    for count in counts {
        starts.push(starts[starts.len() - 1] + count);
    }
    starts
}

/// The elements at which the chunks of a message begin and the last one ends, where none but that
/// ends within a block.
fn starts_of_blocks(grid: &Grid, elements: u64, block: u64) -> Vec<u64> {
    let chunks = 0..grid.chunks();
    let starts = chunks.map(|chunk| grid_start(grid, elements, chunk) / block * block);
    starts.chain([elements]).collect()
}

/// The elements of the largest chunk.
fn largest_of(starts: &[u64]) -> u64 {
    let lengths = starts.windows(2).map(|pair| pair[1] - pair[0]);
    lengths.max().unwrap_or(0)
}

/// The element at which a chunk of a message begins. The blocks of a grid of blocks are equal here.
fn grid_start(grid: &Grid, elements: u64, chunk: u32) -> u64 {
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
fn grid_largest(grid: &Grid, elements: u64) -> u64 {
    match grid {
        Grid::Equal(chunks) | Grid::Blocks(chunks) => elements.div_ceil(u64::from(*chunks)),
        Grid::Cuts(cuts) => {
            let lengths = cuts
                .windows(2)
                .map(|c| c[1].of(elements) - c[0].of(elements));
            lengths.max().unwrap_or(0)
        }
    }
}

impl Geometry {
    /// Lays out a call in tiles. `largest_chunk` is the largest chunk on any rank, where this rank
    /// cannot know it. `tile_bytes` is the part of the largest chunk that a tile takes, if it shall
    /// be less than fits. `wire`: the encoding in which elements travel. Its blocks are not
    /// divided; where ranks have blocks of their own, they are counted from the beginning of each.
    pub fn tiled(
        call: &Call,
        shape: &Schedule,
        layout: ChannelLayout,
        largest_chunk: Option<u64>,
        tile_bytes: Option<u64>,
        wire: Encoding,
    ) -> Result<Self, Error> {
        let block = wire.block();
        let elements = call.message_elements(shape.ranks);
        let (told, told_input) = match &call.counts {
            Counts::Equal(_) if block > 1 && call.collective.in_place() => {
                (Some(starts_of_blocks(&shape.grid, elements, block)), None)
            }
            Counts::Equal(_) => (None, None),
            Counts::PerRank(list) => (Some(starts_of_counts(list)), None),
            Counts::PerPair { send, receive } => (
                Some(starts_of_counts(receive)),
                Some(starts_of_counts(send)),
            ),
        };
        let element_bytes = call.dtype.size() as u64;
        let mut limits = layout.limits;
        limits.chunk_bytes = limits.chunk_bytes.min(tile_bytes.unwrap_or(u64::MAX));
        let largest_told = told
            .iter()
            .chain(&told_input)
            .map(|starts| largest_of(starts))
            .max();
        let largest_here = || grid_largest(&shape.grid, elements);
        let largest_chunk = largest_chunk.or(largest_told).unwrap_or_else(largest_here);
        let Some(tiles) = limits.tiles(shape, largest_chunk, element_bytes, wire) else {
            return Err(Error::Unsupported(format!(
                "this algorithm for {} with {} ranks: its temporary memory does not fit",
                call.collective, shape.ranks
            )));
        };
        let largest = largest_chunk.div_ceil(block).div_ceil(tiles) * block;
        let starts = |entries: TemporaryEntries| entries.starts(largest, element_bytes);
        let in_small_slots = SMALL_LIMITS.tiles(shape, largest, element_bytes, wire);
        let tiled = Tiled {
            told,
            told_input,
            receive: starts(TemporaryEntries::receive(shape, wire)),
            scratch: starts(TemporaryEntries::scratch(shape, wire)),
            small: in_small_slots == Some(1),
        };
        Ok(Geometry {
            few: few_starts(&shape.grid, elements),
            elements,
            element_bytes,
            largest,
            header: 0,
            widest: element_bytes,
            block,
            tiled: Some(Box::new(tiled)),
            tiles,
        })
    }

    /// Lays out a message of so many elements as one tile behind the header of its slots.
    #[inline]
    pub fn whole(program: &Program, elements: u64, element_bytes: u64, widest: u64) -> Self {
        let grid = &program.shape.grid;
        let largest = grid_largest(grid, elements);
        Geometry {
            few: few_starts(grid, elements),
            elements,
            element_bytes,
            largest,
            // A small payload lies in the header's own cache line.
            header: match largest * element_bytes < INLINE_LINE {
                true => INLINE_HEADER as u64,
                false => (INLINE_HEADER as u64).next_multiple_of(INLINE_LINE),
            },
            widest,
            block: 1,
            tiled: None,
            tiles: 1,
        }
    }

    /// Whether the temporary entries of a tile have room in small slots: all ranks find the same.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.tiled.as_ref().is_some_and(|tiled| tiled.small)
    }

    /// The largest part of a chunk that a tile takes, in bytes.
    pub fn tile_bytes(&self) -> u64 {
        self.largest * self.element_bytes
    }

    /// The number of pieces in which the operands of a step are contiguous, told by the one that
    /// measures it: neighbouring chunks are, where one tile has the whole of them and no chunk ends
    /// with a part of a block.
    #[inline]
    pub fn pieces(&self, measured: &Operand) -> u32 {
        match self.joins_chunks() {
            true => 1,
            false => measured.chunks.end - measured.chunks.start,
        }
    }

    #[inline]
    fn joins_chunks(&self) -> bool {
        self.tiles == 1 && self.block == 1
    }

    /// The elements of a piece that belong to a tile.
    #[inline]
    pub fn elements(&self, shape: &Schedule, measured: &Operand, piece: u32, tile: u64) -> u64 {
        let Range { start, end } = measured.chunks;
        match &self.tiled {
            None => self.start(shape, end) - self.start(shape, start),
            Some(tiled) => {
                let told = tiled.of(measured);
                let at = |chunk| self.start_told(told, shape, chunk);
                if self.joins_chunks() {
                    return at(end) - at(start);
                }
                let (start, end) = self.cut(told, shape, start + piece, tile);
                end - start
            }
        }
    }

    /// The bytes from the beginning of a location's slot to a piece of an operand; for user memory,
    /// from the rank's buffer.
    #[inline]
    pub fn offset(&self, shape: &Schedule, operand: &Operand, piece: u32, tile: u64) -> u64 {
        if let Some(tiled) = &self.tiled {
            return self.offset_tiled(tiled, shape, operand, piece, tile);
        }
        let before = self.start(shape, operand.chunks.start) - self.start(shape, operand.origin);
        let bytes = before * self.width(operand.encoding);
        match operand.location {
            Location::Input(_) | Location::Output(_) => bytes,
            Location::Scratch { entry, .. } => bytes + self.entries_before(&shape.scratch, entry),
            Location::Receive { entry, .. } | Location::PeerReceive { entry, .. } => {
                bytes + self.header + self.entries_before(&shape.receive, entry)
            }
        }
    }

    #[inline(never)]
    fn offset_tiled(
        &self,
        tiled: &Tiled,
        shape: &Schedule,
        operand: &Operand,
        piece: u32,
        tile: u64,
    ) -> u64 {
        let chunk = operand.chunks.start + piece;
        let bytes = self.bytes_before(tiled, shape, operand, chunk, tile);
        match operand.location {
            Location::Input(_) | Location::Output(_) => bytes,
            Location::Scratch { entry, .. } => bytes + tiled.scratch[entry as usize],
            Location::Receive { entry, .. } | Location::PeerReceive { entry, .. } => {
                bytes + tiled.receive[entry as usize]
            }
        }
    }

    /// The bytes from the beginning of an operand's location to a chunk of it.
    fn bytes_before(
        &self,
        tiled: &Tiled,
        shape: &Schedule,
        operand: &Operand,
        chunk: u32,
        tile: u64,
    ) -> u64 {
        let told = tiled.of(operand);
        let at = |chunk| self.start_told(told, shape, chunk);
        let from_origin = |start: u64| {
            let elements = start.wrapping_sub(at(operand.origin));
            elements.wrapping_mul(self.width(operand.encoding))
        };
        if self.joins_chunks() {
            return from_origin(at(chunk));
        }
        if operand.is_user() {
            return from_origin(self.cut(told, shape, chunk, tile).0);
        }
        let lengths = (operand.origin..chunk).map(|chunk| {
            let (start, end) = self.cut(told, shape, chunk, tile);
            self.bytes(operand.encoding, end - start)
        });
        lengths.sum()
    }

    /// The bytes of so many elements in an encoding.
    #[inline]
    pub fn bytes(&self, encoding: Encoding, elements: u64) -> u64 {
        encoding.bytes(elements, self.element_bytes)
    }

    /// The bytes of an element in an encoding without scales.
    #[inline]
    fn width(&self, encoding: Encoding) -> u64 {
        self.bytes(encoding, 1)
    }

    /// The bytes of the entries of one tile before this one.
    #[inline]
    fn entries_before(&self, widths: &[u32], entry: u32) -> u64 {
        let bytes = |width: &u32| {
            (u64::from(*width) * self.largest * self.widest).next_multiple_of(INLINE_LINE)
        };
        widths[..entry as usize].iter().map(bytes).sum()
    }

    /// The element at which a chunk of the message begins.
    #[inline]
    fn start(&self, shape: &Schedule, chunk: u32) -> u64 {
        match self.few.get(chunk as usize) {
            Some(start) => *start,
            None => self.start_beyond(shape, chunk),
        }
    }

    #[cold]
    fn start_beyond(&self, shape: &Schedule, chunk: u32) -> u64 {
        grid_start(&shape.grid, self.elements, chunk)
    }

    fn start_told(&self, told: Option<&[u64]>, shape: &Schedule, chunk: u32) -> u64 {
        match told {
            Some(starts) => starts[chunk as usize],
            None => self.start(shape, chunk),
        }
    }

    /// The elements of a chunk that belong to a tile: the first, and the one behind the last.
    fn cut(&self, told: Option<&[u64]>, shape: &Schedule, chunk: u32, tile: u64) -> (u64, u64) {
        let at = |chunk| self.start_told(told, shape, chunk);
        let (start, end) = (at(chunk), at(chunk + 1));
        let blocks = u128::from((end - start).div_ceil(self.block));
        let part = |tile: u64| {
            let blocks = (blocks * u128::from(tile) / u128::from(self.tiles)) as u64;
            end.min(start + blocks * self.block)
        };
        (part(tile), part(tile + 1))
    }

    /// The elements of the message's chunk that belong to a tile: the first, and the one behind the
    /// last.
    #[inline]
    pub fn chunk(&self, shape: &Schedule, chunk: u32, tile: u64) -> (u64, u64) {
        let told = self.tiled.as_ref().and_then(|tiled| tiled.told.as_deref());
        self.cut(told, shape, chunk, tile)
    }

    /// The size of an element of the call.
    #[inline]
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }
}

impl Tiled {
    /// Where the chunks of an operand begin, if that was told.
    fn of(&self, operand: &Operand) -> Option<&[u64]> {
        match (&self.told_input, operand.location) {
            (Some(input), Location::Input(_)) => Some(input),
            _ => self.told.as_deref(),
        }
    }
}

#[inline]
fn few_starts(grid: &Grid, elements: u64) -> [u64; FEW] {
    let mut few = [0; FEW];
    for (chunk, start) in (0..=grid.chunks()).zip(&mut few) {
        *start = grid_start(grid, elements, chunk);
    }
    few
}

impl Program {
    /// In which slots of the calling-thread path the temporary entries of a message of so many
    /// elements have room, if in any.
    pub fn room_on_calling_thread(&self, elements: u64, widest: u64) -> Option<Room> {
        let largest = grid_largest(&self.shape.grid, elements);
        let total = |widths: &[u32]| -> u64 {
            let bytes =
                |width: &u32| (u64::from(*width) * largest * widest).next_multiple_of(INLINE_LINE);
            widths.iter().map(bytes).sum()
        };
        let (receive, scratch) = (total(&self.shape.receive), total(&self.shape.scratch));
        let fits = |room: &Room| receive <= room.receive_bytes() && scratch <= room.scratch_bytes();
        [Room::Small, Room::Large].into_iter().find(fits)
    }

    /// What a run in a lane uses of channels and scratch memory.
    pub fn parts(&self, lane: usize, small: bool) -> PartSet {
        let tiles = match small {
            true => Part::SMALL_TILES,
            false => Part::tiles(lane),
        };
        let parts = PartSet::from(Part::FIRST) | tiles;
        match self.helps || !self.claims.is_empty() {
            true => parts | Part::CLAIMS,
            false => parts,
        }
    }
}

#[cfg(test)]
mod tests;
