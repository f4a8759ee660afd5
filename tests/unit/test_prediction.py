"""Tests of `weft predict`: timelines computed by hand, prices, files, and real profiles."""

import dataclasses
import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.text import Text

from weft import cli
from weft.errors import ArgumentError
from weft.simulation import Machine, simulate
from weft_lab import console
from weft_lab.prediction import report
from weft_lab.prediction.cluster import Cluster, Exchange, Prices
from weft_lab.prediction.compression import COMPRESSIONS
from weft_lab.prediction.prediction import predict, predict_scaling, smaller
from weft_lab.prediction.profile import ProfiledParameter, TrainingProfile
from weft_lab.prediction.step import Compute, Operation, Start, Wait, run
from weft_lab.prediction.ways import WAYS, Bucket, ddp_buckets, overlapped_plan

MIB = 1 << 20


def parameter(name: str, *shape: int, ready_s: float, use_s: float) -> ProfiledParameter:
    return ProfiledParameter(name, shape, "float32", 4, ready_s, use_s)


PROFILE = TrainingProfile(
    what="train.py",
    threads=1,
    steps=5,
    prepare_s=0.01,
    forward_s=0.1,
    loss_s=0.02,
    backward_s=0.2,
    finish_s=0.0,
    update_s=0.03,
    copy_s_per_byte=0.0,
    parameters=(
        parameter("first", 256, 1024, ready_s=0.2, use_s=0.0),
        parameter("second", 2048, 1024, ready_s=0.1, use_s=0.05),
    ),
)
"""1 MiB and 8 MiB of gradients; 0.36 s of computation."""


def seconds(items: list, operations: list[Operation], cores: float = 1.0) -> tuple[float, float]:
    """Of the step, and waited."""
    time = run(items, operations, cores)
    return pytest.approx(time.total_s), pytest.approx(time.waited_s)


@pytest.mark.parametrize(
    ("items", "operations", "expected"),
    [
        ([Compute(1.0), Start(0), Wait(0)], [Operation(2.0, 0.0)], (3.0, 2.0)),
        ([Start(0), Compute(1.0), Wait(0)], [Operation(2.0, 0.0)], (2.0, 1.0)),
        ([Start(0), Compute(3.0), Wait(0)], [Operation(2.0, 0.0)], (3.0, 0.0)),
        # The urgent one overtakes the other, which is left with 1.5 of its 2 seconds.
        (
            [Start(0), Compute(0.5), Start(1), Wait(1), Wait(0)],
            [Operation(2.0, 0.0), Operation(1.0, 0.0, priority=1)],
            (3.0, 2.5),
        ),
        # One after the other: the second waits for the first.
        ([Start(0), Start(1), Wait(1)], [Operation(2.0, 0.0), Operation(1.0, 0.0)], (3.0, 3.0)),
        # A quarter of a core for two seconds: 1.5 s are computed beside it.
        ([Start(0), Compute(1.5), Wait(0)], [Operation(2.0, 0.5)], (2.0, 0.0)),
        # A whole core is wanted: each gets half of it, until 1 s is computed; 1 s is left.
        ([Start(0), Compute(1.0), Wait(0)], [Operation(2.0, 2.0)], (3.0, 1.0)),
    ],
)
def test_step_time_matches_computation_by_hand(items, operations, expected):
    assert seconds(items, operations) == expected


def test_more_cores_are_slowed_less():
    items, operations = [Start(0), Compute(4.0), Wait(0)], [Operation(2.0, 1.0)]
    # Half a core of four for 2 s takes an eighth from computation, and 2.25 s continue alone.
    assert seconds(items, operations, 4.0) == (4.25, 0.0)
    # Of half a core communication gets a quarter: it takes 4 s, in which 2 s are computed.
    assert seconds(items, operations, 0.5) == (6.0, 0.0)


def test_waiting_for_unstarted_operation_is_an_error():
    with pytest.raises(ValueError, match="before its start"):
        run([Wait(0)], [Operation(1.0, 0.0)], 1.0)


