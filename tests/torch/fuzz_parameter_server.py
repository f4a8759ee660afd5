"""Mutation fuzzing of a parameter server's readers: requests, journals and snapshots.

A target takes one mutated input and returns, or raises for a forbidden effect of a hostile input:
another exception than a refusal, a shard that its files do not restore, or an input applied behind
a damaged one. `make fuzz-servers` runs all; a seed repeats a run.
"""

import argparse
import contextlib
import copy
import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

import weft
from weft.torch.parameter_server import Service, ServiceOptions, messages, shard
from weft.torch.parameter_server.journal import Journal
from weft.torch.parameter_server.optimizer import ServerOptimizer
from weft.torch.parameter_server.plan import Table
from weft.torch.parameter_server.requests import parse_input, parse_pull
from weft.torch.parameter_server.service import Session
from weft.torch.parameter_server.shard import Shard

MIB = 1 << 20
TENSOR_BYTES_MAX = 4096
CHECKED_EVERY = 200
"""After this many requests a service is compared with its journal, and a new one begins."""
NASTY = [
    *(None, True, False, "", "x", "0.0", "table words", "\ud800", "a" * 5000, [], {}, [[]], {"": {}}),
    *(0, 1, -1, 2, 2**31, 2**62, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
]


def job(optimizer: str = "adam") -> dict:
    """A job of one server: two pieces and a table."""
    plan = shard([("a", (6,)), ("b", (2, 2))], 1, [Table("words", 5, 2, 1.0, 3)], bucket_bytes=24)
    return {
        "plan": json.loads(json.dumps(plan.to_value())),
        "server": 0,
        "optimizer": ServerOptimizer(optimizer, lr=0.1).to_value(),
        "policy": {"staleness": 0, "workers": 1, "correct": False},
    }


def inputs(draw: random.Random) -> list[messages.Message]:
    """Returns the inputs of a shard in a short run of two workers."""
    torch.manual_seed(draw.randrange(2**32))
    found: list[messages.Message] = [({"kind": "plan", **job(draw.choice(["adam", "sgd", "adagrad"]))}, [])]
    found += [({"kind": "join", "worker": worker}, []) for worker in "xy"]
    found += [({"kind": "put", "key": f"{piece}.0"}, [torch.randn(size)]) for piece, size in enumerate((6, 4))]
    for number in (1, 2):
        for worker in "xy":
            push = {"kind": "push", "worker": worker, "number": number, "version": number - 1, "lr": 0.1}
            found.append(({**push, "key": "0.0"}, [torch.randn(6)]))
            found.append(({**push, "key": "table words"}, [torch.tensor([number, 0]), torch.randn(4)]))
    return [*found, ({"kind": "leave", "worker": "y"}, [])]


def requests(draw: random.Random) -> messages.Message:
    """A request as a worker of the job, or a hostile one, may send it."""
    number = draw.randint(1, 3)
    push = {"kind": "push", "number": number}
    return draw.choice(
        [
            ({"kind": "hello", "worker": "x", "job": job(), "returns": False, "brings": True}, []),
            ({"kind": "put", "key": "0.0"}, [torch.randn(6)]),
            ({"kind": "put", "key": "1.0"}, [torch.randn(4)]),
            ({**push, "key": "0.0", "version": 0, "lr": 0.1}, [torch.randn(6).half()]),
            ({**push, "key": "1.0", "sparse": True}, [torch.tensor([0, 3], dtype=torch.int32), torch.randn(2)]),
            ({**push, "key": "table words"}, [torch.tensor([number, 0]), torch.randn(4)]),
            ({"kind": "pull", "key": "0.0", "number": 0, "dtype": "bfloat16"}, []),
            ({"kind": "pull", "key": "table words", "number": 0}, [torch.tensor([4, 0])]),
            ({"kind": "statistics"}, []),
            ({"kind": "leave"}, []),
            ({"kind": "follow", "input": {"kind": "begin"}}, []),
        ]
    )


# Mutations.


def mutated(draw: random.Random, value: object) -> object:
    """A JSON value with some part of it replaced, removed or repeated."""
    value = copy.deepcopy(value)
    place = value
    while isinstance(place, dict | list) and place:
        key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not (isinstance(place[key], dict | list) and place[key]) or draw.random() < 0.3:
            match draw.randrange(6):
                case 0 if isinstance(place, dict):
                    place[str(draw.choice(NASTY))] = place.pop(key)
                case 1:
                    del place[key]
                case 2 if isinstance(place, list):
                    place.insert(key, copy.deepcopy(place[key]))
                case 3:
                    place[key] = [place[key]]
                case _:
                    place[key] = draw.choice(NASTY)
            break
        place = place[key]
    return value


def mutated_tensors(draw: random.Random, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    tensors = list(tensors)
    match draw.randrange(5):
        case 0 if tensors:
            tensors.pop(draw.randrange(len(tensors)))
        case 1:
            tensors.append(torch.zeros(draw.randint(0, 8)))
        case 2 if tensors:
            place = draw.randrange(len(tensors))
            tensors[place] = tensors[place].to(draw.choice(list(messages.DTYPES.values())))
        case 3 if tensors:
            place = draw.randrange(len(tensors))
            tensors[place] = tensors[place].repeat(2) * draw.choice([1, -1, 2**31])
        case 4 if tensors:
            place = draw.randrange(len(tensors))
            tensors[place] = torch.full_like(tensors[place], draw.choice([0, -1, 100]))
    return tensors


def mutated_message(draw: random.Random, message: messages.Message) -> messages.Message:
    fields, tensors = message
    if draw.random() < 0.7:
        fields = mutated(draw, fields)
    return fields, mutated_tensors(draw, tensors) if draw.random() < 0.4 else tensors


def mutated_bytes(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    begin = draw.randrange(len(changed))
    end = min(len(changed), begin + draw.choice([1, 1, 1, 4, 20, 200]))
    match draw.randrange(5):
        case 0:
            del changed[begin:]
        case 1:
            del changed[begin:end]
        case 2:
            changed[begin:begin] = changed[begin:end]
        case 3:
            changed[begin:end] = bytes(end - begin)
        case 4:
            changed[begin] ^= 1 << draw.randrange(8)
    return bytes(changed)


# Targets.


def state(kept: Shard) -> list:
    """Returns a shard's whole state for comparison, NaNs included."""
    return [(fields, [tensor.numpy().tobytes() for tensor in tensors]) for fields, tensors in kept.to_messages()]


class MemoryJournal:
    """A journal in memory, as a service uses it."""

    def __init__(self) -> None:
        self.file = io.BytesIO()
        self.is_due = False

    def restore(self, bytes_max: int) -> tuple[Shard, int]:
        self.file.seek(0)
        kept, applied = Shard(bytes_max), 0
        while (message := messages.read_record(self.file)) is not None:
            kept.admit(message)
            applied += 1
        return kept, applied

    def write(self, message: messages.Message) -> None:
        messages.write_record(self.file, message)


class Requests:
    """Requests to a service, as bytes received from a worker."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._journal, self._count, self._session = MemoryJournal(), 0, Session()
        self._service = Service(ServiceOptions(shard_bytes=MIB, workers_max=3), self._journal)
        if random.random() < 0.8:
            self._service.handle(self._session, ({"kind": "hello", "worker": "x", "job": job(), "brings": True}, []))

    def run(self, draw: random.Random) -> None:
        message = requests(draw)
        fields, tensors = mutated_message(draw, message) if draw.random() < 0.9 else message
        try:
            text = messages._encoded(fields if isinstance(fields, dict) else {"kind": fields}, tensors)
            if draw.random() < 0.1:
                text = mutated_bytes(draw, text)
            fields, shapes = messages._decoded(text, TENSOR_BYTES_MAX)
            if [(tensor.dtype, tensor.numel()) for tensor in tensors] != shapes:
                tensors = [torch.zeros(count, dtype=dtype) for dtype, count in shapes]
            self._handle(fields, tensors)
        except weft.Error:
            pass
        if (self._service._failure is not None) or self._session.ended or draw.random() < 0.01:
            assert self._service._failure is None, self._service._failure
            self._session = Session()
        self._count += 1
        if self._count == CHECKED_EVERY:
            again, _ = self._journal.restore(MIB)
            assert self._service._incoming is not None or state(again) == state(self._service._shard)
            self._begin()

    def _handle(self, fields: dict, tensors: list[torch.Tensor]) -> None:
        if fields.get("kind") == "pull":  # which may wait for others
            pull, kept = parse_pull(fields), self._service._shard
            kept.kept(pull.key)
            kept.may_read("x", pull)
            kept.values(pull, tensors)
        else:
            self._service.handle(self._session, (fields, tensors))


class Records:
    """Bytes of a journal, parsed up to the typed inputs, without a shard."""

    def __init__(self) -> None:
        draw = random.Random(0)
        self._good = [message for _ in range(3) for message in inputs(draw)]

    def run(self, draw: random.Random) -> None:
        good = draw.sample(self._good, 2)
        content = _records([mutated_message(draw, message) for message in good])
        if draw.random() < 0.5:
            content = mutated_bytes(draw, content)
        file = io.BytesIO(content)
        with contextlib.suppress(messages.DamagedRecord):
            while True:
                begin = file.tell()
                try:
                    message = messages.read_record(file)
                    if message is None:
                        break
                    parse_input(message[0])
                except messages.DamagedRecord:
                    raise
                except weft.Error:
                    assert file.tell() > begin


class Journals:
    """Journals with damage of any kind, and with inputs that no server has checked."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._good: list[tuple[list[messages.Message], bytes, list[list]]] = []

    def run(self, draw: random.Random) -> None:
        if not self._good or draw.random() < 0.001:
            self._good = [self._written(inputs(draw)) for _ in range(3)]
        good, content, states = draw.choice(self._good)
        is_damaged = draw.random() < 0.5
        if is_damaged:
            content = mutated_bytes(draw, content)
        else:
            place = draw.randrange(len(good))
            content = _records([*good[:place], mutated_message(draw, good[place]), *good[place + 1 :]])
        path = Path(self._directory.name, "journal-1")
        path.write_bytes(content)
        journal = Journal(Path(self._directory.name))
        try:
            found = state(journal.restore(MIB)[0])
        except weft.ConfigError:
            return
        finally:
            journal.close()
            path.unlink()
        assert not is_damaged or found in states or _drops_or_repeats(content, good), "applied behind damage"

    def _written(self, good: list[messages.Message]) -> tuple[list[messages.Message], bytes, list[list]]:
        kept, kept_inputs, states = Shard(MIB), [], [state(Shard(MIB))]
        for message in good:
            prepared = kept.prepare(message)
            assert prepared is not None
            kept.apply(prepared)
            kept_inputs.append(prepared)
            states.append(state(kept))
        return kept_inputs, _records(kept_inputs), states


class Snapshots:
    """Snapshots, or shards that another server sends, with parts that are not as they should be."""

    def run(self, draw: random.Random) -> None:
        kept = Shard(MIB)
        for message in inputs(draw)[: draw.randint(1, 12)]:
            prepared = kept.prepare(message)
            if prepared is not None:
                kept.apply(prepared)
        whole = kept.to_messages()
        place = draw.randrange(len(whole))
        whole[place] = mutated_message(draw, whole[place])
        try:
            restored = Shard.of_messages(whole, MIB)
        except weft.Error:
            return
        assert state(Shard.of_messages(restored.to_messages(), MIB)) == state(restored)
        for message in inputs(draw):
            try:
                prepared = restored.prepare(message)
            except weft.Error:
                continue
            if prepared is not None:
                restored.apply(prepared)


def _records(inputs_: list[messages.Message]) -> bytes:
    file = io.BytesIO()
    for message in inputs_:
        messages.write_record(file, message)
    return file.getvalue()


def _drops_or_repeats(content: bytes, good: list[messages.Message]) -> bool:
    """Whether these bytes are whole records all the same: some are missing, or there twice."""
    whole = [_records([message]) for message in good]
    while content:
        record = next((one for one in whole if content.startswith(one)), None)
        if record is None:
            return not any(one in content for one in whole)
        content = content[len(record) :]
    return True


TARGETS: dict[str, Callable[[], Requests | Records | Journals | Snapshots]] = {
    "requests": Requests,
    "records": Records,
    "journals": Journals,
    "snapshots": Snapshots,
}
WHOLE_SHARDS = ("journals", "snapshots")
"""Each input of these makes a shard and its optimizers, so they get a hundredth of the runs."""


def run(target: str, runs: int, seed: int, report: Callable[[str], object] = lambda _: None) -> None:
    """Runs a target; a failure names the seed of its input."""
    tested, begun = TARGETS[target](), time.monotonic()
    random.seed(seed)
    for count in range(runs):
        draw = random.Random(f"{seed} {count}")
        try:
            tested.run(draw)
        except BaseException as error:
            error.add_note(f"target {target}, seed {seed}, input {count}")
            raise
        if (count + 1) % 100_000 == 0:
            report(f"{target}: {count + 1} inputs, {(count + 1) / (time.monotonic() - begun):.0f} per second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=TARGETS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for target in [options.only] if options.only else TARGETS:
        runs = options.runs // (100 if target in WHOLE_SHARDS else 1)
        run(target, runs, options.seed, lambda line: print(line, file=sys.stderr, flush=True))
        print(f"{target}: {runs} inputs, nothing found", flush=True)


if __name__ == "__main__":
    main()
