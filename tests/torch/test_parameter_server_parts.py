"""Tests of the parameter server without a network: plan, clocks, optimizers, files."""

import contextlib
import copy
import json
import random
import threading
import time

import pytest
import torch
from torch import nn

import weft
from weft.torch.parameter_server import Journal, LostPush, ServerOptimizer, ShardPlan, shard
from weft.torch.parameter_server.clocks import Clocks
from weft.torch.parameter_server.errors import DamagedRecord
from weft.torch.parameter_server.messages import read_record, write_record
from weft.torch.parameter_server.optimizer import OPTIMIZERS, RowOptimizer, VectorOptimizer
from weft.torch.parameter_server.plan import Table
from weft.torch.parameter_server.shard import Shard
from weft.torch.parameter_server.turns import Turns

RATES = {"sgd": {"lr": 0.1, "momentum": 0.9}, "adam": {"lr": 0.01}, "adamw": {"lr": 0.01}, "adagrad": {"lr": 0.1}}
MIB = 1 << 20
DEADLINE_SECONDS = 60.0


# The plan.


@pytest.mark.parametrize("seed", range(20))
def test_pieces_cover_every_parameter_and_bytes_are_balanced(seed):
    draw = random.Random(seed)
    servers = draw.randint(1, 7)
    shapes = [(f"p{n}", tuple(draw.randint(1, 400) for _ in range(draw.randint(0, 2)))) for n in range(30)]
    shapes.append(("large", (1000, 1500)))
    plan = shard(shapes, servers)
    plan.check()
    assert [pair for bucket in plan.buckets for pair in bucket.parameters] == shapes
    loads = plan.server_bytes()
    assert sum(loads) == 4 * sum(bucket.elements for bucket in plan.buckets)
    assert max(loads) - min(loads) <= 256 * 1024 + 4 * len(plan.buckets)
    assert ShardPlan.from_value(plan.to_value()) == plan