def test_ways_of_a_step_by_hand():
    """Averages of 0.1 s for the first layer, 0.3 s for the second."""

    def total(way: str, buckets: list[Bucket]) -> tuple[float, float]:
        operations = [Operation({0: 0.1, 1: 0.3}[b.parameters[0]], 0.0, b.priority) for b in buckets]
        return seconds(list(WAYS[way].items(PROFILE, buckets)), operations)

    second, first = Bucket((1,), ()), Bucket((0,), (), priority=1)
    # Backward ends at 0.2; all is averaged by 0.6.
    assert total("after", [second, first]) == (0.2 + 0.4 + 0.16, 0.4)
    # From 0.1 on the second, then the first: both by 0.5.
    assert total("ddp-weft", [second, dataclasses.replace(first, priority=0)]) == (0.5 + 0.16, 0.3)
    # At 0.2 the first overtakes the second until 0.3, is waited for from 0.21 on, and updated by
    # 0.303333; the second has ended by 0.5, and is used at 0.353333.
    waited = 0.09 + (0.5 - (0.3 + 0.03 / 9 + 0.05))
    assert total("automatic", [second, first]) == (0.36 + waited, waited)


def test_copies_take_time():
    profile = dataclasses.replace(PROFILE, copy_s_per_byte=0.09 / PROFILE.nbytes)
    buckets = [Bucket((1, 0), ())]
    free = [Operation(0.0, 0.0)]
    for way, copies in (("after", 3), ("ddp-gloo", 2), ("ddp-weft", 2), ("backward", 1), ("automatic", 1)):
        found, _ = seconds(list(WAYS[way].items(profile, buckets)), free)
        assert found == PROFILE.compute_s + copies * 0.09, way


def test_ddp_fills_buckets_in_the_order_of_gradients():
    sizes = (1, 20, 20, 1, 2)  # MiB, in the model's order: gradients come in the reverse
    parameters = tuple(
        parameter(str(index), size, 256, 1024, ready_s=1.0 - index / 10, use_s=index / 10)
        for index, size in enumerate(sizes)
    )
    profile = dataclasses.replace(PROFILE, parameters=parameters)
    assert ddp_buckets(profile) == [(4,), (3, 2, 1), (0,)]


def test_prices_are_those_of_the_simulator():
    cluster = Cluster(4, gbps=1.0, latency_us=50.0)
    machine = Machine(4, 4, gbps=1.0, latency_us=50.0, parameters=cluster.parameters)
    ring, halving = simulate(machine, [8 * MIB], "all-reduce", ["ring", "halving-doubling"])
    found = Prices(cluster).seconds(Exchange("all-reduce", 8 * MIB))
    assert found == min(ring.times_s[0], halving.times_s[0])
    assert Prices(cluster).seconds(Exchange("all-reduce", 8 * MIB, algorithms=("ring",))) == ring.times_s[0]
    # 3/4 of the bytes leave a host twice.
    assert found == pytest.approx(8 * MIB * 1.5 / 125e6, rel=0.01)


def test_one_rank_has_nothing_to_send():
    steps = predict(PROFILE, Cluster(1)).steps
    assert {step.step_s for step in steps} == {PROFILE.compute_s}
    assert {step.communication_s for step in steps} == {0.0}


def test_a_share_of_a_core_bounds_communication():
    whole, part = Cluster(4, gbps=10.0), Cluster(4, gbps=10.0, cores=0.01)
    exchange = Exchange("all-reduce", 8 * MIB)
    processor_s = Prices(whole).processor_s(exchange)
    assert Prices(part).seconds(exchange) == pytest.approx(processor_s / 0.01)
    assert Prices(whole).seconds(exchange) < Prices(part).seconds(exchange)


def test_overlap_hides_windows_and_compression_saves_time():
    found = predict(PROFILE, Cluster(4, gbps=1.0))
    ms = {step.way: step.step_s for step in found.steps}
    assert set(ms) == set(WAYS)
    assert ms["automatic"] < ms["ddp-weft"] <= ms["ddp-gloo"] < ms["after"]
    assert ms["fp8"] <= ms["bf16"] <= ms["automatic"]
    for step in found.steps:
        assert step.efficiency == pytest.approx(PROFILE.compute_s / step.step_s)
        assert step.step_s == pytest.approx(PROFILE.compute_s + step.exposed_s + step.slowed_s)


def test_several_ranks_of_a_host_share_its_line():
    one, eight = (predict(PROFILE, Cluster(4, ranks, gbps=10.0)).step("ddp-weft") for ranks in (1, 8))
    # Every byte crosses once for a host, not once for a rank.
    assert eight.communication_s < 2 * one.communication_s


