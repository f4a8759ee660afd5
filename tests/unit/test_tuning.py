"""Tests of profiles, choices and fits: the parts of the tuner without a group."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from weft import cli
from weft.errors import ConfigError
from weft.profiles import Profile, ProfileRow, ProfileTopology, candidates, stored
from weft.tuning import quiet, selection, tuner
from weft.tuning.fit import fit
from weft.tuning.model import MachineShape, Model
from weft.tuning.selection import Candidate, Case
from weft.tuning.stopwatch import Measurement, Probe
from weft.tuning.tuner import Tuned

TOPOLOGY = ProfileTopology(ranks=4, ranks_per_host=[2, 2], transports=["shm", "tcp"], hardware="a processor, 2 cores")
TABLE = {
    "all-reduce": [ProfileRow(8192, "direct"), ProfileRow(1 << 20, "two-shot", 65536, 2), ProfileRow(None, "ring")]
}
PROFILE = Profile(TOPOLOGY, {"hosts": [2, 2]}, TABLE)


def test_a_profile_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "deep" / TOPOLOGY.file_name
    PROFILE.save(path)
    assert Profile.load(path) == PROFILE
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("size", "algorithm"),
    [(1, "direct"), (8192, "direct"), (8193, "two-shot"), (1 << 20, "two-shot"), (1 << 30, "ring")],
)
def test_row_covers_sizes_up_to_its_bound(size, algorithm):
    row = PROFILE.row("all-reduce", size)
    assert row is not None
    assert row.algorithm == algorithm


def test_a_profile_says_nothing_of_other_collectives():
    assert PROFILE.row("broadcast", 1) is None


def test_hash_covers_only_what_runs():
    other_model = Profile(TOPOLOGY, {"hosts": [4]}, TABLE)
    other_table = Profile(TOPOLOGY, PROFILE.machine, {"all-reduce": [ProfileRow(None, "ring")]})
    assert other_model.hash == PROFILE.hash
    assert other_table.hash != PROFILE.hash


def test_own_schedules_are_kept_and_hashed(tmp_path):
    def with_schedules(schedules: Mapping[str, str]) -> Profile:
        return Profile(TOPOLOGY, {}, {"all-reduce": [ProfileRow(None, "mine")]}, schedules)

    profile = with_schedules({"mine": "collective all-reduce"})
    profile.save(tmp_path / "profile.json")
    assert Profile.load(tmp_path / "profile.json") == profile
    known = {"mine": "collective all-reduce", "yours": "collective all-reduce"}
    assert Profile.of(TOPOLOGY, {}, profile.table, known) == profile
    hashes = {with_schedules(s).hash for s in ({}, {"mine": "a"}, {"mine": "b"}, {"yours": "a"})}
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 99}, "version 99"),
        ({"table": {"all-reduce": []}}, "all-reduce"),
        ({"table": {"all-reduce": [{"up_to_bytes": 5, "algorithm": "ring"}]}}, "then null"),
        ({"table": {"all-reduce": [{"algorithm": "ring"}]}}, "not a profile"),
        ({"schedules": {"mine": 1}}, "schedules"),
        ({"schedules": {"mine": "added"}}, "hash"),
        (
            {
                "table": {
                    "all-reduce": [
                        {"up_to_bytes": 9, "algorithm": "ring"},
                        {"up_to_bytes": 9, "algorithm": "ring"},
                        {"up_to_bytes": None, "algorithm": "ring"},
                    ]
                }
            },
            "growing",
        ),
        ({"table": {"all-reduce": [{"up_to_bytes": None, "algorithm": "ring"}]}}, "hash"),
        ({"hash": "0"}, "hash"),
    ],
)
def test_a_spoilt_profile_is_refused(change, says):
    value = {**json.loads(PROFILE.to_json()), **change}
    with pytest.raises(ConfigError, match=says):
        Profile.from_json(json.dumps(value))


def test_a_profile_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.json"):
        Profile.load(tmp_path / "missing.json")


def test_candidates_match_ranks_and_hardware(tmp_path):
    for topology in (
        TOPOLOGY,
        ProfileTopology(4, [4], ["shm"], "a processor, 2 cores"),
        ProfileTopology(2, [2], ["shm"], "a processor, 2 cores"),
        ProfileTopology(8, [4, 4], ["shm", "tcp"], "a processor, 2 cores"),
        ProfileTopology(4, [2, 2], ["shm", "tcp"], "another processor, 2 cores"),
    ):
        Profile(topology, {}, TABLE).save(tmp_path / topology.file_name)
    found = candidates(tmp_path, 4, "a processor, 2 cores")
    assert sorted(profile.topology.ranks_per_host for _, profile in found) == [[2], [2, 2], [4]]


def test_no_directory_has_no_candidates(tmp_path):
    assert candidates(tmp_path / "missing", 4, "a processor, 2 cores") == []


class FakeNetwork:
    """Times of three algorithms: a start and a rate each."""

    LINES: Mapping[str, tuple[float, float]] = {"few": (1e-6, 4e-9), "middle": (3e-6, 2e-9), "many": (100e-6, 1e-9)}

    def __init__(self, real: Mapping[str, tuple[float, float]] | None = None) -> None:
        self.real = real or self.LINES
        self.measured: list[Case] = []

    def price(self, cases: Sequence[Case]) -> list[float]:
        return [self._time(self.LINES, case) for case in cases]

    def measure(self, cases: Sequence[Case]) -> dict[Case, float]:
        self.measured += cases
        return {case: self._time(self.real, case) for case in cases}

    @staticmethod
    def _time(lines: Mapping[str, tuple[float, float]], case: Case) -> float:
        start, rate = lines[case[0].algorithm]
        return start + rate * case[1]


FAMILY = [Candidate(name) for name in FakeNetwork.LINES]
SIZES = [256 * 4**power for power in range(8)]


def test_each_size_gets_its_fastest_algorithm():
    network = FakeNetwork()
    chosen = selection.choose(FAMILY, SIZES, network.price, network.price, network.measure)
    for one in chosen:
        fastest = min(FAMILY, key=lambda candidate, size=one.bytes: network.price([(candidate, size)])[0])
        assert one.candidate == fastest
        assert one.predicted_s == one.measured_s == network.price([(fastest, one.bytes)])[0]


def test_ranges_end_where_the_times_cross():
    network = FakeNetwork()
    table = selection.rows(selection.choose(FAMILY, SIZES, network.price, network.price, network.measure))
    assert [row.algorithm for row in table] == ["few", "middle", "many"]
    assert table[-1].up_to_bytes is None
    # The lines cross at 1,000 and at 97,000 bytes; ranges end at a size or between it and the next.
    assert [row.up_to_bytes for row in table[:-1]] == [512, 65536]


def test_measurement_decides_against_a_prediction():
    wrong_about_middle = {**FakeNetwork.LINES, "middle": (50e-6, 2e-9)}
    network = FakeNetwork(wrong_about_middle)
    chosen = selection.choose(FAMILY, SIZES, network.price, network.price, network.measure)
    at_1024 = next(one for one in chosen if one.bytes == 1024)
    assert at_1024.candidate.algorithm == "few"
    assert "measured" in at_1024.why


def test_clearly_slower_candidates_are_not_measured():
    network = FakeNetwork()
    selection.choose(FAMILY, SIZES, network.price, network.price, network.measure)
    assert (Candidate("many"), SIZES[0]) not in network.measured


def test_unmeasured_sizes_are_chosen_by_price():
    network = FakeNetwork()
    chosen = selection.choose(FAMILY, SIZES, network.price, network.price, lambda _: {})
    assert [row.algorithm for row in selection.rows(chosen)] == ["few", "middle", "many"]
    assert all(one.measured_s is None for one in chosen)


def test_requested_candidate_is_measured_everywhere_and_may_win():
    lines = {**FakeNetwork.LINES, "mine": (1.0, 1.0)}
    for real, wins in (({**lines, "mine": (1e-6, 1e-10)}, True), (lines, False)):
        network = FakeNetwork(real)
        network.LINES = lines
        mine = Candidate("mine")
        chosen = selection.choose(FAMILY, SIZES, network.price, network.price, network.measure, [mine])
        assert {(mine, size) for size in SIZES} <= set(network.measured)
        for one in chosen:
            assert (one.candidate == mine) == wins
            assert wins or f"mine: {real['mine'][1] * one.bytes * 1e6 + 1e6:.1f} us" in one.why


def test_candidates_outside_the_model_are_measured_too():
    # Priced as slow, and fast for real.
    network = FakeNetwork({**FakeNetwork.LINES, "many": (1e-7, 1e-10)})
    many = Candidate("many")
    chosen = selection.choose(FAMILY, SIZES, network.price, network.price, network.measure, blind=[many])
    assert {(many, size) for size in SIZES} <= set(network.measured)
    assert {one.candidate for one in chosen} == {many}


def test_only_algorithms_with_domains_are_tried_unpriced():
    shape = MachineShape((5,), cores=2, domains=((0, 0, 2, 2, 2),))
    names = tuner.domains_family("all-reduce", shape)
    assert "multi-rail(slice-reduce, slice-reduce)" in names
    assert all("(" in name for name in names)
    assert tuner.domains_family("all-reduce", MachineShape((5,), cores=2)) == []
    cases = [("all-reduce", Candidate("multi-rail(slice-reduce, slice-reduce)"), 1 << 20)]
    model = Model.typical(shape)
    assert model.simulation(cases) != Model.typical(MachineShape((5,), cores=2)).simulation(cases)
    assert model.closed_form(cases)[0] > 0


def test_other_tile_is_used_only_if_faster():
    small = Candidate("many", tile_bytes=4096)

    def tilings(_: selection.ChosenCandidate) -> list[Candidate]:
        return [small]

    def simulation(cases: Sequence[Case]) -> list[float]:
        return [0.5 if candidate == small else 1.0 for candidate, _ in cases]

    chosen = [selection.ChosenCandidate(None, Candidate("many"), 1 << 20, 1.0, 1.0, "because")]
    taken = selection.tiled(chosen, tilings, simulation, lambda cases: dict(zip(cases, simulation(cases), strict=True)))
    left = selection.tiled(chosen, tilings, simulation, lambda cases: dict.fromkeys(cases, 1.0))
    assert [one.candidate for one in taken] == [small]
    assert left == chosen


def test_fit_recovers_the_parameters_of_measurements():
    sizes = np.array([1.0, 1e3, 1e6, 1e6, 1e9])

    def predict(sets):
        return np.array([s["start"] + s["rate"] * sizes for s in sets])

    true = {"start": 3e-5, "rate": 2e-9}
    found = fit({"start": 1e-6, "rate": 1e-9}, predict, predict([true])[0])
    assert found == pytest.approx(true, rel=0.02)


def test_one_wrong_measurement_does_not_spoil_a_fit():
    sizes = np.array([1.0, 10.0, 1e3, 1e4, 1e6, 1e7, 1e8])

    def predict(sets):
        return np.array([s["start"] + s["rate"] * sizes for s in sets])

    true = {"start": 3e-5, "rate": 2e-9}
    measured = predict([true])[0]
    measured[2] *= 10
    assert fit({"start": 1e-6, "rate": 1e-9}, predict, measured) == pytest.approx(true, rel=0.1)


def test_busy_machine_is_detected_by_load_and_spread(tmp_path):
    def measured(*seconds):
        return Measurement(Probe("all-reduce", "ring", 4), list(seconds))

    even = measured(*[1.0] * 8, 1.1)
    uneven = measured(*[1.0, 3.0] * 8)
    assert quiet.spread([even, even, uneven, measured(1.0, 9.0)]) < 0.1
    assert quiet.spread([uneven]) == pytest.approx(1.0)
    assert quiet.Conditions(0.05, 0.2).problem is None
    assert "1.5 cores were busy" in quiet.Conditions(1.5, 0.2).problem
    assert "spread by 90%" in quiet.Conditions(0.0, 0.9).problem
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text("cpu  100 20 30 1000 50 1 2 7 90 0\ncpu0 0\n")
    assert quiet.busy_seconds(tmp_path) == pytest.approx(1.6)


def test_profiles_say_when_and_where_they_were_made(tmp_path):
    origin = {"when": "2026-11-24 12:00 UTC", "host": "node1", "weft": "0.1.0", "busy": True}
    profile = dataclasses.replace(PROFILE, origin=origin)
    profile.save(tmp_path / PROFILE.topology.file_name)
    (tmp_path / "1-ranks-broken.json").write_text("{}")
    ((_, found),) = stored(tmp_path)
    assert found == profile and found.hash == PROFILE.hash
    assert found.measured == "measured 2026-11-24 12:00 UTC on node1 by weft 0.1.0, on a busy machine"
    assert PROFILE.measured == "measured at an unknown time"


@pytest.mark.parametrize(("options", "status"), [([], 1), (["--force"], 0)])
def test_busy_machines_results_are_stored_only_if_forced(options, status, tmp_path, monkeypatch, capsys):
    origin = {"when": "now", "host": "node1", "weft": "0", "busy_cores": 1.5, "spread": 0.1, "busy": True}
    tuned = Tuned(dataclasses.replace(PROFILE, origin=origin), {})
    monkeypatch.setattr(tuner, "tune", lambda *_: tuned)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "profile.json"
    assert cli.main(["tune", "--output", str(path), *options]) == status
    error = capsys.readouterr().err
    assert "1.5 cores were busy with something else" in error
    assert path.exists() == (status == 0)
    assert ("--force" in error) == (status == 1)
