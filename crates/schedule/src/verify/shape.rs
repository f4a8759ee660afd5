//! Properties common to all ranks, and the chunks that each user buffer holds.

use std::ops::Range;

use super::{VerifyError, VerifyOptions};
use crate::collective::Collective;
use crate::ir::{Buffer, Fraction, Grid, Rank, Schedule};

/// More chunks than this are refused, so that a few bytes of text cannot ask for much memory.
const CHUNKS_MAX: u32 = 1 << 20;

/// The part of the schedules that is the same on all ranks.
pub(super) struct CommonShape {
    pub(super) collective: Collective,
    pub(super) ranks: u32,
    pub(super) chunks: u32,
    /// Whether chunk sizes are known only when the operation is called.
    pub(super) sizes_vary: bool,
    /// Each rank's block; empty where the message is one vector.
    blocks: Vec<Range<u32>>,
}

impl CommonShape {
    /// Checks that the schedules belong together.
    pub(super) fn of(schedules: &[Schedule], options: &VerifyOptions) -> Result<Self, VerifyError> {
        let Some(first) = schedules.first() else {
            return Err(VerifyError::header("there is no schedule"));
        };
        check_same(schedules, first)?;
        if options
            .hosts
            .as_ref()
            .is_some_and(|hosts| hosts.len() != schedules.len())
        {
            return Err(VerifyError::header(format!(
                "the options name the hosts of another number of ranks than {}",
                first.ranks
            )));
        }
        check_root(first)?;
        check_grid(first)?;
        check_widths(first)?;
        Ok(CommonShape {
            collective: first.collective,
            ranks: first.ranks,
            chunks: first.grid.chunks(),
            sizes_vary: matches!(first.grid, Grid::Blocks(_)),
            blocks: blocks(first)?,
        })
    }

    /// The chunks that `rank` holds in its `Input` or `Output`; all chunks for temporary memory.
    pub(super) fn held(&self, rank: Rank, buffer: Buffer) -> Range<u32> {
        let whole = 0..self.chunks;
        let block = || self.blocks[rank as usize].clone();
        match (buffer, self.collective) {
            (Buffer::Scratch { .. } | Buffer::Receive { .. }, _) => whole,
            (_, Collective::Barrier) => 0..0,
            (
                Buffer::Input,
                Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. },
            ) => 0..0,
            (Buffer::Input, Collective::AllGather | Collective::Gather { .. }) => block(),
            (Buffer::Input, Collective::Scatter { root }) if rank != root => 0..0,
            (Buffer::Output, Collective::ReduceScatter | Collective::Scatter { .. }) => block(),
            (Buffer::Output, Collective::Gather { root }) if rank != root => 0..0,
            (Buffer::Input | Buffer::Output, _) => whole,
        }
    }

    /// Whether `rank`'s `Output` may be written.
    pub(super) fn writable(&self, rank: Rank) -> bool {
        !matches!(self.collective, Collective::Reduce { root } if root != rank)
    }

    /// Whether `rank`'s `Output` holds its contribution from the start.
    pub(super) fn in_place(&self, rank: Rank) -> bool {
        match self.collective {
            Collective::AllReduce | Collective::Reduce { .. } => true,
            Collective::Broadcast { root } => root == rank,
            _ => false,
        }
    }

    /// Whether contributions are combined.
    pub(super) fn reduces(&self) -> bool {
        matches!(
            self.collective,
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter
        )
    }

    /// The block that a chunk belongs to.
    pub(super) fn block_of(&self, chunk: u32) -> Rank {
        self.blocks.partition_point(|block| block.end <= chunk) as Rank
    }

    /// The place of a chunk within its block.
    pub(super) fn within_block(&self, chunk: u32) -> u32 {
        chunk - self.blocks[self.block_of(chunk) as usize].start
    }

    /// The first chunk of a rank's block.
    pub(super) fn block_start(&self, rank: Rank) -> u32 {
        self.blocks[rank as usize].start
    }
}

fn check_same(schedules: &[Schedule], first: &Schedule) -> Result<(), VerifyError> {
    if first.ranks as usize != schedules.len() {
        return Err(VerifyError::header(format!(
            "the group has {} ranks, but there are {} schedules",
            first.ranks,
            schedules.len()
        )));
    }
    for (rank, schedule) in schedules.iter().enumerate() {
        let other = |what: &str| {
            Err(VerifyError::header(format!(
                "rank {rank} has another {what} than rank 0"
            )))
        };
        if schedule.rank as usize != rank {
            return Err(VerifyError::header(format!(
                "schedule {rank} is that of rank {}",
                schedule.rank
            )));
        }
        if schedule.collective != first.collective {
            return other("collective");
        }
        if schedule.ranks != first.ranks {
            return other("number of ranks");
        }
        if schedule.grid != first.grid {
            return other("grid");
        }
        if schedule.scratch != first.scratch {
            return other("scratch");
        }
        if schedule.receive != first.receive {
            return other("receive");
        }
    }
    Ok(())
}