def _random_profile(generator: random.Random) -> TrainingProfile:
    backward_s, forward_s = (10 ** generator.uniform(-4, 0) for _ in range(2))
    parameters = tuple(
        parameter(
            str(index),
            *(round(2 ** generator.uniform(0, 11)) for _ in range(generator.randint(0, 2))),
            ready_s=generator.uniform(0, backward_s),
            use_s=generator.uniform(0, forward_s),
        )
        for index in range(generator.randint(1, 8))
    )
    return dataclasses.replace(PROFILE, backward_s=backward_s, forward_s=forward_s, parameters=parameters)


def _random_cluster(generator: random.Random) -> Cluster:
    return Cluster(
        generator.randint(2, 7),
        generator.randint(1, 4),
        gbps=10 ** generator.uniform(-1, 2.5),
        latency_us=10 ** generator.uniform(0, 4),
        cores=generator.choice([0.5, 1.0, 4.0]),
    )


def _bound_s(cluster: Cluster, exchange: Exchange) -> float:
    """Returns a lower bound: the bytes that must leave some host, and one message between hosts."""
    if exchange.nbytes == 0:
        return 0.0
    crossing = {"all-reduce": 2, "all-gather": 1, "all-to-all": cluster.ranks_per_host}[exchange.collective]
    width = {"full": 1, "bf16": 2, "fp8_e4m3": 4}[exchange.wire]
    sent = crossing * (cluster.hosts - 1) / cluster.hosts * exchange.nbytes / width
    return max(sent / (cluster.gbps * 1e9 / 8), cluster.latency_us * 1e-6)


@pytest.mark.parametrize("seed", range(24))
def test_no_step_is_below_bounds_of_its_network(seed):
    generator = random.Random(seed)
    profile, cluster = _random_profile(generator), _random_cluster(generator)
    prices = Prices(cluster)
    plan = overlapped_plan(profile, prices)
    for step in predict(profile, cluster).steps:
        buckets = WAYS[step.way].buckets(profile, plan, prices)
        bound_s = sum(_bound_s(cluster, exchange) for bucket in buckets for exchange in bucket.exchanges)
        for found in (step.communication_s, step.step_s):
            assert found >= bound_s * (1 - 1e-9), (step, cluster, bound_s)
        assert step.step_s >= profile.compute_s * (1 - 1e-9), (step, cluster)


@pytest.mark.parametrize(
    ("name", "shapes", "expected"),
    [
        ("bf16", [(100, 10)], [("all-reduce", 4000, "bf16")]),
        ("power-sgd", [(256, 128), (100,)], [("all-reduce", n, "full") for n in (400, 4096, 2048)]),
        ("one-bit", [(800,)], [("all-to-all", 4 * (25 + 4), "full"), ("all-gather", 4 * (25 + 4), "full")]),
        ("deep", [(100, 100), (5,)], [("all-gather", 32, "full"), ("all-gather", 4 * 8 * (10 + 5), "full")]),
        ("coarse", [(32_768, 20)], [("all-reduce", 2 * 4 * 32_768, "full"), ("all-reduce", 80, "full")]),
    ],
)
def test_compressions_send_bytes_of_their_formulas(name, shapes, expected):
    bucket = [parameter(str(index), *shape, ready_s=0.0, use_s=0.0) for index, shape in enumerate(shapes)]
    found = COMPRESSIONS[name].exchanges(bucket, 4)
    assert [(one.collective, one.nbytes, one.wire) for one in found] == expected


