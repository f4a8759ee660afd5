//! Rules of the interpreter: expected results, effects of steps, and order of tiles.

use weft_schedule::{Buffer, Collective, Rank, Schedule, Slice, Step};

use super::machine::{CellValue, Impossible, InterpretedElement, InterpretedTile, scaled};
use super::{SLOTS, TILES};

/// The expected sum in element `index` of the output of `rank`. `None`: it does not matter.
pub(super) fn expected(
    collective: Collective,
    given: &[Vec<CellValue>],
    rank: Rank,
    index: usize,
) -> Option<u64> {
    let of = |rank: usize, index: usize| given[rank][index].map(|element| element.sum);
    let share = given[0].len() / given.len();
    let total = || {
        let all = (0..given.len()).filter_map(|rank| of(rank, index));
        Some(scaled(all.fold(0, u64::wrapping_add)))
    };
    let rank = rank as usize;
    match collective {
        Collective::AllReduce => total(),
        Collective::Reduce { root } if root as usize == rank => total(),
        Collective::Reduce { .. } => of(rank, index),
        Collective::Broadcast { root } => of(root as usize, index),
        Collective::AllGather => of(index / share, index),
        Collective::ReduceScatter => (index / share == rank).then(total).flatten(),
        Collective::AllToAll => of(index / share, rank * share + index % share),
        Collective::Gather { root } => (root as usize == rank)
            .then(|| of(index / share, index))
            .flatten(),
        Collective::Scatter { root } => (index / share == rank)
            .then(|| of(root as usize, index))
            .flatten(),
        Collective::Barrier => None,
    }
}

/// The values that a step writes to a destination.
pub(super) fn compute(
    step: &Step,
    dst: &Slice,
    contents: &[Vec<CellValue>],
) -> Result<Vec<CellValue>, Impossible> {
    let elements = contents.first().map_or(0, Vec::len);
    if contents.iter().any(|content| content.len() != elements) {
        return Err(Impossible(format!("the sources for {dst} differ in size")));
    }
    let element = |index: usize| {
        let sources: Option<Vec<InterpretedElement>> =
            contents.iter().map(|content| content[index]).collect();
        let sources = sources?;
        Some(match step {
            Step::Reduce { is_final, .. } => {
                InterpretedElement::combined(&sources, *is_final, dst.encoding)
            }
            _ => sources[0].encoded(dst.encoding),
        })
    };
    Ok((0..elements).map(element).collect())
}

/// The tile that used the same slot before.
pub(super) fn former(tile: InterpretedTile) -> Option<InterpretedTile> {
    if tile.tile >= SLOTS {
        return Some(InterpretedTile {
            tile: tile.tile - SLOTS,
            ..tile
        });
    }
    let operation = tile.operation.checked_sub(1)?;
    let last = (0..TILES).rev().find(|other| other % SLOTS == tile.tile)?;
    Some(InterpretedTile {
        operation,
        tile: last,
        ..tile
    })
}

pub(super) fn writes_receive(schedule: &Schedule, at: Rank) -> bool {
    let here = |slice: &Slice| matches!(slice.buffer, Buffer::Receive { .. }) && slice.rank == at;
    schedule.steps.iter().any(|step| match step {
        Step::Copy { dsts, .. } | Step::Reduce { dsts, .. } => dsts.iter().any(here),
        Step::Signal { .. } | Step::Wait { .. } => false,
    })
}

pub(super) fn reads_receive(schedule: &Schedule, from: Rank) -> bool {
    let here = |slice: &Slice| matches!(slice.buffer, Buffer::Receive { from: f, .. } if f == from);
    schedule.steps.iter().any(|step| match step {
        Step::Copy { src, .. } => here(src),
        Step::Reduce { srcs, .. } => srcs.iter().any(here),
        Step::Signal { .. } | Step::Wait { .. } => false,
    })
}
