//! Geometry of an operation: the elements of its chunks and tiles, and their position in each
//! location.

use std::ops::Range;

use weft_call::Error;
use weft_call::{Call, Counts};
use weft_channel::{
    ChannelLayout, ChannelPart, INLINE_HEADER, INLINE_LINE, INLINE_RANKS, PartSet, SMALL_RECEIVE,
    SMALL_SCRATCH, SlotSize,
};
use weft_schedule::{Encoding, Grid, Schedule, TemporaryEntries, TileLimits};

use super::instruction::{Location, Operand, Program};

/// The limits of a small slot.
const SMALL_LIMITS: TileLimits = TileLimits {
    receive_bytes: SMALL_RECEIVE,
    scratch_bytes: SMALL_SCRATCH,
    chunk_bytes: u64::MAX,
};
/// The number of chunk boundaries that are computed in advance, as divisions dominate the time of
/// a short call.
const FEW: usize = INLINE_RANKS + 1;

/// The mapping of chunks to elements and bytes.
///
/// Without `tiled` it is one tile whose neighbouring chunks are contiguous, and costs no
/// allocation.
#[derive(Debug)]
pub struct Geometry {
    /// The elements at which the first chunks begin.
    few: [u64; FEW],
    elements: u64,
    element_bytes: u64,
    /// The elements of the largest part of a chunk in one tile.
    largest: u64,
    /// Bytes of a slot before the entries of a receive buffer.
    header: u64,
    /// Bytes of the widest element in temporary entries.
    widest: u64,
    /// Elements of a block, which neither chunks nor tiles divide: those that share a scale, or 1.
    block: u64,
    tiled: Option<Box<Tiled>>,
    /// The number of tiles.
    pub tiles: u64,
}

/// Additional data for a message in lanes.
#[derive(Debug)]
struct Tiled {
    /// The elements at which chunks begin and the last one ends, where a call lists its counts: in
    /// the message, or in the data that this rank receives.
    chunk_starts: Option<Vec<u64>>,
    /// The same in the data that this rank sends, where it has a list of its own.
    input_starts: Option<Vec<u64>>,
    /// The offsets of the entries of receive buffers and of scratch memory.
    receive: Vec<u64>,
    scratch: Vec<u64>,
    /// Whether the entries of a tile fit into small slots.
    small: bool,
}

fn starts_of_counts(counts: &[u64]) -> Vec<u64> {
    let mut starts = vec![0];
    for count in counts {
        starts.push(starts[starts.len() - 1] + count);
    }
    starts
}