fn check_root(schedule: &Schedule) -> Result<(), VerifyError> {
    match schedule.collective {
        Collective::Reduce { root }
        | Collective::Broadcast { root }
        | Collective::Gather { root }
        | Collective::Scatter { root }
            if root >= schedule.ranks =>
        {
            Err(VerifyError::header(format!(
                "the root is rank {root}, but there are only {} ranks",
                schedule.ranks
            )))
        }
        _ => Ok(()),
    }
}

fn check_grid(schedule: &Schedule) -> Result<(), VerifyError> {
    let refuse = |why: String| Err(VerifyError::header(format!("the grid {why}")));
    match &schedule.grid {
        Grid::Equal(0) => return refuse("has no chunk".to_owned()),
        Grid::Blocks(blocks) if *blocks != schedule.ranks => {
            return refuse(format!("has {blocks} blocks for {} ranks", schedule.ranks));
        }
        Grid::Cuts(cuts) => {
            if !ascending(cuts) {
                return refuse("does not ascend from 0 to 1".to_owned());
            }
        }
        Grid::Equal(_) | Grid::Blocks(_) => (),
    }
    if schedule.grid.chunks() > CHUNKS_MAX {
        return refuse(format!("has more than {CHUNKS_MAX} chunks"));
    }
    Ok(())
}

/// Whether the cuts go from 0 to 1, each above the one before.
fn ascending(cuts: &[Fraction]) -> bool {
    let (Some(first), Some(last)) = (cuts.first(), cuts.last()) else {
        return false;
    };
    let below = |a: Fraction, b: Fraction| {
        u64::from(a.numerator) * u64::from(b.denominator)
            < u64::from(b.numerator) * u64::from(a.denominator)
    };
    cuts.iter().all(|cut| cut.denominator > 0)
        && first.numerator == 0
        && last.numerator == last.denominator
        && cuts.windows(2).all(|pair| below(pair[0], pair[1]))
}

fn check_widths(schedule: &Schedule) -> Result<(), VerifyError> {
    let chunks = schedule.grid.chunks();
    for (name, widths) in [
        ("scratch", &schedule.scratch),
        ("receive", &schedule.receive),
    ] {
        for (entry, width) in widths.iter().enumerate() {
            if *width == 0 || *width > chunks {
                return Err(VerifyError::header(format!(
                    "{name} entry {entry} is {width} chunks wide, but must have 1 to {chunks}"
                )));
            }
        }
    }
    Ok(())
}

/// Each rank's block of the grid, for collectives whose message consists of blocks.
fn blocks(schedule: &Schedule) -> Result<Vec<Range<u32>>, VerifyError> {
    let ranks = schedule.ranks;
    match schedule.collective {
        Collective::AllReduce
        | Collective::Reduce { .. }
        | Collective::Broadcast { .. }
        | Collective::Barrier => return Ok(Vec::new()),
        Collective::AllToAll if matches!(schedule.grid, Grid::Cuts(_)) => {
            return Err(VerifyError::header(
                "an all-to-all needs equal chunks or blocks",
            ));
        }
        _ => (),
    }
    let starts = (0..=ranks).map(|rank| chunk_at_share(&schedule.grid, rank, ranks));
    let Some(starts) = starts.collect::<Option<Vec<u32>>>() else {
        return Err(VerifyError::header(format!(
            "the grid does not divide the message into {ranks} blocks"
        )));
    };
    Ok(starts.windows(2).map(|pair| pair[0]..pair[1]).collect())
}

/// The chunk that starts at this share of the message.
fn chunk_at_share(grid: &Grid, numerator: u32, denominator: u32) -> Option<u32> {
    match grid {
        Grid::Equal(chunks) if chunks.is_multiple_of(denominator) => {
            Some(chunks / denominator * numerator)
        }
        Grid::Equal(_) => None,
        Grid::Blocks(_) => Some(numerator),
        Grid::Cuts(cuts) => {
            let share = |cut: &Fraction| {
                let (a, b) = (u64::from(cut.numerator), u64::from(cut.denominator));
                a * u64::from(denominator) == b * u64::from(numerator)
            };
            cuts.iter().position(share).map(|index| index as u32)
        }
    }
}
