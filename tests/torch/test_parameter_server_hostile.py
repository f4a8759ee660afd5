"""Tests of a parameter server against bad input: of workers, in its files, and in its directory."""

import copy
import json
import os
import threading
import time

import fuzz_parameter_server as fuzz
import pytest
import torch

import weft
from weft import _weft, config
from weft.bootstrap import endpoints, stores
from weft.processes.ports import free_ports
from weft.torch.parameter_server import Journal, Limits, Server, Service
from weft.torch.parameter_server import server as server_module
from weft.torch.parameter_server.connection import call, connect
from weft.torch.parameter_server.messages import _decoded, read_record, write_record
from weft.torch.parameter_server.service import Session
from weft.torch.parameter_server.shard import Shard

MIB = 1 << 20
DEADLINE_SECONDS = 60.0
HELLO = {"kind": "hello", "worker": "x", "job": fuzz.job(), "brings": True}
PUSH = {"kind": "push", "key": "0.0", "number": 1}


def changed(path: str, value: object) -> dict:
    """The hello with another value somewhere; a path is of keys and numbers."""
    hello = copy.deepcopy(HELLO)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = hello
    for step in way:
        place = place[step]
    place[last] = value
    return hello


def nested(depth: int) -> str:
    return '{"kind": "push", "key": ' + "[" * depth + "]" * depth + "}"


BAD_HELLOS = {
    "workers": ("job/policy/workers", "x"),
    "no workers": ("job/policy/workers", 0),
    "staleness": ("job/policy/staleness", 10**400),
    "correct": ("job/policy/correct", 1),
    "policy": ("job/policy", [["workers", 1]]),
    "seed": ("job/plan/tables/0/seed", "a"),
    "large seed": ("job/plan/tables/0/seed", 2**64),
    "deviation": ("job/plan/tables/0/deviation", -1),
    "deviation that is no number": ("job/plan/tables/0/deviation", float("nan")),
    "rows": ("job/plan/tables/0/rows", 2.5),
    "negative piece": ("job/plan/buckets/0/pieces", [[0, 0, 9], [0, 9, 6]]),
    "negative length": ("job/plan/buckets/0/pieces/0/stop", -6),
    "shape": ("job/plan/buckets/0/parameters/0/1", [-6]),
    "huge shape": ("job/plan/buckets/0/parameters/0/1", [2**40, 2**40]),
    "servers": ("job/plan/servers", True),
    "server": ("job/server", 1),
    "another plan": ("job/plan", {"servers": 1}),
    "optimizer": ("job/optimizer/name", "lamb"),
    "option": ("job/optimizer/options/lr", float("inf")),
    "option of torch's own": ("job/optimizer/options", {"lr": 0.1, "capturable": True, "differentiable": True}),
    "rate": ("job/optimizer/options/lr", 1e308),
    "betas": ("job/optimizer/options/betas", [0.9]),
    "worker": ("worker", ["x"]),
    "long name": ("worker", "x" * 5000),
    "returns": ("returns", "no"),
}


@pytest.fixture
def journalled(tmp_path):
    """A service with a journal, and its final checks."""
    service = Service(journal=Journal(tmp_path / "shard"))
    yield service
    before = fuzz.state(service._shard)
    service._journal.close()
    again = Service(journal=Journal(tmp_path / "shard"))
    assert fuzz.state(again._shard) == before
    again._journal.close()


@pytest.mark.parametrize("what", BAD_HELLOS)
def test_bad_plan_is_refused_before_storing(what, journalled):
    path, value = BAD_HELLOS[what]
    with pytest.raises(weft.Error):
        journalled.handle(Session(), (changed(path, value), []))
    assert journalled._shard.job is None
    journalled.handle(Session(), (HELLO, []))
    assert journalled._shard.members == ["x"]