def test_smaller_clusters_are_powers_of_two():
    assert [smaller(hosts) for hosts in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_a_profile_survives_its_file(tmp_path):
    unused = parameter("unused", ready_s=math.inf, use_s=math.inf)
    profile = dataclasses.replace(PROFILE, parameters=(*PROFILE.parameters, unused))
    profile.save(tmp_path / "profile.json")
    assert TrainingProfile.load(tmp_path / "profile.json") == profile
    assert "Infinity" not in (tmp_path / "profile.json").read_text()
    assert predict(profile, Cluster(4, gbps=1.0)).step("automatic").step_s < math.inf


def test_a_profile_is_scaled_as_a_whole():
    scaled = PROFILE.scaled(0.72)
    assert scaled.compute_s == pytest.approx(0.72)
    assert scaled.parameters[1].ready_s == pytest.approx(0.2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "parameters": []}'])
def test_invalid_profile_is_reported(tmp_path, text):
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(ArgumentError, match=r"profile\.json"):
        TrainingProfile.load(tmp_path / "profile.json")


def test_table_names_every_way():
    predictions = predict_scaling(PROFILE, Cluster(8, 2, gbps=10.0))
    text = "\n".join(map(console.rendered, report.table(PROFILE, predictions)))
    for expected in (*WAYS, "16 ranks on 8 hosts, 10 Gbit/s and 20 us", "computation 360.0 ms"):
        assert expected in text, (expected, text)


def test_lines_differ_and_labels_do_not_overlap(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    report.draw(PROFILE, predict_scaling(PROFILE, Cluster(5, 2, gbps=10.0)), tmp_path / "prediction.svg")
    assert (tmp_path / "prediction.svg").stat().st_size > 1000
    (figure,) = figures
    assert not figure.legends
    for panel, names in zip(figure.axes, ([*WAYS, "computation"], WAYS), strict=True):
        assert {text.get_text() for text in panel.texts} == set(names)
        looks = [(line.get_color(), line.get_linestyle()) for line in panel.lines]
        assert len(set(looks)) == len(looks) == len(names)
        boxes = [Text.get_window_extent(text) for text in panel.texts]  # without the lines to the ends
        heights = sorted((box.y0, box.y1) for box in boxes)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(heights)), heights
        assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1", "2", "4", "5"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "one of a script, --model and --profile"),
        ([__file__, "--model", "lenet"], "one of a script, --model and --profile"),
        ([__file__, "--batch", "4"], "--batch is for --model"),
        (["--model", "lenet", "--arguments", "x"], "--arguments is for a script"),
    ],
)
def test_bad_arguments_are_refused(words, expected, capsys):
    assert cli.main(["predict", *words, "--hosts", "4"]) == 2
    assert expected in capsys.readouterr().err


SCRIPT = """
import sys
import torch
import torch.distributed as dist
import weft.torch

assert __name__ == "__main__" and sys.argv[1:] == ["--steps", "a b"], sys.argv
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
unused = net.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
dist.init_process_group("weft")
model = weft.torch.DataParallel(net)
optimizer = weft.torch.Overlapped(torch.optim.SGD(model.parameters(), lr=0.1), model)
for _ in range(10):
    for _ in range(2):  # micro-batches
        model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(torch.ones(4, 32))
    model.train()
    print("a step")
raise SystemExit("it was not ended")
"""


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft.cli", "predict", *words, "--hosts", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_unchanged_script_is_profiled(tmp_path: Path):
    script, saved = tmp_path / "train.py", tmp_path / "profile.json"
    script.write_text(SCRIPT)
    done = command(str(script), "--arguments=--steps 'a b'", "--steps", "3", "--save-profile", str(saved))
    assert done.returncode == 0, done.stderr
    assert f"profiling {script}" in done.stderr
    assert "a step" in done.stderr
    assert [one["cluster"]["hosts"] for one in json.loads(done.stdout)["predictions"]] == [1, 2]
    profile = TrainingProfile.load(saved)
    found = {one.name: one for one in profile.parameters}
    assert {name: one.shape for name, one in found.items()} == {
        "unused": (3,),
        "0.weight": (64, 32),
        "0.bias": (64,),
        "2.weight": (8, 64),
        "2.bias": (8,),
    }
    assert profile.steps == 3
    assert found["0.weight"].use_s < found["2.weight"].use_s < profile.forward_s
    assert found["2.weight"].ready_s < found["0.weight"].ready_s < profile.backward_s
    assert found["unused"].ready_s == math.inf
    again = command("--profile", str(saved))
    assert json.loads(again.stdout) == json.loads(done.stdout)


def test_script_without_training_is_reported(tmp_path: Path):
    (tmp_path / "train.py").write_text("import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))")
    done = command(str(tmp_path / "train.py"))
    assert done.returncode == 2
    assert "train.py ended after 0 training steps (forward, backward, optimizer.step())" in done.stderr
