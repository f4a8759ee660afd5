//! Test case: one collective operation with its data.

use std::ops::Range;

use weft_kernels::DType;
use weft_runtime::{Counts, Op, Tiling};
use weft_schedule::{Collective, WireFormat};

use super::{Rng, numbers};

/// The numbers of elements of the blocks.
#[derive(Clone, Debug)]
pub(crate) enum BlockCounts {
    /// All blocks have this many; for operations on vectors, the vector.
    Equal(usize),
    /// The block of each rank.
    PerRank(Vec<usize>),
    /// All-to-all: `[from][to]`.
    PerPair(Vec<Vec<usize>>),
}

/// An operation to test.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) collective: Collective,
    pub(crate) algorithm: Option<String>,
    pub(crate) tiling: Tiling,
    pub(crate) wire: Option<WireFormat>,
    pub(crate) dtype: DType,
    /// A PremulSum uses each rank's factor: `numbers::factor`.
    pub(crate) op: Op,
    pub(crate) blocks: BlockCounts,
    pub(crate) in_place: bool,
    pub(crate) symmetric: bool,
    pub(crate) priority: i32,
    /// The seed of the data.
    pub(crate) seed: u64,
}

/// The places of a rank's buffers, in bytes from the first one's first byte, and the length that is
/// written.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) input: Range<usize>,
    pub(crate) output: Range<usize>,
    /// Whether the operation may write to `output` on this rank.
    pub(crate) writes: bool,
}

/// Bytes between buffers, which must not change.
pub(crate) const GUARD: usize = 128;

impl Case {
    /// A sum of float32, or movement of them.
    pub(crate) fn simple(collective: Collective, count: usize) -> Self {
        Case {
            collective,
            algorithm: None,
            tiling: Tiling::default(),
            wire: None,
            dtype: DType::F32,
            op: Op::Sum,
            blocks: BlockCounts::Equal(count),
            in_place: false,
            symmetric: false,
            priority: 0,
            seed: 1,
        }
    }

    pub(crate) fn reduces(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter
        )
    }

    /// The block that every rank has, in elements.
    pub(crate) fn sizes(&self, ranks: usize) -> Vec<usize> {
        match &self.blocks {
            BlockCounts::Equal(count) => vec![*count; ranks],
            BlockCounts::PerRank(list) => list.clone(),
            BlockCounts::PerPair(_) => unreachable!("all-to-all has no block per rank"),
        }
    }

    /// The elements of rank `from`'s input that it sends to rank `to`.
    pub(crate) fn sent(&self, from: usize, to: usize) -> Range<usize> {
        match &self.blocks {
            BlockCounts::PerPair(pairs) => {
                let start = pairs[from][..to].iter().sum();
                start..start + pairs[from][to]
            }
            BlockCounts::Equal(count) => to * count..(to + 1) * count,
            BlockCounts::PerRank(_) => unreachable!("all-to-all has counts per pair"),
        }
    }

    /// The counts for the runtime.
    pub(crate) fn counts(&self, rank: usize) -> Counts {
        let wide = |list: &[usize]| list.iter().map(|n| *n as u64).collect();
        match &self.blocks {
            BlockCounts::Equal(count) => Counts::Equal(*count as u64),
            BlockCounts::PerRank(list) => Counts::PerRank(wide(list)),
            BlockCounts::PerPair(pairs) => Counts::PerPair {
                send: wide(&pairs[rank]),
                receive: pairs.iter().map(|to| to[rank] as u64).collect(),
            },
        }
    }

    /// The elements of a rank's input and of its output.
    pub(crate) fn lengths(&self, rank: usize, ranks: usize) -> (usize, usize) {
        let total = || self.sizes(ranks).iter().sum();
        let if_root = |root: u32, length: usize| if root as usize == rank { length } else { 0 };
        match self.collective {
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. } => {
                (self.sizes(1)[0], self.sizes(1)[0])
            }
            Collective::AllGather => (self.sizes(ranks)[rank], total()),
            Collective::ReduceScatter => (total(), self.sizes(ranks)[rank]),
            Collective::Gather { root } => (self.sizes(ranks)[rank], if_root(root, total())),
            Collective::Scatter { root } => (if_root(root, total()), self.sizes(ranks)[rank]),
            Collective::AllToAll => (
                (0..ranks).map(|to| self.sent(rank, to).len()).sum(),
                (0..ranks).map(|from| self.sent(from, rank).len()).sum(),
            ),
            Collective::Barrier => (0, 0),
        }
    }

    /// The places of the buffers, the same on all ranks, so that symmetric memory is used directly
    /// where possible.
    pub(crate) fn places(&self, rank: usize, ranks: usize) -> Places {
        let size = self.dtype.size();
        let (input, output) = self.lengths(rank, ranks);
        let (input, output) = (input * size, output * size);
        let before = || self.sizes(ranks)[..rank].iter().sum::<usize>() * size;
        let apart = (0..ranks)
            .map(|r| self.lengths(r, ranks).0)
            .max()
            .unwrap_or(0)
            * size
            + GUARD;
        let (input_at, output_at) = match self.collective {
            _ if !self.in_place => (0, apart.next_multiple_of(64)),
            Collective::AllGather => (before(), 0),
            Collective::Gather { root } if root as usize == rank => (before(), 0),
            Collective::ReduceScatter => (0, before()),
            Collective::Scatter { root } if root as usize == rank => (0, before()),
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. } => {
                (0, 0)
            }
            _ => (0, apart.next_multiple_of(64)),
        };
        // A rank that scales its contribution needs room for it.
        let scales = matches!(self.op, Op::PremulSum(_));
        let writes = match self.collective {
            Collective::Reduce { root } => root as usize == rank || scales,
            _ => true,
        };
        Places {
            input: input_at..input_at + input,
            output: output_at..output_at + output,
            writes,
        }
    }

    /// Bytes that hold the buffers of any rank.
    pub(crate) fn bytes(&self, ranks: usize) -> usize {
        let ends = (0..ranks).map(|rank| {
            let places = self.places(rank, ranks);
            places.input.end.max(places.output.end)
        });
        ends.max().unwrap_or(0)
    }

    /// A rank's input.
    pub(crate) fn input(&self, rank: usize, ranks: usize) -> Vec<u8> {
        let mut rng = Rng::new(self.seed ^ (rank as u64 + 1) << 56);
        let count = self.lengths(rank, ranks).0;
        match self.reduces() {
            true => numbers::elements(self.dtype, self.op, count, &mut rng),
            false => numbers::any_bytes(count * self.dtype.size(), &mut rng),
        }
    }
}
