//! Tests with fewer rules for the start of tiles: the errors that each rule prevents.

use super::super::lane::VerifierLane;
use super::super::shape::CommonShape;
use super::super::{Mapped, Verification, VerifyError, VerifyOptions};
use super::*;

/// Each rank puts its vector in the other's receive buffer.
const EXCHANGE: &str = "\
format 2
collective all-reduce
ranks 2
grid equal 1
receive 1

rank 0
  copy 1.receive(0:0)[0] <- output[0]
  signal 1 #0
  wait 1 #0
  reduce output[0] <- output[0] + receive(1:0)[0] final
rank 1
  copy 0.receive(1:0)[0] <- output[0]
  signal 0 #0
  wait 0 #0
  reduce output[0] <- receive(0:0)[0] + output[0] final
";

/// Rank 0 reads what rank 1 has staged.
const STAGED: &str = "\
format 2
collective broadcast from 1
ranks 2
grid equal 1
scratch 1

rank 0
  wait 1 #0
  copy output[0] <- 1.scratch(0)[0]
  signal 1 #0
rank 1
  copy scratch(0)[0] <- output[0]
  signal 0 #0
  wait 0 #0
";

const BARRIER: &str = "\
format 2
collective barrier
ranks 2
grid equal 1

rank 0
  signal 1 #0
  wait 1 #0
rank 1
  signal 0 #0
  wait 0 #0
";

/// Plays two operations of three tiles in two slots, where a run begins after those only that
/// `rule` lets it wait for.
fn execute(text: &str, rule: fn(TileRun, &TileRun) -> bool) -> Result<(), VerifyError> {
    let schedules = crate::parse(text).unwrap();
    let options = VerifyOptions::mapped(Mapped::Scratch);
    let verification = Verification {
        schedules: &schedules,
        options: &options,
        shape: CommonShape::of(&schedules, &options)?,
        lane: VerifierLane::of(&schedules, &options)?,
    };
    let choice = ClaimExecutors::default();
    let mut values = Values::new(verification.shape.ranks);
    let mut execution = SymbolicExecution::new(&verification, &choice, &mut values);
    for state in &mut execution.states {
        let run = state.run;
        state.begins_after.retain(|former| rule(run, former));
    }
    execution.run().map(|_| ())
}

fn all(_: TileRun, _: &TileRun) -> bool {
    true
}

fn none(_: TileRun, _: &TileRun) -> bool {
    false
}

fn without_credit(run: TileRun, former: &TileRun) -> bool {
    former.rank == run.rank
}

#[track_caller]
fn check(text: &str, rule: fn(TileRun, &TileRun) -> bool, expected: &str) {
    assert_eq!(execute(text, all), Ok(()));
    let error = execute(text, rule).unwrap_err().to_string();
    assert_eq!(error, expected);
}

#[test]
fn without_credit_receive_is_overwritten_too_early() {
    check(
        EXCHANGE,
        without_credit,
        "rank 0, tile 2, step 0 `copy 1.receive(0:0)[0] <- output[0]`, chunk 0: \
         writes 1.receive(0:0)[0], but nothing orders that after the read at rank 1, tile 0, step 3",
    );
}

#[test]
fn scratch_overwritten_before_former_tiles_end_is_refused() {
    check(
        STAGED,
        none,
        "rank 1, tile 2, step 0 `copy scratch(0)[0] <- output[0]`, chunk 0: \
         writes 1.scratch(0)[0], but nothing orders that after the write at rank 1, tile 0, step 0",
    );
}

#[test]
fn flag_set_before_former_tiles_end_is_refused() {
    check(
        BARRIER,
        none,
        "rank 0, tile 2, step 0 `signal 1 #0`: \
         sets the flag word of its slot, but nothing orders that after the signal at rank 0, tile 0, step 0",
    );
}
