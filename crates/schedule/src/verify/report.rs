//! The verifier's report on correct schedules: latency steps, traffic, and order of combination.

use crate::encoding::Encoding;
use crate::ir::Grid;

/// Costs and results of right schedules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The longest chain of signals, each sent after the one before it was waited for.
    pub latency_steps: u32,
    /// By rank: its writes to other ranks' memory.
    pub sent: Vec<Traffic>,
    /// By rank: its reads from other ranks' memory.
    pub read: Vec<Traffic>,
    /// By chunk, for collectives that reduce: in which order the contributions are combined, as
    /// text.
    pub trees: Vec<String>,
}

impl Report {
    /// Whether every element's contributions are combined by one reduction, in the order of ranks:
    /// the canonical tree.
    pub fn is_canonical(&self) -> bool {
        let ranks: Vec<String> = (0..self.sent.len()).map(|rank| rank.to_string()).collect();
        let canonical = format!("final({})", ranks.join(" + "));
        !self.trees.is_empty() && self.trees.iter().all(|tree| *tree == canonical)
    }
}

/// How often one rank moves which chunks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// By encoding: how often each chunk is moved.
    counts: Vec<(Encoding, Vec<u32>)>,
}

/// An exact share of the message, reduced to lowest terms. It may exceed 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Share {
    /// Numerator.
    pub numerator: u64,
    /// Denominator, at least 1.
    pub denominator: u64,
}

impl Share {
    /// This share, reduced to lowest terms. The denominator must not be 0.
    pub fn new(numerator: u64, denominator: u64) -> Self {
        let divisor = greatest_common_divisor(u128::from(numerator), u128::from(denominator));
        Share {
            numerator: (u128::from(numerator) / divisor) as u64,
            denominator: (u128::from(denominator) / divisor) as u64,
        }
    }
}

impl Traffic {
    /// How often this chunk is moved, in any encoding.
    pub fn times(&self, chunk: u32) -> u32 {
        let times = |(_, counts): &(Encoding, Vec<u32>)| counts.get(chunk as usize).copied();
        self.counts.iter().filter_map(times).sum()
    }

    /// How many chunks are moved, each counted as often as it is.
    pub fn chunks(&self) -> u64 {
        let all = self.counts.iter().flat_map(|(_, counts)| counts);
        all.map(|count| u64::from(*count)).sum()
    }

    /// The number of elements moved, as a share of the message's, in any encoding. `None` where the
    /// sizes are known only when the operation is called, or the terms do not fit 64 bits.
    pub fn share(&self, grid: &Grid) -> Option<Share> {
        match grid {
            Grid::Equal(chunks) => Some(Share::new(self.chunks(), u64::from(*chunks))),
            Grid::Blocks(_) => None,
            Grid::Cuts(_) => self.share_of_cuts(grid),
        }
    }

    /// The number of bytes moved for a message of `elements` elements of `element_bytes` bytes
    /// each. `None` where the sizes are known only when the operation is called.
    pub fn bytes(&self, grid: &Grid, elements: u64, element_bytes: u64) -> Option<u64> {
        let mut total = 0;
        for (encoding, counts) in &self.counts {
            for (chunk, count) in counts.iter().enumerate() {
                let bounds = grid.bounds(chunk as u32, elements)?;
                let moved = (bounds.end - bounds.start) * u64::from(*count);
                total += encoding.bytes(moved, element_bytes);
            }
        }
        Some(total)
    }

    pub(super) fn count(&mut self, encoding: Encoding, chunks: std::ops::Range<u32>) {
        let known = self.counts.iter().position(|(e, _)| *e == encoding);
        let index = known.unwrap_or_else(|| {
            self.counts.push((encoding, Vec::new()));
            self.counts.len() - 1
        });
        let counts = &mut self.counts[index].1;
        if counts.len() < chunks.end as usize {
            counts.resize(chunks.end as usize, 0);
        }
        for count in &mut counts[chunks.start as usize..chunks.end as usize] {
            *count += 1;
        }
    }

    fn share_of_cuts(&self, grid: &Grid) -> Option<Share> {
        let Grid::Cuts(cuts) = grid else { return None };
        let mut sum = (0_u128, 1_u128);
        for (chunk, pair) in cuts.windows(2).enumerate() {
            let times = u128::from(self.times(chunk as u32));
            let ends = [pair[0], pair[1]].map(|cut| {
                let (numerator, denominator) = (cut.numerator, cut.denominator);
                (u128::from(numerator), u128::from(denominator))
            });
            let width = ends[1].0 * ends[0].1 - ends[0].0 * ends[1].1;
            let denominator = ends[0].1 * ends[1].1;
            let numerator = sum
                .0
                .checked_mul(denominator)?
                .checked_add(sum.1.checked_mul(times * width)?)?;
            let denominator = sum.1.checked_mul(denominator)?;
            let divisor = greatest_common_divisor(numerator, denominator);
            sum = (numerator / divisor, denominator / divisor);
        }
        Some(Share {
            numerator: u64::try_from(sum.0).ok()?,
            denominator: u64::try_from(sum.1).ok()?,
        })
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}