/// The elements at which the chunks of a message begin and the last one ends, where only the last
/// chunk may end within a block.
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
    /// Divides a call into tiles. `largest_chunk` is the largest chunk on any rank, if this rank
    /// cannot know it. `tile_bytes` limits the bytes of the largest chunk in one tile. `wire` is
    /// the encoding on the wire; its blocks are not divided, and are counted from the beginning of
    /// each rank's block.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the algorithm's temporary memory does not fit into the slots.
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
        let (chunk_starts, input_starts) = match &call.counts {
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
        let largest_listed = chunk_starts
            .iter()
            .chain(&input_starts)
            .map(|starts| largest_of(starts))
            .max();
        let largest_here = || grid_largest(&shape.grid, elements);
        let largest_chunk = largest_chunk
            .or(largest_listed)
            .unwrap_or_else(largest_here);
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
            chunk_starts,
            input_starts,
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

    /// Lays out a message of `elements` elements as one tile after the header of its slots.
    #[inline]
    pub fn whole(program: &Program, elements: u64, element_bytes: u64, widest: u64) -> Self {
        let grid = &program.shape.grid;
        let largest = grid_largest(grid, elements);
        Geometry {
            few: few_starts(grid, elements),
            elements,
            element_bytes,
            largest,
            // A small payload is in the header's cache line.
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

    /// Whether the temporary entries of a tile fit into small slots; the same on all ranks.
    #[inline]
    pub fn is_small(&self) -> bool {
        self.tiled.as_ref().is_some_and(|tiled| tiled.small)
    }

    /// Bytes of the message.
    #[inline]
    pub fn message_bytes(&self) -> u64 {
        self.elements * self.element_bytes
    }

    /// Bytes of the largest part of a chunk in one tile.
    pub fn tile_bytes(&self) -> u64 {
        self.largest * self.element_bytes
    }

    /// The number of contiguous pieces of a step's operands, from the one that determines its
    /// length. Neighbouring chunks are one piece if one tile covers them and no chunk ends within a
    /// block.
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
                let starts = tiled.starts_of(measured);
                let at = |chunk| self.start_of(starts, shape, chunk);
                if self.joins_chunks() {
                    return at(end) - at(start);
                }
                let (start, end) = self.cut(starts, shape, start + piece, tile);
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
        let starts = tiled.starts_of(operand);
        let at = |chunk| self.start_of(starts, shape, chunk);
        let from_origin = |start: u64| {
            let elements = start.wrapping_sub(at(operand.origin));
            elements.wrapping_mul(self.width(operand.encoding))
        };
        if self.joins_chunks() {
            return from_origin(at(chunk));
        }
        if operand.is_user() {
            return from_origin(self.cut(starts, shape, chunk, tile).0);
        }
        let lengths = (operand.origin..chunk).map(|chunk| {
            let (start, end) = self.cut(starts, shape, chunk, tile);
            self.bytes(operand.encoding, end - start)
        });
        lengths.sum()
    }

    /// The bytes of `elements` elements in an encoding.
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

    fn start_of(&self, starts: Option<&[u64]>, shape: &Schedule, chunk: u32) -> u64 {
        match starts {
            Some(starts) => starts[chunk as usize],
            None => self.start(shape, chunk),
        }
    }

    /// The elements of a chunk that belong to a tile: the first, and the one after the last.
    fn cut(&self, starts: Option<&[u64]>, shape: &Schedule, chunk: u32, tile: u64) -> (u64, u64) {
        let at = |chunk| self.start_of(starts, shape, chunk);
        let (start, end) = (at(chunk), at(chunk + 1));
        let blocks = u128::from((end - start).div_ceil(self.block));
        let part = |tile: u64| {
            let blocks = (blocks * u128::from(tile) / u128::from(self.tiles)) as u64;
            end.min(start + blocks * self.block)
        };
        (part(tile), part(tile + 1))
    }

    /// The elements of the message's chunk that belong to a tile: the first, and the one after the
    /// last.
    #[inline]
    pub fn chunk(&self, shape: &Schedule, chunk: u32, tile: u64) -> (u64, u64) {
        let tiled = self.tiled.as_ref();
        let starts = tiled.and_then(|tiled| tiled.chunk_starts.as_deref());
        self.cut(starts, shape, chunk, tile)
    }

    /// The size of an element of the call.
    #[inline]
    pub fn element_bytes(&self) -> u64 {
        self.element_bytes
    }
}

impl Tiled {
    /// The elements at which the chunks of an operand begin, if the call lists its counts.
    fn starts_of(&self, operand: &Operand) -> Option<&[u64]> {
        match (&self.input_starts, operand.location) {
            (Some(input), Location::Input(_)) => Some(input),
            _ => self.chunk_starts.as_deref(),
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
    /// The smallest slots of the calling-thread path that the temporary entries of a message of
    /// `elements` elements fit into, if any.
    pub fn room_on_calling_thread(&self, elements: u64, widest: u64) -> Option<SlotSize> {
        let largest = grid_largest(&self.shape.grid, elements);
        let total = |widths: &[u32]| -> u64 {
            let bytes =
                |width: &u32| (u64::from(*width) * largest * widest).next_multiple_of(INLINE_LINE);
            widths.iter().map(bytes).sum()
        };
        let (receive, scratch) = (total(&self.shape.receive), total(&self.shape.scratch));
        let fits =
            |room: &SlotSize| receive <= room.receive_bytes() && scratch <= room.scratch_bytes();
        [SlotSize::Small, SlotSize::Large].into_iter().find(fits)
    }

    /// The parts of channels and scratch memory that a run in a lane uses.
    pub fn parts(&self, lane: usize, small: bool) -> PartSet {
        let tiles = match small {
            true => ChannelPart::SMALL_TILES,
            false => ChannelPart::tiles(lane),
        };
        let parts = PartSet::from(ChannelPart::FIRST) | tiles;
        match self.helps || !self.claims.is_empty() {
            true => parts | ChannelPart::CLAIMS,
            false => parts,
        }
    }
}

#[cfg(test)]
mod tests;
