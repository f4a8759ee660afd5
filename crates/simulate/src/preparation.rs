//! The programs of all simulated ranks, and the amount of work of a simulation.

use std::borrow::Cow;

use weft_algorithms::Topology;
use weft_schedule::Schedule;

use crate::orbits::Orbits;
use crate::program::{LoweringTarget, SimulatedProgram};
use crate::{Job, Machine, ProgramSource, SimulationError};

/// The limit for the steps of all ranks that are simulated: these take some 8 GiB.
const STEPS_MAX: u64 = 1 << 27;
/// The number of programs from which the work of all is estimated, unless there are [`FEW`].
const SAMPLES: u32 = 64;
const FEW: u32 = 8 * SAMPLES;

/// The inputs of programs.
pub(crate) struct Preparation<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) job: &'a Job<'a>,
    pub(crate) topology: &'a Topology,
    pub(crate) orbits: Orbits,
    pub(crate) host_of_rank: &'a [u32],
}

impl<'a> Preparation<'a> {
    /// The schedule of a representative.
    pub(crate) fn schedule(&self, representative: u32) -> Cow<'a, Schedule> {
        let rank = self.orbits.rank(representative);
        match self.job.source {
            ProgramSource::Schedules(schedules) => Cow::Borrowed(&schedules[rank as usize]),
            ProgramSource::Selection(selection) => Cow::Owned(
                self.job
                    .schedule(selection, &self.job.request(rank, self.topology)),
            ),
        }
    }

    /// Estimates the work of a simulation; an error if that is too much.
    pub(crate) fn check_work(&self, tiles: u64, most: Option<u64>) -> Result<u64, SimulationError> {
        let representatives = self.orbits.representatives();
        let samples = spread(representatives).into_iter();
        let samples = samples.map(|of| self.schedule(of).steps.len() as u64);
        let steps = expected(samples.collect(), u64::from(representatives));
        if steps > STEPS_MAX {
            return Err(too_many(steps));
        }
        within(steps.saturating_mul(tiles), tiles, most, 0)
    }

    /// Adds the computation of `rates` rates in each tile to this work; an error if that is too
    /// much. A rate takes about as long as a step.
    pub(crate) fn check_rates(
        &self,
        work: u64,
        rates: u64,
        tiles: u64,
        most: Option<u64>,
    ) -> Result<u64, SimulationError> {
        let rates = rates.saturating_mul(tiles);
        within(work.saturating_add(rates), tiles, most, rates)
    }

    /// The programs of all representatives.
    pub(crate) fn compile(&self, tiles: u64) -> Result<Vec<SimulatedProgram>, SimulationError> {
        let representatives = self.orbits.representatives();
        let target = LoweringTarget {
            job: self.job,
            host: &self.machine.host,
            host_of_rank: self.host_of_rank,
            tiles,
        };
        let mut steps = 0;
        let mut programs = Vec::with_capacity(representatives as usize);
        for representative in 0..representatives {
            let schedule = self.schedule(representative);
            steps += schedule.steps.len() as u64;
            if steps > STEPS_MAX {
                return Err(too_many(steps));
            }
            programs.push(target.compile(&schedule)?);
        }
        Ok(programs)
    }
}

/// This work, unless it is more than is allowed.
fn within(work: u64, tiles: u64, most: Option<u64>, rates: u64) -> Result<u64, SimulationError> {
    match most {
        Some(limit) if work > limit => Err(SimulationError::Work {
            steps: work,
            rates,
            tiles,
            limit,
        }),
        _ => Ok(work),
    }
}

fn too_many(steps: u64) -> SimulationError {
    SimulationError::Steps {
        steps,
        limit: STEPS_MAX,
    }
}

/// Some representatives, all where there are few, spread so that no regular pattern is met or
/// missed.
fn spread(representatives: u32) -> Vec<u32> {
    if representatives <= FEW {
        return (0..representatives).collect();
    }
    // Multiples of the golden section are far apart from each other.
    const SECTION: u32 = 0x9e37_79b9;
    let sample = |sample: u32| {
        let share = u64::from(sample.wrapping_mul(SECTION));
        ((share * u64::from(representatives)) >> 32) as u32
    };
    (0..SAMPLES).map(sample).collect()
}

/// The steps of `ranks` ranks, of which these are samples. The longest may be the only one of its
/// kind, as a root's is.
fn expected(mut samples: Vec<u64>, ranks: u64) -> u64 {
    if samples.len() as u64 == ranks {
        return samples.iter().sum();
    }
    samples.sort_unstable();
    let longest = samples.pop().unwrap_or_default();
    let others = samples.len().max(1) as u64;
    longest + samples.iter().sum::<u64>() * (ranks - 1) / others
}

#[cfg(test)]
mod tests {
    use super::{SAMPLES, expected, spread};

    #[test]
    fn few_ranks_are_counted_and_many_estimated() {
        assert_eq!(spread(5), [0, 1, 2, 3, 4]);
        assert_eq!(expected(vec![7, 1, 2], 3), 10);
        for ranks in [65, 513, 1000, 100_000] {
            assert!(spread(ranks).iter().all(|sample| *sample < ranks));
            // One of eight ranks has much to do, and the first more than all.
            let steps = |rank: u32| match rank {
                0 => 1_000_000,
                rank if rank % 8 == 0 => 800,
                _ => 16,
            };
            let samples: Vec<u64> = spread(ranks).into_iter().map(steps).collect();
            assert!(ranks < 513 || samples.len() as u32 == SAMPLES);
            let all: u64 = (0..ranks).map(steps).sum();
            let found = expected(samples, ranks.into());
            assert!(
                (all / 2..all * 2).contains(&found),
                "{ranks}: {found}, not {all}"
            );
        }
    }
}
