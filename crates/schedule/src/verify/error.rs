//! Errors of the verifier: the problem and its place.

use std::error::Error;
use std::fmt;

use super::location::{ClaimExecutors, TileRun};
use super::{Problem, ValueProblem};
use crate::ir::{Rank, Schedule};
use crate::text;

/// Why schedules are refused, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyError {
    /// The rank whose program or memory is wrong.
    pub rank: Option<Rank>,
    /// The tile in which it shows, if it is not already seen in the program.
    pub tile: Option<u32>,
    /// The step of that rank's program.
    pub step: Option<u32>,
    /// The chunk.
    pub chunk: Option<u32>,
    /// The problem.
    pub problem: Problem,
    /// The step in text form.
    text: Option<Box<str>>,
    /// The claimable steps that are executed by helpers here, with those.
    helped: Box<[(u32, Rank)]>,
}

impl VerifyError {
    /// An error that concerns all ranks.
    pub(super) fn header(message: impl Into<String>) -> Self {
        VerifyError {
            rank: None,
            tile: None,
            step: None,
            chunk: None,
            problem: Problem::Header(message.into()),
            text: None,
            helped: Box::default(),
        }
    }

    /// An error at a step.
    pub(super) fn at(schedule: &Schedule, step: usize, problem: Problem) -> Self {
        VerifyError {
            rank: Some(schedule.rank),
            tile: None,
            step: Some(step as u32),
            chunk: None,
            problem,
            text: Some(text::step(&schedule.steps[step], schedule.rank).into_boxed_str()),
            helped: Box::default(),
        }
    }

    /// An error in the memory of a rank at the end of a tile.
    pub(super) fn of_run(run: TileRun, chunk: Option<u32>, problem: ValueProblem) -> Self {
        VerifyError {
            rank: Some(run.rank),
            tile: Some(run.tile),
            step: None,
            chunk,
            problem: Problem::Value(problem),
            text: None,
            helped: Box::default(),
        }
    }

    /// The same error, seen when the steps are claimed as in `choice`.
    pub(super) fn when(mut self, choice: &ClaimExecutors, owners: &ClaimExecutors) -> Self {
        let by_helper =
            |(id, by): (&u32, &Rank)| (owners.get(id) != Some(by)).then_some((*id, *by));
        let mut helped: Vec<(u32, Rank)> = choice.iter().filter_map(by_helper).collect();
        helped.sort_unstable();
        self.helped = helped.into();
        self
    }

    /// The same error, with the tile named.
    pub(super) fn tile(mut self, tile: u32) -> Self {
        self.tile = Some(tile);
        self
    }

    /// The same error, with the chunk named.
    pub(super) fn chunk(mut self, chunk: u32) -> Self {
        self.chunk = Some(chunk);
        self
    }
}

impl Error for VerifyError {}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(rank) = self.rank {
            write!(f, "rank {rank}")?;
            between = ", ";
        }
        if let Some(tile) = self.tile {
            write!(f, "{between}tile {tile}")?;
            between = ", ";
        }
        if let Some(step) = self.step {
            write!(f, "{between}step {step}")?;
            between = ", ";
        }
        if let Some(text) = &self.text {
            write!(f, " `{text}`")?;
        }
        if let Some(chunk) = self.chunk {
            write!(f, "{between}chunk {chunk}")?;
            between = ", ";
        }
        if !between.is_empty() {
            f.write_str(": ")?;
        }
        self.problem.fmt(f)?;
        for (id, by) in &self.helped {
            write!(f, "; rank {by} executes claim {id}")?;
        }
        Ok(())
    }
}
