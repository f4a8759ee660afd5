"""The state of one piece, or of one table, on a server: values, the optimizer's state, clocks.

With staleness 0, pushes of one round are kept until all members' have arrived, and applied as one:
the average, added in the order of the workers' names, so that the bits do not depend on the order
of arrival. Otherwise each push is applied when it arrives.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any

import torch
from torch import Tensor

from weft.torch.parameter_server import parsing
from weft.torch.parameter_server.clocks import Clocks
from weft.torch.parameter_server.errors import WrongShape
from weft.torch.parameter_server.messages import Message
from weft.torch.parameter_server.optimizer import RowOptimizer, ServerOptimizer, VectorOptimizer
from weft.torch.parameter_server.plan import Table

__all__ = ["Kept", "KeptPiece", "KeptTable", "Policy", "PushFields"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_WHOLE = (torch.int32, torch.int64)


@dataclasses.dataclass(frozen=True)
class Policy:
    """The options that all workers of a job have requested."""

    staleness: int | None = 0
    """How many pushes a worker may be ahead of the slowest; None: any number."""
    workers: int = 1
    """The number of workers that must have joined before the first values are returned."""
    correct: bool = False
    """Whether the learning rate of a push is divided by its staleness if that is more than 1 (Zhang
    et al., "Staleness-aware async-SGD for distributed deep learning", 2016).
    """

    @staticmethod
    def from_value(value: Any) -> Policy:
        """A policy from JSON.

        Raises:
            weft.ArgumentError: It is not a policy.
        """
        names = [field.name for field in dataclasses.fields(Policy)]
        fields = parsing.mapping(value, "policy", names)
        staleness = fields["staleness"]
        return Policy(
            None if staleness is None else parsing.whole(staleness, "staleness"),
            parsing.whole(fields["workers"], "workers", 1),
            parsing.flag(fields["correct"], "correct"),
        )


@dataclasses.dataclass(frozen=True)
class PushFields:
    """The fields of a push besides its gradient."""

    version: int | None = None
    """How many updates the values had that it was computed from; None: all."""
    lr: float | None = None
    """The learning rate, which replaces the optimizer's own."""

    @staticmethod
    def from_value(value: dict[str, Any]) -> PushFields:
        """Parses the fields of a push.

        Raises:
            weft.ArgumentError: They are of other types, or out of range.
        """
        version, rate = value.get("version"), value.get("lr")
        return PushFields(
            None if version is None else parsing.whole(version, "version"),
            None if rate is None else parsing.number(rate, "lr", 0.0),
        )

    def to_value(self) -> dict[str, Any]:
        """The JSON form, without fields that are None."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


_KeptPush = tuple[PushFields, list[Tensor]]
"""A push as `Kept.check` returned it."""


class Kept(abc.ABC):
    """A piece or a table."""

    def __init__(self, policy: Policy, how: ServerOptimizer) -> None:
        self._policy, self._how = policy, how
        self.clocks = Clocks()
        self.version = 0
        """How many updates the values have had."""
        self._rounds: dict[int, dict[str, _KeptPush]] = {}
        """Pushes that wait for those of others, by round and worker."""

    def push(self, worker: str, fields: PushFields, tensors: list[Tensor]) -> int:
        """Takes a checked push of a member; returns its staleness in updates."""
        clock = self.clocks.push(worker)
        stale = 0 if fields.version is None else max(0, self.version - fields.version)
        if self._policy.staleness == 0:
            self._rounds.setdefault(clock, {})[worker] = (fields, tensors)
            return stale
        if tensors:
            factor = 1 / max(1, stale) if self._policy.correct else 1.0
            self._apply([(fields, tensors)], factor)
            self.version += 1
        return stale

    def complete_rounds(self, *, last: bool = False) -> None:
        """Applies the rounds for which all members' pushes have arrived; all without members."""
        slowest = self.clocks.slowest()
        for number in sorted(number for number in self._rounds if last or number <= slowest):
            pushes = self._rounds.pop(number)
            self._apply([pushes[worker] for worker in sorted(pushes)], 1.0)
            self.version += 1

    def to_messages(self) -> list[Message]:
        """The complete state, for a snapshot: the tensors are copies."""
        numbers, tensors = self._state()
        head = {
            "clocks": self.clocks.to_value(),
            "version": self.version,
            "numbers": numbers,
            "names": list(tensors),
            "pending": sum(map(len, self._rounds.values())),
        }
        whole = [self.tensor().flatten(), *(tensor.flatten() for tensor in tensors.values())]
        messages: list[Message] = [(head, [tensor.clone() for tensor in whole])]
        for number, pushes in self._rounds.items():
            for worker, (fields, parts) in pushes.items():
                messages.append(({"round": number, "worker": worker, "push": fields.to_value()}, parts))
        return messages

    def restore(self, messages: list[Message]) -> None:
        """Restores the result of `to_messages`.

        Raises:
            weft.Error: It is malformed.
        """
        (fields, tensors), *pending = messages
        head = parsing.mapping(fields, "kept", ("clocks", "version", "numbers", "names", "pending"))
        self.clocks = Clocks.from_value(head["clocks"])
        self.version = parsing.whole(head["version"], "version")
        names = [parsing.text(name, "names") for name in parsing.items(head["names"], "names")]
        sizes = [(tensor.dtype, tensor.numel()) for tensor in tensors]
        if sizes != [(torch.float32, self.tensor().numel())] * (len(names) + 1):
            raise WrongShape(f"values and state {names} of {sizes}: expected {self.tensor().numel()} float32 each")
        numbers = parsing.mapping(head["numbers"], "numbers")
        numbers = {name: parsing.number(number, name, 0.0) for name, number in numbers.items()}
        self._how.check_state(numbers, names)
        self._take(tensors[0])
        self._restore_state(numbers, dict(zip(names, tensors[1:], strict=True)))
        for push, parts in pending:
            clock, worker = parsing.whole(push.get("round"), "round"), parsing.text(push.get("worker"), "worker")
            self.check_kept(parts)
            waiting = PushFields.from_value(parsing.mapping(push.get("push"), "push"))
            self._rounds.setdefault(clock, {})[worker] = (waiting, parts)

    @abc.abstractmethod
    def check(self, tensors: list[Tensor], *, sparse: bool) -> list[Tensor]:
        """The tensors of a push, in the form to keep.

        Raises:
            WrongShape: They do not fit.
        """

    @abc.abstractmethod
    def check_kept(self, tensors: list[Tensor]) -> None:
        """Raises unless these have the form that `check` returns: from a file, or another server.

        Raises:
            WrongShape: They have another form.
        """

    @abc.abstractmethod
    def _apply(self, pushes: list[_KeptPush], factor: float) -> None:
        """Updates by the average of some pushes, of which some may have no tensors."""

    @abc.abstractmethod
    def tensor(self) -> Tensor:
        """The values themselves."""

    @abc.abstractmethod
    def _take(self, values: Tensor) -> None: ...
    @abc.abstractmethod
    def _state(self) -> tuple[dict[str, float], dict[str, Tensor]]: ...
    @abc.abstractmethod
    def _restore_state(self, numbers: dict[str, float], tensors: dict[str, Tensor]) -> None: ...