BAD_REQUESTS = [
    ({**PUSH, "version": "abc"}, [torch.ones(6)]),
    ({**PUSH, "version": -1}, [torch.ones(6)]),
    ({**PUSH, "version": 0.5}, [torch.ones(6)]),
    ({**PUSH, "lr": float("nan")}, [torch.ones(6)]),
    ({**PUSH, "lr": 1e308}, [torch.ones(6)]),
    ({**PUSH, "lr": 10**400}, [torch.ones(6)]),
    ({**PUSH, "lr": True}, [torch.ones(6)]),
    ({**PUSH, "number": 2**70}, [torch.ones(6)]),
    ({**PUSH, "number": 1.0}, [torch.ones(6)]),
    ({**PUSH, "sparse": "yes"}, [torch.ones(6)]),
    ({**PUSH, "sparse": True}, [torch.tensor([0]), torch.tensor([1])]),
    ({**PUSH, "sparse": True}, [torch.tensor([-1]), torch.ones(1)]),
    ({**PUSH, "key": ["0.0"]}, [torch.ones(6)]),
    ({**PUSH, "key": "table words"}, [torch.tensor([1, 1]), torch.ones(4)]),
    ({**PUSH, "key": "table words"}, [torch.tensor([2**62]), torch.ones(2)]),
    (PUSH, [torch.ones(7)]),
    (PUSH, [torch.ones(6, dtype=torch.int64)]),
    ({"kind": "put", "key": "table words"}, [torch.ones(10)]),
    ({"kind": "put", "key": None}, [torch.ones(6)]),
    ({"kind": "pull", "key": "0.0", "number": "1"}, []),
    ({"kind": "pull", "key": "0.0", "number": 0, "dtype": ["float32"]}, []),
    ({"kind": "follow"}, []),
    ({"kind": "follow", "input": []}, []),
    ({"kind": ["push"]}, []),
    ({**HELLO, "worker": "another"}, []),
]


@pytest.mark.parametrize("message", BAD_REQUESTS, ids=lambda message: str(message[0])[:60])
def test_a_bad_request_is_refused_and_changes_nothing(message, journalled):
    session = Session()
    journalled.handle(session, (HELLO, []))
    before = fuzz.state(journalled._shard)
    with pytest.raises(weft.Error):
        journalled.handle(session, message)
    assert fuzz.state(journalled._shard) == before
    assert journalled.handle(session, (PUSH, [torch.ones(6)]))[0] == {"staleness": 0}


@pytest.mark.parametrize("text", [nested(100_000), "NaN", "[]", "[" * 100_000, '{"lr": Infinity}', "9" * 100_000])
def test_json_that_cannot_be_read_is_refused(text):
    with pytest.raises(weft.Error, match="cannot be read"):
        _decoded(text.encode(), MIB)


# Files.


def test_bad_inputs_in_journal_are_skipped_and_named(tmp_path):
    good = [({"kind": "plan", **fuzz.job()}, []), ({"kind": "join", "worker": "x"}, []), ({**PUSH, "worker": "x"}, [])]
    bad = [
        ({"kind": "plan", **changed("job/plan/tables/0/seed", "a")["job"]}, []),
        ({**PUSH, "worker": "x", "version": "abc"}, [torch.ones(6)]),
        ({**PUSH, "worker": "x", "number": 3}, []),
        ({**PUSH, "worker": "x", "key": "table words"}, [torch.tensor([7]), torch.ones(2)]),
        ({"kind": "leave", "worker": "nobody"}, []),
    ]
    directory = tmp_path / "shard"
    directory.mkdir(0o700)
    with (directory / "journal-1").open("wb") as file:
        for message in [bad[0], *good[:2], *bad[1:], good[2]]:
            write_record(file, message)
    kept = Shard(MIB)
    for message in good:
        kept.apply(kept.prepare(message))
    with pytest.warns(RuntimeWarning) as caught:
        service = Service(journal=Journal(directory))
    assert fuzz.state(service._shard) == fuzz.state(kept)
    named = [str(warning.message) for warning in caught]
    assert len(named) == len(bad)
    assert "journal-1: the input at byte 0 is left out" in named[0]
    assert "seed='a'" in named[0]
    service._journal.close()


