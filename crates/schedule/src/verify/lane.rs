//! The tiles of a symbolic execution, and the order that the reuse of slots imposes on them.

use std::collections::BTreeSet;
use std::ops::Range;

use super::location::TileRun;
use super::{StepLocation, VerifyError, VerifyOptions};
use crate::ir::{Buffer, Rank, Schedule, Slice, Step};

/// More tiles than this are refused.
const TILES_MAX: u32 = 256;

/// Operations that follow each other in the same slots. See [Note: Reuse of slots] in `mod.rs`.
pub(super) struct VerifierLane {
    ranks: u32,
    slots: u32,
    /// Of one operation.
    tiles: u32,
    operations: u32,
    /// By rank: the ranks in whose receive buffers it writes.
    receive_targets: Vec<BTreeSet<Rank>>,
}

impl VerifierLane {
    pub(super) fn of(schedules: &[Schedule], options: &VerifyOptions) -> Result<Self, VerifyError> {
        let VerifyOptions {
            slots,
            tiles,
            operations,
            ..
        } = *options;
        let total = tiles.saturating_mul(operations);
        if slots == 0 || total == 0 || total > TILES_MAX {
            return Err(VerifyError::header(format!(
                "{operations} operations of {tiles} tiles in {slots} slots cannot be executed: at least one slot and one tile are needed, and at most {TILES_MAX} tiles"
            )));
        }
        Ok(VerifierLane {
            ranks: schedules.len() as u32,
            slots,
            tiles,
            operations,
            receive_targets: schedules.iter().map(receive_targets).collect(),
        })
    }

    /// The tiles of all operations.
    pub(super) fn tiles(&self) -> Range<u32> {
        0..self.tiles * self.operations
    }

    /// All runs, the lowest tile first.
    pub(super) fn runs(&self) -> impl Iterator<Item = TileRun> + use<> {
        let (tiles, ranks) = (self.tiles(), self.ranks);
        tiles.flat_map(move |tile| (0..ranks).map(move |rank| TileRun { rank, tile }))
    }

    /// The position of a run among all.
    pub(super) fn index(&self, run: TileRun) -> usize {
        run.tile as usize * self.ranks as usize + run.rank as usize
    }

    /// The slot of temporary memory and flag words that a tile uses.
    pub(super) fn slot(&self, tile: u32) -> u32 {
        tile % self.slots
    }

    /// The runs that must have ended before this one begins: that with the same slot before, on
    /// this rank and on those that owe it credit.
    pub(super) fn begins_after(&self, run: TileRun) -> Vec<TileRun> {
        let Some(tile) = run.tile.checked_sub(self.slots) else {
            return Vec::new();
        };
        let targets = self.receive_targets[run.rank as usize].iter().copied();
        let ranks = targets.chain([run.rank]);
        ranks.map(|rank| TileRun { rank, tile }).collect()
    }

    /// The runs that may wait for the end of this one.
    pub(super) fn followers(&self, run: TileRun) -> impl Iterator<Item = TileRun> + use<> {
        let tile = run.tile + self.slots;
        let ranks = if self.tiles().contains(&tile) {
            self.ranks
        } else {
            0
        };
        (0..ranks).map(move |rank| TileRun { rank, tile })
    }

    /// Whether the clock knows that `rank` has entered the operation that `tile` belongs to, or a
    /// later one.
    pub(super) fn entered(&self, clock: &Clock, rank: Rank, tile: u32) -> bool {
        let first = tile / self.tiles * self.tiles;
        (first..self.tiles().end).any(|tile| self.begun(clock, rank, tile))
    }

    /// Whether the clock knows that `rank` has begun a tile.
    pub(super) fn begun(&self, clock: &Clock, rank: Rank, tile: u32) -> bool {
        clock.steps[self.index(TileRun { rank, tile })] > 0
    }
}

/// The events before the next step of a run: a vector clock.
#[derive(Clone)]
pub(super) struct Clock {
    ranks: u32,
    /// By run: how many of its steps, at least 1 when it is known to have begun.
    steps: Vec<u32>,
}

impl Clock {
    /// The clock of a run that knows of itself only.
    pub(super) fn new(lane: &VerifierLane, run: TileRun) -> Self {
        let mut steps = vec![0; lane.tiles().len() * lane.ranks as usize];
        steps[lane.index(run)] = 1;
        Clock {
            ranks: lane.ranks,
            steps,
        }
    }

    /// Whether a step is known to have happened.
    pub(super) fn knows(&self, place: StepLocation) -> bool {
        let index = place.tile as usize * self.ranks as usize + place.rank as usize;
        self.steps[index] > place.step
    }

    /// Notes that a step happens.
    pub(super) fn note(&mut self, place: StepLocation) {
        let index = place.tile as usize * self.ranks as usize + place.rank as usize;
        self.steps[index] = place.step + 1;
    }

    /// Learns all that `other` knows.
    pub(super) fn join(&mut self, other: &Clock) {
        for (known, new) in self.steps.iter_mut().zip(&other.steps) {
            *known = (*known).max(*new);
        }
    }
}

fn receive_targets(schedule: &Schedule) -> BTreeSet<Rank> {
    let dsts = schedule.steps.iter().flat_map(destinations);
    dsts.filter(|dst| matches!(dst.buffer, Buffer::Receive { .. }))
        .map(|dst| dst.rank)
        .filter(|rank| *rank < schedule.ranks)
        .collect()
}

pub(super) fn destinations(step: &Step) -> &[Slice] {
    match step {
        Step::Copy { dsts, .. } | Step::Reduce { dsts, .. } => dsts,
        Step::Signal { .. } | Step::Wait { .. } => &[],
    }
}
