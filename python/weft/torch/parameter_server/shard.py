"""A server's shard as a deterministic machine: the same inputs in the same order, the same bits.

Its inputs are messages: `plan`, `join`, `leave`, `put`, `push`. These are written to the journal
and sent to a second server, and applying them again gives the same shard, with the numbers of its
pushes. Reading (`values`, `may_read`) changes nothing. No threads, no clock, no files, no network.
"""

from __future__ import annotations

import collections
from typing import Any

from torch import Tensor

from weft.torch.parameter_server.errors import ServerError, StalePlan, UnknownShard
from weft.torch.parameter_server.messages import Message
from weft.torch.parameter_server.parsing import flag, items, mapping, short, text, whole
from weft.torch.parameter_server.plan import ShardPlan
from weft.torch.parameter_server.requests import Input, Job, Membership, Pull, Push, Put, parse_input
from weft.torch.parameter_server.state import Kept, KeptPiece, KeptTable, Policy

__all__ = ["Shard"]

_WORKERS_COUNTED = 1024
"""The number of workers whose staleness is counted: those that have pushed last."""


class Shard:
    """The part of a model that one server keeps."""

    def __init__(self, bytes_max: int) -> None:
        """Makes an empty shard, of at most this many bytes of values."""
        self._bytes_max = bytes_max
        self.job: dict[str, Any] | None = None
        """The workers' job: the fields of `plan`."""
        self.plan = ShardPlan(1, ())
        self.policy = Policy()
        self.members: list[str] = []
        self.gathered = False
        """Whether the required number of workers has been connected together."""
        self.staleness: dict[str, collections.Counter[int]] = {}
        """By worker, how many pushes had each staleness, since this process began; the one that
        pushed last is last.
        """
        self.repeated = 0
        """How many pushes had been applied before."""
        self._kept: dict[str, Kept] = {}

    # Inputs.

    def apply(self, message: Message) -> dict[str, Any]:
        """Applies an input that `prepare` has returned; returns the answer to the worker."""
        fields, tensors = message
        return self._take_in(parse_input(fields), tensors)

    def prepare(self, message: Message) -> Message | None:
        """Checks an input and returns it in the form to keep. None: it was applied before.

        Raises:
            ServerError: The request is refused.
        """
        fields, tensors = message
        request = parse_input(fields)
        match request:
            case Job():
                tensors = []
                is_new = self._is_new_job(request)
            case Membership():
                if self.job is None:
                    raise ServerError(f"worker {request.worker} joins before there is a plan")
                tensors = []
                is_new = (request.worker in self.members) == (request.kind == "leave")
            case Put():
                piece = self._piece(request.key)
                is_new = not piece.has_values
                tensors = piece.floats(tensors, 1) if is_new else []
            case Push():
                is_new = self._is_new_push(request)
                tensors = self.kept(request.key).check(tensors, sparse=request.sparse) if is_new else []
        return (request.fields, tensors) if is_new else None

    def admit(self, message: Message) -> dict[str, Any]:
        """Applies an input that `prepare` returned earlier, from a file or another server.

        Raises:
            ServerError: It is malformed, or does not follow from the present state.
        """
        self.check_admitted(message)
        return self.apply(message)

    def check_admitted(self, message: Message) -> None:
        """The checks of `admit`."""
        fields, tensors = message
        request = parse_input(fields)
        if isinstance(request, Push):
            self.kept(request.key).check_kept(tensors)
            is_new = self._is_new_push(request)
        else:
            is_new = self.prepare(message) is not None
        if not is_new:
            raise ServerError(f"an input that was applied before: {short(fields)}")

    # Reading.

    def kept(self, key: str) -> Kept:
        """The piece or table that a request names.

        Raises:
            UnknownShard: This server does not have it.
        """
        found = self._kept.get(key)
        if found is None:
            raise UnknownShard(f"{short(key)}: this server has {', '.join(list(self._kept)[:8]) or 'nothing yet'} ...")
        return found

    @property
    def has_values(self) -> bool:
        """Whether all pieces have their first values."""
        return self.job is not None and all(
            kept.has_values for kept in self._kept.values() if isinstance(kept, KeptPiece)
        )

    def may_read(self, worker: str, pull: Pull) -> bool:
        """Whether a worker may have the requested values now."""
        if not (self.gathered and self.has_values):
            return False
        return self.kept(pull.key).clocks.may_read(worker, pull.number, self.policy.staleness)

    def values(self, pull: Pull, tensors: list[Tensor]) -> Message:
        """A copy of the requested values, in the requested type."""
        kept = self.kept(pull.key)
        values = kept.rows(tensors) if isinstance(kept, KeptTable) else kept.tensor()
        return {"version": kept.version}, [values.flatten().to(pull.dtype, copy=True)]

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

    # The complete state.

    def to_messages(self) -> list[Message]:
        """A copy of everything, for a snapshot or a second server."""
        if self.job is None:
            return []
        messages: list[Message] = [
            (dict(self.job), []),
            ({"kind": "members", "members": list(self.members), "gathered": self.gathered}, []),
        ]
        for key, kept in self._kept.items():
            whole = kept.to_messages()
            has_values = not isinstance(kept, KeptPiece) or kept.has_values
            messages.append(({"kind": "kept", "key": key, "count": len(whole), "has_values": has_values}, []))
            messages += whole
        return messages

    @staticmethod
    def of_messages(messages: list[Message], bytes_max: int) -> Shard:
        """Parses the result of `to_messages`.

        Raises:
            weft.Error: It is not a shard.
        """
        shard = Shard(bytes_max)
        if messages:
            first = parse_input(messages[0][0])
            if not isinstance(first, Job) or len(messages) < 2:
                raise ServerError(f"a shard that begins with {short(messages[0][0])}")
            shard._is_new_job(first)
            shard._begin(first)
            shard._restore(messages[1][0], messages[2:])
        return shard

    def _restore(self, members: dict[str, Any], messages: list[Message]) -> None:
        head = mapping(members, "members", ("kind", "members", "gathered"))
        self.members = [text(worker, "members") for worker in items(head["members"], "members")]
        self.gathered = flag(head["gathered"], "gathered")
        restored: set[str] = set()
        place = 0
        while place < len(messages):
            head = mapping(messages[place][0], "kept", ("kind", "key", "count", "has_values"))
            key, count = text(head["key"], "key"), whole(head["count"], "count", 1, len(messages) - place - 1)
            kept = self.kept(key)
            kept.restore(messages[place + 1 : place + 1 + count])
            if isinstance(kept, KeptPiece):
                kept.has_values = flag(head["has_values"], "has_values")
            if kept.clocks.members != set(self.members):
                raise ServerError(f"{key}: the clocks are not those of the members")
            restored.add(key)
            place += 1 + count
        if restored != set(self._kept) or len(set(self.members)) != len(self.members):
            raise ServerError(f"a shard without {short(sorted(set(self._kept) - restored))}, or with a member twice")

    # Implementation of the above.

    def _is_new_job(self, job: Job) -> bool:
        if self.job is not None:
            for name in ("plan", "server", "optimizer", "policy"):
                if job.fields[name] != self.job[name]:
                    raise StalePlan(
                        f"the worker's {name} is not that of the server, which has {short(self.job[name])}, now "
                        f"{short(job.fields[name])}: all workers need the same model, options and list of servers; "
                        "for another job start the server with another directory"
                    )
            return False
        if (wanted := job.plan.server_bytes()[job.server]) > self._bytes_max:
            raise ServerError(f"the shard has {wanted} bytes: this server keeps at most {self._bytes_max}")
        return True

    def _is_new_push(self, push: Push) -> bool:
        kept = self.kept(push.key)
        if push.worker not in self.members:
            raise ServerError(f"worker {push.worker} is not a member: it has to join first")
        if kept.clocks.is_repeated(push.worker, push.number):
            self.repeated += 1
            return False
        return True

    def _take_in(self, request: Input, tensors: list[Tensor]) -> dict[str, Any]:
        match request:
            case Job():
                self._begin(request)
            case Membership(kind="join"):
                self._join(request.worker)
            case Membership():
                self._leave(request.worker)
            case Put():
                self._piece(request.key).put(tensors)
            case Push():
                return self._push(request, tensors)
        return {}

    def _begin(self, job: Job) -> None:
        self.job, self.plan, self.policy = job.fields, job.plan, job.policy
        self._kept = {}
        for key, piece in self.plan.pieces_of(job.server).items():
            self._kept[key] = KeptPiece(self.policy, piece.elements, job.optimizer)
        for table in self.plan.tables:
            if table.rows_of(job.server, self.plan.servers):
                self._kept[f"table {table.name}"] = KeptTable(
                    self.policy, table, job.server, self.plan.servers, job.optimizer
                )

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

    def _push(self, push: Push, tensors: list[Tensor]) -> dict[str, Any]:
        kept = self.kept(push.key)
        stale = kept.push(push.worker, push.push, tensors)
        counts = self.staleness.pop(push.worker, collections.Counter())
        counts[stale] += 1
        self.staleness[push.worker] = counts
        if len(self.staleness) > _WORKERS_COUNTED:
            del self.staleness[next(iter(self.staleness))]
        kept.complete_rounds()
        return {"staleness": stale}

    def _piece(self, key: str) -> KeptPiece:
        found = self._kept.get(key)
        if not isinstance(found, KeptPiece):
            raise UnknownShard(f"{short(key)} is not a piece of this server")
        return found