def records(path) -> list[int]:
    """Where the records of a file begin."""
    starts = []
    with path.open("rb") as file:
        while True:
            starts.append(file.tell())
            if read_record(file) is None:
                return starts[:-1]


def test_journal_replay_stops_at_reported_damage(tmp_path):
    journal = Journal(tmp_path / "shard")
    kept, states = Shard(MIB), [fuzz.state(Shard(MIB))]
    for message in fuzz.inputs(fuzz.random.Random(1)):
        prepared = kept.prepare(message)
        journal.write(prepared)
        kept.apply(prepared)
        states.append(fuzz.state(kept))
    journal.close()
    path = tmp_path / "shard" / "journal-1"
    content, starts = path.read_bytes(), records(path)
    last = starts[-1]
    for place in [*range(0, len(content), 61), *starts, *(start + 22 for start in starts)]:
        damaged = bytearray(content)
        damaged[place] ^= 16
        path.write_bytes(damaged)
        journal = Journal(tmp_path / "shard")
        try:
            restored, _ = journal.restore(MIB)
            assert place >= last, f"byte {place} is damaged, and nothing said"
            assert fuzz.state(restored) == states[-2]
        except weft.ConfigError as error:
            assert str(path) in str(error)
            assert "is damaged" in str(error)
            assert f"truncate the file at byte {max(start for start in starts if start <= place)}" in str(error)
        journal.close()


def test_file_extended_before_its_content_is_cut(tmp_path):
    journal = Journal(tmp_path / "shard")
    journal.write(({"kind": "plan", **fuzz.job()}, []))
    journal.close()
    path = tmp_path / "shard" / "journal-1"
    with path.open("ab") as file:
        file.write(bytes(100))
    journal = Journal(tmp_path / "shard")
    with pytest.warns(RuntimeWarning, match="was cut off"):
        assert journal.restore(MIB)[1] == 1
    journal.close()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
@pytest.mark.parametrize("name", ["lock", "journal-1", "snapshot-1"])
def test_planted_files_are_neither_followed_nor_awaited(kind, name, tmp_path):
    directory, target = tmp_path / "shard", tmp_path / "target"
    directory.mkdir(0o700)
    target.write_text("the victim's")
    planted = directory / name
    match kind:
        case "link":
            planted.symlink_to(target)
        case "pipe":
            os.mkfifo(planted)
        case "directory":
            planted.mkdir()
    with pytest.raises(weft.ConfigError, match=str(directory)):
        Service(journal=Journal(directory))
    assert target.read_text() == "the victim's"


def test_directory_writable_by_others_is_refused(tmp_path):
    directory = tmp_path / "shard"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(weft.ConfigError, match="others can write there"):
        Journal(directory)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(weft.ConfigError, match="others can write there"):
        Journal(link)


# Threads.


def test_keys_of_absent_workers_make_few_threads(monkeypatch):
    monkeypatch.setattr(server_module, "_MEETINGS_MAX", 4)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = config.load({})
    before = threading.active_count()
    endpoint = _weft.Endpoint(route_to=address, **endpoints.options_of(settings))
    with Server(address) as server:
        store = stores.open_store(config.place(1, 2, address), settings, _weft.Cancellation())
        for number in range(100):
            store.set(f"join/{number}", b"nobody %d" % number)
            assert len(server._meetings) <= 4
        channel = connect(address, settings, endpoint, Limits())
        assert call(channel, 0, (json.loads(json.dumps(HELLO)), []))[0] == {}
        assert threading.active_count() <= before + 4 + 16
        channel.close()
    deadline = time.monotonic() + DEADLINE_SECONDS
    while threading.active_count() > before:
        assert time.monotonic() < deadline, "threads do not end with the server"
        time.sleep(0.01)
    endpoint.close()


# All targets, at random. `make fuzz-servers` runs longer.


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_random_input_is_survived(target):
    fuzz.run(target, 60 if target in fuzz.WHOLE_SHARDS else 1000, seed=7)