class KeptPiece(Kept):
    """A piece of a bucket: a vector."""

    def __init__(self, policy: Policy, elements: int, how: ServerOptimizer) -> None:
        super().__init__(policy, how)
        self.values = torch.zeros(elements, dtype=torch.float32, device="cpu")
        self.has_values = False
        """Whether a worker has sent the first values."""
        self._optimizer = VectorOptimizer(how, self.values)

    def put(self, tensors: list[Tensor]) -> None:
        """Sets the first values."""
        (values,) = self.floats(tensors, 1)
        self._take(values)

    def check(self, tensors: list[Tensor], *, sparse: bool) -> list[Tensor]:
        """A gradient as long as the piece; or, if `sparse`, places and as many values; or none."""
        if not tensors:
            return []
        if not sparse:
            return self.floats(tensors, 1)
        if (
            len(tensors) != 2
            or tensors[0].dtype not in _WHOLE
            or tensors[1].dtype not in _FLOATS
            or tensors[0].numel() != tensors[1].numel()
        ):
            raise WrongShape("a sparse push: expected places (int32) and as many floating-point values")
        places = tensors[0].long()
        if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < self.values.numel():
            raise WrongShape(
                f"a sparse push with places up to {int(places.max())}: the piece has {self.values.numel()}"
            )
        return [torch.zeros_like(self.values).index_add_(0, places, tensors[1].float())]

    def check_kept(self, tensors: list[Tensor]) -> None:
        """A gradient as long as the piece, or none."""
        if tensors and self.floats(tensors, 1)[0] is not tensors[0]:
            raise WrongShape(f"a kept gradient of {tensors[0].dtype}: expected float32")

    def floats(self, tensors: list[Tensor], count: int) -> list[Tensor]:
        """This many vectors as long as the piece, as float32.

        Raises:
            WrongShape: They are not.
        """
        shapes = [(str(tensor.dtype), tensor.numel()) for tensor in tensors]
        if len(tensors) != count or any(
            tensor.numel() != self.values.numel() or tensor.dtype not in _FLOATS for tensor in tensors
        ):
            raise WrongShape(f"tensors {shapes}: expected {count} of {self.values.numel()} floating-point numbers")
        return [tensor.float() for tensor in tensors]

    def _apply(self, pushes: list[_KeptPush], factor: float) -> None:
        gradients = [tensors[0] for _, tensors in pushes if tensors]
        if not gradients:
            return
        total = gradients[0].clone()
        for gradient in gradients[1:]:
            total += gradient
        self._optimizer.step(total.div_(len(pushes)), pushes[-1][0].lr, factor)

    def tensor(self) -> Tensor:
        """The values themselves."""
        return self.values

    def _take(self, values: Tensor) -> None:
        self.values.copy_(values)
        self.has_values = True

    def _state(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        return self._optimizer.state()

    def _restore_state(self, numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        self._optimizer.restore(numbers, tensors)


class KeptTable(Kept):
    """The rows of a table that one server has: row r of the table is its row r // servers."""

    def __init__(self, policy: Policy, table: Table, server: int, servers: int, how: ServerOptimizer) -> None:
        super().__init__(policy, how)
        self._table, self._server, self._servers = table, server, servers
        rows = table.rows_of(server, servers)
        self.values = torch.zeros(rows, table.width, dtype=torch.float32, device="cpu")
        if table.deviation:
            generator = torch.Generator().manual_seed(table.seed * 65537 + server)
            self.values.normal_(0.0, table.deviation, generator=generator)
        self._optimizer = RowOptimizer(how, self.values)

    def rows(self, tensors: list[Tensor]) -> Tensor:
        """The values of the rows with these numbers, for a pull.

        Raises:
            WrongShape: There are other tensors, or this server lacks some of these rows.
        """
        if len(tensors) != 1:
            raise WrongShape(f"{len(tensors)} tensors: expected one, the numbers of rows")
        return self.values[self._own(tensors[0])]

    def check(self, tensors: list[Tensor], *, sparse: bool) -> list[Tensor]:  # noqa: ARG002  # as of pieces
        """Numbers of rows, each once, and a gradient row for each; or nothing."""
        if not tensors:
            return []
        if len(tensors) != 2 or tensors[1].dtype not in _FLOATS:
            raise WrongShape("a push of rows: expected their numbers and floating-point gradients")
        own = self._own(tensors[0])
        self._check_rows(own, tensors[1])
        return [own, tensors[1].float()]

    def check_kept(self, tensors: list[Tensor]) -> None:
        """Places of rows here, each once, and a gradient row for each; or nothing."""
        if not tensors:
            return
        if [tensor.dtype for tensor in tensors] != [torch.int64, torch.float32]:
            raise WrongShape(f"a kept push of {len(tensors)} tensors: expected places and float32 gradients")
        places = tensors[0]
        if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < len(self.values):
            raise WrongShape(f"table {self._table.name!r}: a kept push of rows that are not here")
        self._check_rows(places, tensors[1])

    def _check_rows(self, own: Tensor, gradient: Tensor) -> None:
        if gradient.numel() != own.numel() * self._table.width:
            raise WrongShape(
                f"table {self._table.name!r}: {gradient.numel()} numbers for {own.numel()} rows of {self._table.width}"
            )
        if torch.unique(own).numel() != own.numel():
            raise WrongShape(f"table {self._table.name!r}: a row more than once in one push")

    def _own(self, rows: Tensor) -> Tensor:
        """The places of the rows here."""
        if rows.dtype not in _WHOLE:
            raise WrongShape(f"table {self._table.name!r}: numbers of rows of {rows.dtype}: expected int64")
        rows = rows.long()
        if rows.numel() and not bool(
            ((rows >= 0) & (rows < self._table.rows) & (rows % self._servers == self._server)).all()
        ):
            raise WrongShape(
                f"table {self._table.name!r}: rows that are not of server {self._server} of {self._servers}, or not "
                f"below {self._table.rows}"
            )
        return rows // self._servers

    def _apply(self, pushes: list[_KeptPush], factor: float) -> None:
        parts = [tensors for _, tensors in pushes if tensors]
        if not parts:
            return
        rows, gradient = parts[0][0], parts[0][1].view(-1, self._table.width)
        if len(pushes) > 1:
            rows, places = torch.unique(torch.cat([part[0] for part in parts]), return_inverse=True)
            gradient = torch.zeros(rows.numel(), self._table.width, dtype=torch.float32, device="cpu")
            whole = torch.cat([part[1] for part in parts]).view(-1, self._table.width)
            gradient.index_add_(0, places, whole).div_(len(pushes))
        self._optimizer.step(rows, gradient, pushes[-1][0].lr, factor)

    def tensor(self) -> Tensor:
        """The values themselves."""
        return self.values

    def _take(self, values: Tensor) -> None:
        self.values.copy_(values.view_as(self.values))

    def _state(self) -> tuple[dict[str, float], dict[str, Tensor]]:
        return self._optimizer.state()

    def _restore_state(self, numbers: dict[str, float], tensors: dict[str, Tensor]) -> None:
        self._optimizer.restore(numbers, tensors)
