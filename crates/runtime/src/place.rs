//! Where the slices of a tile lie in memory.

use weft_kernels::DType;
use weft_schedule::{Buffer, Slice};
use weft_transport::Segment;

use crate::channel::slot_of;
use crate::execute::element_type;
use crate::geometry::Side;
use crate::group_state::{GroupState, Remote};
use crate::operation::{Running, Tile};

/// One tile's view of memory: turns slices into addresses.
pub(crate) struct Place<'a> {
    group: &'a GroupState,
    running: &'a Running,
    pool: &'a Segment,
    lane: usize,
    slot: usize,
    tile: u64,
    dtype: DType,
}

impl<'a> Place<'a> {
    pub(crate) fn new(
        group: &'a GroupState,
        running: &'a Running,
        pool: &'a Segment,
        lane: usize,
        tile: &Tile,
        dtype: DType,
    ) -> Self {
        let slot = slot_of(tile.g);
        Place {
            group,
            running,
            pool,
            lane,
            slot,
            tile: tile.index,
            dtype,
        }
    }

    /// The type of the message's elements.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether this rank alone reaches a slice of its own.
    pub(crate) fn is_private(&self, slice: &Slice) -> bool {
        self.is_user(slice) && self.running.bases.peers.is_none()
    }

    /// Whether a slice lies in the caller's memory.
    pub(crate) fn is_user(&self, slice: &Slice) -> bool {
        matches!(slice.buffer, Buffer::Input | Buffer::Output)
    }

    /// The runs of elements in which all slices of a step are contiguous: (chunks to skip, elements).
    ///
    /// Lengths are those of `src`'s chunks if it is user memory, else of the destination's.
    pub(crate) fn runs(&self, src: &Slice, dst: &Slice) -> Vec<(u32, usize)> {
        let measured = if self.is_user(src) { src } else { dst };
        let side = side_of(measured);
        let length = |skip: u32| {
            let range = self
                .running
                .geometry
                .chunk(side, measured.chunks.start + skip, self.tile);
            (range.end - range.start) as usize
        };
        let chunks = src.chunks.end - src.chunks.start;
        if self.running.geometry.whole() {
            return vec![(0, (0..chunks).map(length).sum())];
        }
        (0..chunks).map(|skip| (skip, length(skip))).collect()
    }

    /// The address of a slice, `skip` chunks from its first.
    pub(crate) fn address(&self, slice: &Slice, skip: u32) -> *mut u8 {
        let chunk = slice.chunks.start + skip;
        let bytes = element_type(slice, self.dtype).size() as u64;
        match slice.buffer {
            Buffer::Input => self.user(slice.rank, Side::Input, chunk),
            Buffer::Output => self.user(slice.rank, Side::Output, chunk),
            Buffer::Scratch { entry, base } => {
                let offset =
                    self.running.geometry.scratch_entry(entry) + self.packed(base, chunk) * bytes;
                self.scratch(slice.rank).wrapping_add(offset as usize)
            }
            Buffer::Landing { from, entry, base } => {
                let offset =
                    self.running.geometry.landing_entry(entry) + self.packed(base, chunk) * bytes;
                self.landing(slice.rank, from).wrapping_add(offset as usize)
            }
        }
    }

    /// The offset in the peer's channel of a slice of its landing memory.
    pub(crate) fn landing_at_peer(&self, dst: &Slice) -> u64 {
        let Buffer::Landing { entry, base, .. } = dst.buffer else {
            unreachable!("the verifier lets links write to landing memory only");
        };
        let packed = self.packed(base, dst.chunks.start) * self.running.geometry.element_bytes();
        let slot = self.group.layout.landing(self.lane, self.slot);
        slot + self.running.geometry.landing_entry(entry) + packed
    }

    fn packed(&self, base: u32, chunk: u32) -> u64 {
        self.running
            .geometry
            .packed_before(Side::Output, base, chunk, self.tile)
    }

    fn user(&self, rank: u32, side: Side, chunk: u32) -> *mut u8 {
        let geometry = &self.running.geometry;
        let bases = &self.running.bases;
        let (input, output) = match &bases.peers {
            Some(peers) if rank != self.group.rank => peers[rank as usize],
            _ => (bases.input, bases.output),
        };
        let base = match side {
            Side::Input => input.cast_mut(),
            Side::Output => output,
        };
        let start = geometry.chunk(side, chunk, self.tile).start;
        let elements = start.wrapping_sub(geometry.origin(side, rank));
        base.wrapping_add(elements.wrapping_mul(geometry.element_bytes()) as usize)
    }

    fn scratch(&self, rank: u32) -> *mut u8 {
        let within = self.group.layout.scratch(self.lane, self.slot);
        if rank == self.group.rank {
            return self.own(self.group.scratch.offset + within);
        }
        self.peer(rank, |remote| remote.scratch + within)
    }

    fn landing(&self, rank: u32, from: u32) -> *mut u8 {
        if rank != self.group.rank {
            let within = self.group.layout.landing(self.lane, self.slot);
            return self.peer(rank, |remote| remote.channel + within);
        }
        let channel = self.group.channels[from as usize].as_ref();
        let local = channel.map_or(0, |channel| channel.local.offset);
        self.own(local + self.group.layout.landing(self.lane, self.slot))
    }

    fn remote(&self, rank: u32) -> Option<&Remote> {
        self.group.channels[rank as usize].as_ref()?.remote.as_ref()
    }

    fn own(&self, offset: u64) -> *mut u8 {
        self.pool.base().as_ptr().wrapping_add(offset as usize)
    }

    /// A place in the pool of a peer, which is mapped.
    fn peer(&self, rank: u32, offset: impl FnOnce(&Remote) -> u64) -> *mut u8 {
        let mapped = self.remote(rank).and_then(|remote| {
            let base = remote.pool.as_ref()?.base().as_ptr();
            Some(base.wrapping_add(offset(remote) as usize))
        });
        mapped.unwrap_or(std::ptr::null_mut())
    }
}

fn side_of(slice: &Slice) -> Side {
    match slice.buffer {
        Buffer::Input => Side::Input,
        _ => Side::Output,
    }
}