def test_only_large_tensors_are_split_over_servers():
    plan = shard([("small", (10,)), ("large", (MIB,))], 4)
    assert [len(bucket.pieces) for bucket in plan.buckets] == [1, 4]
    assert {piece.elements for piece in plan.buckets[1].pieces} == {MIB // 4}


def test_a_long_part_is_cut_into_equal_pieces():
    plan = shard([("long", (5 * MIB // 4,))], 2)
    pieces = plan.buckets[0].pieces
    assert [(piece.server, piece.elements) for piece in pieces] == [
        *[(0, 218453), (0, 218453), (0, 218454)],
        *[(1, 218453), (1, 218453), (1, 218454)],
    ]
    assert list(plan.pieces_of(1)) == ["0.3", "0.4", "0.5"]
    plan.check()


def test_rows_of_a_table_are_dealt_out():
    plan = shard([], 3, [Table("words", 10, 4, 1.0, 0)])
    assert [plan.tables[0].rows_of(server, 3) for server in range(3)] == [4, 3, 3]
    assert plan.server_bytes() == [64, 48, 48]


def test_invalid_plan_is_refused():
    value = shard([("a", (8,))], 2).to_value()
    value["buckets"][0]["pieces"][0]["stop"] = 7
    with pytest.raises(weft.ArgumentError, match="do not cover 8 elements"):
        ShardPlan.from_value(value)
    with pytest.raises(weft.ArgumentError, match="not a plan of shards"):
        ShardPlan.from_value({"servers": 1})
    with pytest.raises(weft.ArgumentError, match="servers=0"):
        shard([], 0)


# Clocks.


def test_bounded_staleness_limits_a_workers_lead():
    clocks = Clocks()
    clocks.join("a")
    clocks.join("b")
    for number in range(1, 4):
        assert not clocks.is_repeated("a", number)
        clocks.push("a")
    assert clocks.may_read("a", 3, None)
    assert clocks.may_read("a", 3, 3)
    assert not clocks.may_read("a", 3, 2)
    assert not clocks.may_read("a", 4, None), "its own push has not come"
    clocks.push("b")
    assert clocks.may_read("a", 3, 2)
    clocks.leave("b")
    assert clocks.may_read("a", 3, 0)


def test_late_worker_starts_at_slowest_repeats_are_known():
    clocks = Clocks()
    clocks.join("a")
    for _ in range(5):
        clocks.push("a")
    clocks.join("late")
    assert clocks.clock("late") == 5
    assert clocks.push("late") == 6
    clocks.leave("late")
    clocks.join("late")
    assert clocks.is_repeated("late", 1)
    assert not clocks.is_repeated("late", 2)
    with pytest.raises(LostPush, match="push 2 has not arrived"):
        clocks.is_repeated("late", 3)


# Optimizers.


@pytest.mark.parametrize("name", RATES)
def test_pieces_are_updated_as_the_whole_would_be(name):
    how = ServerOptimizer(name, **RATES[name])
    whole = nn.Parameter(torch.randn(100))
    pieces = [whole.detach()[:37].clone(), whole.detach()[37:].clone()]
    optimizer = OPTIMIZERS[name]([whole], **RATES[name])
    vectors = [VectorOptimizer(how, piece) for piece in pieces]
    for _ in range(4):
        gradient = torch.randn(100)
        whole.grad = gradient
        optimizer.step()
        for vector, part in zip(vectors, (gradient[:37], gradient[37:]), strict=True):
            vector.step(part)
    assert torch.equal(whole.detach(), torch.cat(pieces))


@pytest.mark.parametrize("name", RATES)
def test_touched_rows_are_updated_and_others_left(name):
    table = torch.randn(6, 3)
    before = table.clone()
    rows = RowOptimizer(ServerOptimizer(name, **RATES[name]), table)
    dense = nn.Parameter(before[[1, 4]].clone())
    optimizer = OPTIMIZERS[name]([dense], **RATES[name])
    for _ in range(3):
        gradient = torch.randn(2, 3)
        dense.grad = gradient
        optimizer.step()
        rows.step(torch.tensor([1, 4]), gradient)
    assert torch.equal(table[[1, 4]], dense.detach())
    assert torch.equal(table[[0, 2, 3, 5]], before[[0, 2, 3, 5]])


def test_adam_on_rows_is_sparse_adam():
    table = torch.randn(8, 3)
    sparse = nn.Parameter(table.clone())
    reference = torch.optim.SparseAdam([sparse], lr=0.01)
    rows = RowOptimizer(ServerOptimizer("adam", lr=0.01), table)
    for touched in ([0, 3], [3, 5], [7]):
        gradient = torch.randn(len(touched), 3)
        sparse.grad = torch.sparse_coo_tensor(torch.tensor([touched]), gradient, (8, 3))
        reference.step()
        rows.step(torch.tensor(touched), gradient)
    torch.testing.assert_close(table, sparse.detach())


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [("lamb", {"lr": 1}, "expected one of sgd"), ("sgd", {"momenta": 1}, "momenta"), ("adam", {"lr": "x"}, "a number")],
)
def test_an_optimizer_that_is_not_there_is_refused(name, options, why):
    with pytest.raises(weft.ArgumentError, match=why):
        ServerOptimizer(name, **options)


# Turns.


def test_turns_are_given_in_the_order_of_arrival():
    turns, order = Turns(), []
    turns.acquire()
    waiting = []
    for number in range(8):
        before = len(turns._waiting)

        def take(number=number):
            with turns:
                order.append(number)

        waiting.append(threading.Thread(target=take))
        waiting[-1].start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(turns._waiting) == before:
            assert time.monotonic() < deadline, "a thread does not ask for its turn"
            time.sleep(0.001)
    turns.release()
    for thread in waiting:
        thread.join(DEADLINE_SECONDS)
    assert order == list(range(8))


# Files.


def job(staleness=0):
    plan = shard([("a", (6,)), ("b", (2, 2))], 1, [Table("words", 5, 2, 1.0, 3)])
    return {
        "kind": "plan",
        "plan": json.loads(json.dumps(plan.to_value())),
        "server": 0,
        "optimizer": ServerOptimizer("adam", lr=0.1).to_value(),
        "policy": {"staleness": staleness, "workers": 1, "correct": False},
    }


def inputs():
    """Two workers, of which one is a push ahead at the end."""
    torch.manual_seed(1)
    yield job(), []
    yield {"kind": "join", "worker": "x"}, []
    yield {"kind": "join", "worker": "y"}, []
    yield {"kind": "put", "key": "0.0"}, [torch.randn(10)]
    for number in range(1, 5):
        for worker in ("x", "y") if number < 4 else ("x",):
            push = {"kind": "push", "worker": worker, "number": number}
            yield {**push, "key": "0.0"}, [torch.randn(10)]
            yield {**push, "key": "table words"}, [torch.tensor([number, 0]), torch.randn(4)]


def feed(shard_, messages, journal=None):
    for message in messages:
        prepared = shard_.prepare(message)
        assert prepared is not None
        if journal is not None:
            journal.write(prepared)
        shard_.apply(prepared)


def same(one, other):
    left, right = one.to_messages(), other.to_messages()
    assert [fields for fields, _ in left] == [fields for fields, _ in right]
    for (_, mine), (_, theirs) in zip(left, right, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_snapshot_inputs_stay_unchanged():
    kept, messages = Shard(MIB), list(inputs())
    feed(kept, messages[:-4])
    whole = kept.to_messages()
    before = copy.deepcopy(whole)
    feed(kept, [*messages[-4:], ({"kind": "leave", "worker": "y"}, [])])
    assert [fields for fields, _ in whole] == [fields for fields, _ in before]


@pytest.mark.parametrize("snapshot_after", [None, 1, 7, 14])
def test_shard_is_restored_bit_by_bit(tmp_path, snapshot_after):
    kept, journal = Shard(MIB), Journal(tmp_path)
    messages = list(inputs())
    for count, message in enumerate(messages):
        feed(kept, [message], journal)
        if count == snapshot_after:
            journal.finish(journal.begin(), kept.to_messages())
    journal.close()
    journal = Journal(tmp_path)
    again, applied = journal.restore(MIB)
    assert applied == (len(messages) if snapshot_after is None else len(messages) - snapshot_after - 1)
    same(kept, again)
    assert again.prepare(messages[-1]) is None, "a push that was applied is known"
    feed(kept, [({"kind": "push", "worker": "y", "number": 4, "key": "0.0"}, [torch.ones(10)])])
    feed(again, [({"kind": "push", "worker": "y", "number": 4, "key": "0.0"}, [torch.ones(10)])], journal)
    same(kept, again)
    assert len(list(tmp_path.glob("snapshot-*"))) <= 1


def test_truncated_write_is_left_out(tmp_path):
    kept, journal = Shard(MIB), Journal(tmp_path)
    messages = list(inputs())
    feed(kept, messages[:-1], journal)
    whole = (tmp_path / "journal-1").stat().st_size
    feed(Shard(MIB), [], journal)
    journal.write(messages[-1])
    journal.close()
    path = tmp_path / "journal-1"
    for length in (whole + 5, whole + 40, path.stat().st_size - 1):
        with path.open("r+b") as file:
            content = path.read_bytes()
            file.truncate(length)
        journal = Journal(tmp_path)
        again, _ = journal.restore(MIB)
        journal.close()
        same(kept, again)
        path.write_bytes(content)


def test_damaged_snapshot_and_second_server_are_reported(tmp_path):
    kept, journal = Shard(MIB), Journal(tmp_path)
    feed(kept, list(inputs()), journal)
    journal.finish(journal.begin(), kept.to_messages())
    with pytest.raises(weft.ConfigError, match="another server uses"):
        Journal(tmp_path)
    journal.close()
    (path,) = tmp_path.glob("snapshot-*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(weft.ConfigError, match="is damaged"):
        Journal(tmp_path).restore(MIB)


def test_changed_record_is_rejected(tmp_path):
    path = tmp_path / "records"
    tensors = [torch.randn(5), torch.tensor([1, 2]), torch.randn(3).bfloat16(), torch.empty(0)]
    with path.open("wb") as file:
        write_record(file, ({"kind": "x"}, tensors))
    with path.open("rb") as file:
        fields, found = read_record(file)
        assert read_record(file) is None
    assert fields == {"kind": "x"}
    assert all(torch.equal(a, b) for a, b in zip(tensors, found, strict=True))
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 4
        path.write_bytes(changed)
        with path.open("rb") as file, contextlib.suppress(DamagedRecord):
            assert read_record(file) is None
