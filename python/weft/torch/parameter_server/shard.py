"""A server's shard as a deterministic machine: the same inputs in the same order, the same bits.

Its inputs are messages: `plan`, `join`, `leave`, `put`, `push`. What is written to the journal, and
sent to a second server, is these; who applies them again has the same shard, with the numbers of
the pushes that it has had. Reading (`values`, `may_read`) changes nothing. No threads, no clock, no
files, no network.
"""

from __future__ import annotations

import collections
from typing import Any

from torch import Tensor

from weft.errors import ArgumentError
from weft.torch.parameter_server.errors import ServerError, StalePlan, UnknownShard
from weft.torch.parameter_server.messages import DTYPES, Message
from weft.torch.parameter_server.optimizer import ServerOptimizer
from weft.torch.parameter_server.plan import ShardPlan
from weft.torch.parameter_server.state import Kept, KeptPiece, KeptTable, Policy

__all__ = ["Shard"]


class Shard:
    """The part of a model that one server keeps."""

    def __init__(self, bytes_max: int) -> None:
        """An empty one, of at most so many bytes of values."""
        self._bytes_max = bytes_max
        self.job: dict[str, Any] | None = None
        """What the workers have asked for: the fields of `plan`."""
        self.plan = ShardPlan(1, ())
        self.policy = Policy()
        self.members: list[str] = []
        self.gathered = False
        """Whether as many workers as asked for have been there together."""
        self.staleness: dict[str, collections.Counter[int]] = {}
        """By worker, how often pushes had which staleness, since this process began."""
        self.repeated = 0
        """Pushes that had been applied before."""
        self._kept: dict[str, Kept] = {}

    # Inputs.

    def apply(self, message: Message) -> dict[str, Any]:
        """Takes in one input, which `prepare` has checked; returns what the worker is told."""
        fields, tensors = message
        match fields["kind"]:
            case "plan":
                self._begin(fields)
            case "join":
                self._join(fields["worker"])
            case "leave":
                self._leave(fields["worker"])
            case "put":
                self._piece(fields["key"]).put(tensors)
            case "push":
                return self._push(fields, tensors)
        return {}

    def prepare(self, message: Message) -> Message | None:
        """Checks an input; the same, as it is kept. None: there is nothing to do (again).

        Raises:
            ServerError: It is refused.
        """
        fields, tensors = message
        kind = fields.get("kind")
        if kind == "plan":
            return self._prepare_plan(fields)
        if kind in ("join", "leave"):
            return message if (fields["worker"] in self.members) == (kind == "leave") else None
        kept = self.kept(fields)
        if kind == "put":
            piece = self._piece(fields["key"])
            return None if piece.has_values else (fields, piece.floats(tensors, 1))
        if kind != "push":
            raise ServerError(f"a request of kind {kind!r}: expected push, pull, put, leave or statistics")
        worker, number = str(fields.get("worker")), fields.get("number")
        if worker not in self.members:
            raise ServerError(f"worker {worker} is not a member: it has to join first")
        if type(number) is not int or number < 1:
            raise ServerError(f"push {number!r}: expected a number from 1 on")
        rate = fields.get("lr")
        if rate is not None and (not isinstance(rate, (int, float)) or not rate >= 0):
            raise ServerError(f"lr={rate!r}: expected a number of at least 0")
        if kept.clocks.is_repeated(worker, number):
            self.repeated += 1
            return None
        return fields, kept.check(fields, tensors)

    # Reading.

    def kept(self, fields: dict[str, Any]) -> Kept:
        """The piece or table that a request names.

        Raises:
            UnknownShard: There is none here.
        """
        key = fields.get("key")
        found = self._kept.get(key) if isinstance(key, str) else None
        if found is None:
            raise UnknownShard(f"{key!r}: this server has {', '.join(list(self._kept)[:8]) or 'nothing yet'} ...")
        return found

    @property
    def has_values(self) -> bool:
        """Whether all pieces have had their first values."""
        return self.job is not None and all(
            kept.has_values for kept in self._kept.values() if isinstance(kept, KeptPiece)
        )

    def may_read(self, worker: str, fields: dict[str, Any]) -> bool:
        """Whether a worker may have the values that it asks for now."""
        if not (self.gathered and self.has_values):
            return False
        return self.kept(fields).clocks.may_read(worker, int(fields["number"]), self.policy.staleness)

    def values(self, message: Message) -> Message:
        """A copy of the values that a request asks for, in the type that it asks for."""
        fields, tensors = message
        kept = self.kept(fields)
        dtype = DTYPES.get(str(fields.get("dtype", "float32")))
        if dtype is None or not dtype.is_floating_point:
            raise ServerError(f"dtype={fields.get('dtype')!r}: expected float32, float16 or bfloat16")
        values = kept.rows(tensors) if isinstance(kept, KeptTable) else kept.tensor()
        copied = values.flatten().to(dtype, copy=True)
        return {"version": kept.version}, [copied]

    def statistics(self) -> dict[str, Any]:
        """Clocks, updates and staleness, for people and JSON."""
        return {
            "server": None if self.job is None else self.job["server"],
            "members": list(self.members),
            "updates": {key: kept.version for key, kept in self._kept.items()},
            "slowest": min((kept.clocks.slowest() for kept in self._kept.values()), default=0),
            "repeated": self.repeated,
            "staleness": {worker: dict(sorted(counts.items())) for worker, counts in self.staleness.items()},
        }

    # All of it.

    def to_messages(self) -> list[Message]:
        """Everything, for a snapshot or a second server."""
        if self.job is None:
            return []
        messages: list[Message] = [
            (dict(self.job), []),
            ({"kind": "members", "members": self.members, "gathered": self.gathered}, []),
        ]
        for key, kept in self._kept.items():
            whole = kept.to_messages()
            has_values = not isinstance(kept, KeptPiece) or kept.has_values
            messages.append(({"kind": "kept", "key": key, "count": len(whole), "has_values": has_values}, []))
            messages += whole
        return messages

    def restore(self, messages: list[Message]) -> None:
        """Takes over what `to_messages` gave, in place of what is there."""
        if not messages:
            return
        self._begin(messages[0][0])
        self.members, self.gathered = list(messages[1][0]["members"]), messages[1][0]["gathered"]
        place = 2
        while place < len(messages):
            head = messages[place][0]
            kept = self._kept[head["key"]]
            kept.restore(messages[place + 1 : place + 1 + head["count"]])
            if isinstance(kept, KeptPiece):
                kept.has_values = head["has_values"]
            place += 1 + head["count"]

    # How it is done.

    def _prepare_plan(self, fields: dict[str, Any]) -> Message | None:
        if self.job is not None:
            for name in ("plan", "server", "optimizer", "policy"):
                if fields.get(name) != self.job[name]:
                    raise StalePlan(
                        f"the worker's {name} is not that of the server, which was told {_short(self.job[name])}, now "
                        f"{_short(fields.get(name))}: all workers need the same model, options and list of servers; "
                        "for another job start the server with another directory"
                    )
            return None
        try:
            plan = ShardPlan.from_value(fields["plan"])
            ServerOptimizer.from_value(fields["optimizer"])
            policy = Policy(**fields["policy"])
            server = fields["server"]
            if type(server) is not int or not 0 <= server < plan.servers:
                raise ArgumentError(f"server {server!r} of {plan.servers}")
            if policy.staleness is not None and (type(policy.staleness) is not int or policy.staleness < 0):
                raise ArgumentError(f"staleness={policy.staleness!r}: expected a number of at least 0, or None")
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(f"the plan is refused: {error}") from None
        if (wanted := plan.server_bytes()[server]) > self._bytes_max:
            raise ServerError(f"the shard has {wanted} bytes: this server keeps at most {self._bytes_max}")
        return {**fields, "kind": "plan"}, []

    def _begin(self, fields: dict[str, Any]) -> None:
        self.job = fields
        self.plan = ShardPlan.from_value(fields["plan"])
        self.policy = Policy(**fields["policy"])
        how = ServerOptimizer.from_value(fields["optimizer"])
        server = fields["server"]
        self._kept = {}
        for key, piece in self.plan.pieces_of(server).items():
            self._kept[key] = KeptPiece(self.policy, piece.elements, how)
        for table in self.plan.tables:
            if table.rows_of(server, self.plan.servers):
                self._kept[f"table {table.name}"] = KeptTable(self.policy, table, server, self.plan.servers, how)

    def _join(self, worker: str) -> None:
        for kept in self._kept.values():
            kept.clocks.join(worker)
        self.members.append(worker)
        self.gathered = self.gathered or len(self.members) >= self.policy.workers

    def _leave(self, worker: str) -> None:
        self.members.remove(worker)
        for kept in self._kept.values():
            kept.clocks.leave(worker)
            kept.complete_rounds(last=not self.members)

    def _push(self, fields: dict[str, Any], tensors: list[Tensor]) -> dict[str, Any]:
        kept = self.kept(fields)
        stale = kept.push(fields["worker"], fields, tensors)
        self.staleness.setdefault(fields["worker"], collections.Counter())[stale] += 1
        kept.complete_rounds()
        return {"staleness": stale}

    def _piece(self, key: Any) -> KeptPiece:
        found = self._kept.get(key)
        if not isinstance(found, KeptPiece):
            raise UnknownShard(f"{key!r} is no piece of this server")
        return found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
