"""A small sample of the trials of `make chaos`."""

import signal

import chaos_trial
import chaos_zombie
import pytest
from chaos_trial import TrialPlan

KILLS = range(1000, 1012)
STOPS = range(2000, 2003)
TRAINING_KILLS = range(3000, 3004)
TRAINING_STOP = 4000
ZOMBIES = range(5000, 5010)


@pytest.mark.parametrize("seed", KILLS)
def test_survivors_of_a_kill_name_the_dead_rank_within_a_second(seed: int) -> None:
    assert chaos_trial.run(TrialPlan.draw(seed, signal.SIGKILL)).complaints == []


@pytest.mark.parametrize("seed", STOPS)
def test_ranks_that_wait_for_a_stopped_one_time_out(seed: int) -> None:
    assert chaos_trial.run(TrialPlan.draw(seed, signal.SIGSTOP)).complaints == []


@pytest.mark.parametrize(
    ("seed", "action"), [*((seed, signal.SIGKILL) for seed in TRAINING_KILLS), (TRAINING_STOP, signal.SIGSTOP)]
)
def test_overlapped_training_fails_in_time_with_right_parameters_and_goes_on(seed: int, action: signal.Signals) -> None:
    assert chaos_trial.run(TrialPlan.draw(seed, action, "training")).complaints == []


@pytest.mark.parametrize("seed", ZOMBIES)
def test_a_rank_that_was_given_up_and_runs_again_spoils_no_result(seed: int) -> None:
    assert chaos_zombie.run(seed) == []
