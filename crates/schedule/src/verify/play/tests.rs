//! Plays with fewer rules for the beginning of tiles: what they are there for must show.

use super::super::lane::Lane;
use super::super::shape::Shape;
use super::super::{Mapped, Team, VerifyError, VerifyOptions};
use super::*;

/// Each rank puts its vector in the other's landing memory.
const EXCHANGE: &str = "\
collective all-reduce
ranks 2
grid equal 1
landing 1

rank 0
  copy 1.landing(0:0)[0] <- output[0]
  signal 1 #0
  wait 1 #0
  reduce output[0] <- output[0] + landing(1:0)[0] last
rank 1
  copy 0.landing(1:0)[0] <- output[0]
  signal 0 #0
  wait 0 #0
  reduce output[0] <- landing(0:0)[0] + output[0] last
";

/// Rank 0 reads what rank 1 has staged.
const STAGED: &str = "\
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

/// Plays two operations of three tiles in two slots, where a run begins after those only that `rule` lets it wait for.
fn play(text: &str, rule: fn(Run, &Run) -> bool) -> Result<(), VerifyError> {
    let schedules = crate::parse(text).unwrap();
    let options = VerifyOptions::mapped(Mapped::Scratch);
    let team = Team {
        schedules: &schedules,
        options: &options,
        shape: Shape::of(&schedules, &options)?,
        lane: Lane::of(&schedules, &options)?,
    };
    let choice = Choice::default();
    let mut values = Values::new(team.shape.ranks);
    let mut player = Player::new(&team, &choice, &mut values);
    for state in &mut player.states {
        let run = state.run;
        state.begins_after.retain(|former| rule(run, former));
    }
    player.play().map(|_| ())
}

fn all(_: Run, _: &Run) -> bool {
    true
}

fn none(_: Run, _: &Run) -> bool {
    false
}

fn without_credit(run: Run, former: &Run) -> bool {
    former.rank == run.rank
}

#[track_caller]
fn check(text: &str, rule: fn(Run, &Run) -> bool, expected: &str) {
    assert_eq!(play(text, all), Ok(()));
    let error = play(text, rule).unwrap_err().to_string();
    assert_eq!(error, expected);
}

#[test]
fn without_credit_landing_is_overwritten_too_early() {
    check(
        EXCHANGE,
        without_credit,
        "rank 0, tile 2, step 0 `copy 1.landing(0:0)[0] <- output[0]`, chunk 0: \
         writes 1.landing(0:0)[0], but nothing orders that after the read at rank 1, tile 0, step 3",
    );
}

#[test]
fn without_the_former_tiles_end_scratch_is_overwritten_too_early() {
    check(
        STAGED,
        none,
        "rank 1, tile 2, step 0 `copy scratch(0)[0] <- output[0]`, chunk 0: \
         writes 1.scratch(0)[0], but nothing orders that after the write at rank 1, tile 0, step 0",
    );
}

#[test]
fn without_the_former_tiles_end_flag_words_are_set_too_early() {
    check(
        BARRIER,
        none,
        "rank 0, tile 2, step 0 `signal 1 #0`: \
         sets the flag word of its slot, but nothing orders that after the signal at rank 0, tile 0, step 0",
    );
}
