//! Mutation tests of the verifier: random changes of right schedules, with an error required
//! whenever an interpreted run shows a different outcome, for one tile and for all tiles that reuse
//! slots.

mod family;
mod interpreter;
mod mutations;
mod samples;

use interpreter::random::Random;
use samples::Sample;
use weft_schedule::{VerifyOptions, print, verify};

/// How many mutants of each sample written by hand are tried.
const MUTANTS: u64 = 80;

/// How many mutants of each member of the family are tried.
const FAMILY_MUTANTS: u64 = 6;

/// How many interleavings of an accepted mutant are tried.
const RUNS: u64 = 8;

#[test]
fn right_schedules_run_right() {
    for ranks in [2, 3, 4, 6] {
        for sample in samples::all(ranks).into_iter().chain(family::all(ranks)) {
            for seed in 0..RUNS {
                let outcome = interpreter::run(&sample.schedules, &sample.options, seed);
                assert_eq!(
                    outcome,
                    Ok(()),
                    "{} at {ranks} ranks, seed {seed}",
                    sample.name
                );
            }
        }
    }
}

#[test]
fn verifier_objects_when_the_outcome_differs() {
    let mut tally = Tally::default();
    for ranks in [2, 3, 4] {
        tally.mutate(samples::all(ranks), MUTANTS);
    }
    tally.check();
}

#[test]
fn verifier_objects_to_mutants_of_every_algorithm() {
    let mut tally = Tally::default();
    for ranks in [2, 3, 5, 6] {
        tally.mutate(family::all(ranks), FAMILY_MUTANTS);
    }
    tally.check();
}

#[derive(Default, Debug)]
struct Tally {
    accepted: u32,
    refused: u32,
    /// Of the refused ones, those that one interleaving showed to be wrong.
    refused_and_wrong: u32,
}

impl Tally {
    fn mutate(&mut self, samples: Vec<Sample>, mutants: u64) {
        for sample in samples.iter().filter(|sample| !is_empty(sample)) {
            for seed in 0..mutants {
                let ranks = sample.schedules.len() as u64;
                let mut random = Random::new(seed * 64 + ranks);
                let mut schedules = sample.schedules.clone();
                mutations::mutate(&mut schedules, &mut random);
                self.judge(&schedules, &sample.options, &sample.name);
            }
        }
    }

    fn judge(
        &mut self,
        schedules: &[weft_schedule::Schedule],
        options: &VerifyOptions,
        name: &str,
    ) {
        let refused = verify(schedules, options).is_err();
        let refused_in_one_tile = verify(schedules, &options.clone().one_tile()).is_err();
        assert_eq!(
            refused,
            refused_in_one_tile,
            "one tile does not speak for all: {name}\n{}",
            print(schedules)
        );
        if refused {
            self.refused += 1;
            if self.refused.is_multiple_of(8) {
                let wrong = (0..4).any(|seed| interpreter::run(schedules, options, seed).is_err());
                self.refused_and_wrong += u32::from(wrong);
            }
            return;
        }
        self.accepted += 1;
        for seed in 0..RUNS {
            if let Err(wrong) = interpreter::run(schedules, options, seed) {
                panic!(
                    "accepted, but {wrong}: {name}, seed {seed}\n{}",
                    print(schedules)
                );
            }
        }
    }

    /// The test means something only when both happen often, and the interpreter detects most
    /// faults.
    fn check(&self) {
        println!("{self:?}");
        assert!(self.accepted > 100, "{self:?}");
        assert!(self.refused > 1000, "{self:?}");
        assert!(self.refused_and_wrong * 8 > self.refused / 2, "{self:?}");
    }
}

/// Whether there is nothing to change.
fn is_empty(sample: &Sample) -> bool {
    sample
        .schedules
        .iter()
        .any(|schedule| schedule.steps.is_empty())
}
