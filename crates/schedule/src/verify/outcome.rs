//! Checks of every rank's result against the definition of the collective.

use super::execution::{Ended, EndedRun};
use super::location::TileRun;
use super::value::{ValueId, Values};
use super::verification::Verification;
use super::{ValueProblem, VerifyError};
use crate::collective::Collective;
use crate::ir::{Buffer, Rank};

/// Checks all results. Returns, for collectives that reduce, the result by chunk.
pub(super) fn check(
    verification: &Verification<'_>,
    ended: &Ended,
    values: &Values,
) -> Result<Vec<ValueId>, VerifyError> {
    let shape = &verification.shape;
    if does_nothing_alone(verification) {
        return Ok(Vec::new());
    }
    if shape.collective == Collective::Barrier {
        check_barrier(verification, ended)?;
    }
    // By chunk: the first rank that has a result, and the result, which is the same expression in
    // all tiles.
    let mut firsts: Vec<Option<(Rank, ValueId)>> = vec![None; shape.chunks as usize];
    for EndedRun { run, output, .. } in &ended.runs {
        let (run, rank) = (*run, run.rank);
        if !shape.writable(rank) {
            continue;
        }
        for (chunk, value) in shape.held(rank, Buffer::Output).zip(output) {
            let checker = OutcomeChecker {
                verification,
                values,
                run,
                chunk,
            };
            let value = value.ok_or_else(|| checker.refuse(ValueProblem::NoResult))?;
            if shape.reduces() {
                checker.check_reduced(value)?;
            } else {
                checker.check_moved(value)?;
            }
            if shape.collective == Collective::AllToAll {
                continue;
            }
            match firsts[chunk as usize] {
                Some((first, expected)) if value != expected => {
                    return Err(checker.differs(value, first, expected));
                }
                Some(_) => (),
                None => firsts[chunk as usize] = Some((rank, value)),
            }
        }
    }
    if !shape.reduces() {
        return Ok(Vec::new());
    }
    Ok(firsts
        .into_iter()
        .flatten()
        .map(|(_, value)| value)
        .collect())
}

/// Checks that another choice of claimants leads to the same results.
pub(super) fn compare(
    verification: &Verification<'_>,
    ended: &Ended,
    other: &Ended,
) -> Result<(), VerifyError> {
    for (a, b) in ended.runs.iter().zip(&other.runs) {
        let held = verification.shape.held(a.run.rank, Buffer::Output);
        for (index, chunk) in held.enumerate() {
            if a.output[index] != b.output[index] {
                let problem = ValueProblem::DependsOnClaim;
                return Err(VerifyError::of_run(a.run, Some(chunk), problem));
            }
        }
    }
    Ok(())
}

/// A rank alone may leave everything to the executor, which copies its input.
fn does_nothing_alone(verification: &Verification<'_>) -> bool {
    verification.shape.ranks == 1 && verification.schedules[0].steps.is_empty()
}

fn check_barrier(verification: &Verification<'_>, ended: &Ended) -> Result<(), VerifyError> {
    for EndedRun { run, clock, .. } in &ended.runs {
        let entered = |other: &Rank| verification.lane.entered(clock, *other, run.tile);
        if let Some(other) = (0..verification.shape.ranks).find(|other| !entered(other)) {
            let problem = ValueProblem::LeavesEarly { other };
            return Err(VerifyError::of_run(*run, None, problem));
        }
    }
    Ok(())
}

/// Checks one chunk of one rank's result of a tile.
struct OutcomeChecker<'a> {
    verification: &'a Verification<'a>,
    values: &'a Values,
    run: TileRun,
    chunk: u32,
}

impl OutcomeChecker<'_> {
    fn check_reduced(&self, value: ValueId) -> Result<(), VerifyError> {
        if let Some(contributor) = self.values.missing(value) {
            return Err(self.refuse(ValueProblem::Missing { contributor }));
        }
        if self.verification.shape.ranks > 1 && !self.values.is_last(value) {
            return Err(self.refuse(ValueProblem::Unfinished));
        }
        Ok(())
    }

    fn check_moved(&self, value: ValueId) -> Result<(), VerifyError> {
        let (from, chunk) = self.expected();
        if self.values.origin(value) == Some((from, chunk)) {
            return Ok(());
        }
        let name = |(from, chunk)| format!("chunk {chunk} of rank {from}");
        let found = match self.values.origin(value) {
            Some(origin) => name(origin),
            None => self.values.show(value),
        };
        let expected = name((from, chunk));
        Err(self.refuse(ValueProblem::WrongResult { found, expected }))
    }

    /// The rank whose contribution belongs here, and its chunk.
    fn expected(&self) -> (Rank, u32) {
        let shape = &self.verification.shape;
        match shape.collective {
            Collective::Broadcast { root } | Collective::Scatter { root } => (root, self.chunk),
            Collective::AllGather | Collective::Gather { .. } => {
                (shape.block_of(self.chunk), self.chunk)
            }
            _ => {
                let chunk = shape.block_start(self.run.rank) + shape.within_block(self.chunk);
                (shape.block_of(self.chunk), chunk)
            }
        }
    }

    fn differs(&self, found: ValueId, first: Rank, expected: ValueId) -> VerifyError {
        self.refuse(ValueProblem::Differs {
            found: self.values.show(found),
            first,
            expected: self.values.show(expected),
        })
    }

    fn refuse(&self, problem: ValueProblem) -> VerifyError {
        VerifyError::of_run(self.run, Some(self.chunk), problem)
    }
}
