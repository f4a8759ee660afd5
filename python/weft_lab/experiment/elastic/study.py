"""The study of one training through a schedule of faults, and what it has measured."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from pathlib import Path
from typing import Any

from weft_lab.experiment.elastic.faults import Placement, parsed, placed
from weft_lab.experiment.elastic.joining import Joining

__all__ = ["CONTENDERS", "ElasticOutcome", "ElasticStudy", "Event", "Plan", "Target", "Trained", "load"]

CONTENDERS: dict[str, str] = {
    "undisturbed": "weft, without faults",
    "weft": "weft.torch.Recovery, virtual ranks, Overlapped",
    "torchft-undisturbed": "torchft over Gloo, without faults (needs torchft)",
    "torchft": "torchft over Gloo: its Manager, lighthouse and process group (needs torchft)",
}
"""Contenders by name, with descriptions."""
AVERAGED = 20
"""Steps whose losses are averaged."""
_REACHED = 0.9
"""The fixed loss is that of the undisturbed run after this share of its steps."""
_KILL_S, _KILL_BETWEEN_HOSTS_S = 0.1, 0.3
"""The longest time from a kill to the next step, on one host and on several."""
_SLOWDOWN, _LINE_SHARE = 1.05, 0.9
"""While a newcomer receives the state: the others' steps by those before, and the line's use."""


@dataclasses.dataclass(frozen=True)
class ElasticStudy:
    """One training by all contenders."""

    task: str
    hosts: int
    """Emulated; one is this machine."""
    ranks: int
    """At the beginning."""
    gbps: float | None
    samples: int
    """Of a part of a step's batch. Every step has as many parts as there are virtual ranks."""
    steps: int
    every: int
    """Steps from one commit of weft's to the next. torchft commits every step."""
    timeout_s: float
    """After which weft and torchft give up a rank that does not answer."""
    faults: str
    contenders: tuple[str, ...]

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"elastic-{self.task}-{self.hosts}"

    @property
    def title(self) -> str:
        """The network, and where it is trained."""
        line = "" if self.gbps is None else f", {self.gbps:g} Gbit/s"
        where = "one host" if self.hosts == 1 else f"{self.hosts} emulated hosts{line}"
        name = {"language": "language model", "lenet": "LeNet-5", "perceptron": "perceptron"}[self.task]
        return f"{name}, {self.ranks} ranks at first, {where}"

    def placement(self, contender: str) -> Placement:
        """The processes and the faults of a contender."""
        faults = () if contender.endswith("undisturbed") else parsed(self.faults)
        return placed(faults, hosts=self.hosts, ranks=self.ranks, steps=self.steps)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The orders to the processes of one contender's training, as a file."""

    study: ElasticStudy
    contender: str
    directory: Path
    """In memory; all hosts see it."""
    ports: tuple[int, ...]
    """Of the meeting, and of the lobby or lighthouse."""

    def save(self) -> Path:
        """Writes it into the directory."""
        path = self.directory / "plan.json"
        path.write_text(json.dumps({**dataclasses.asdict(self), "directory": str(self.directory)}))
        return path

    @staticmethod
    def load(path: Path) -> Plan:
        """The plan in a file."""
        value = json.loads(path.read_text())
        return Plan(_study(value["study"]), value["contender"], Path(value["directory"]), tuple(value["ports"]))

    @property
    def first(self) -> tuple[str, ...]:
        """The names of the processes that begin the training."""
        return tuple(str(process) for process in range(self.study.ranks))

    def address(self, host: int) -> str:
        """The name of a host, for all others."""
        return "127.0.0.1" if self.study.hosts == 1 else f"host{host}"


@dataclasses.dataclass(frozen=True)
class Event:
    """A fault as it was carried out."""

    fault: str
    kind: str
    at: float
    """In seconds since the training began, as all times."""
    pause: float | None
    """Of a kill the time until those that are left have done a step that none had done before; of
    others the longest time meanwhile without the end of such a step. None if none followed.
    """
    joining: Joining | None = None
    """The costs of a join, if the newcomer has entered."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A whole training of one contender. Lists have an entry for each step, in order."""

    seconds: list[float]
    """When a rank had completed it."""
    parts: list[list[float]]
    """Losses of the parts of the step's batch."""
    ranks: list[tuple[float, int]]
    """How many ranks there were, from which time on."""
    events: list[Event]
    restarts: int
    """Processes that ended because the others had given them up, and were started again."""
    hashes: list[str]
    """The hashes of the final states of all processes that reached the end."""
    recomputed_differently: int
    """Losses that were not the same when a part of a step was computed again."""

    @functools.cached_property
    def averaged(self) -> list[float]:
        """Losses averaged over some steps before."""
        losses = [statistics.fmean(parts) for parts in self.parts]
        return [statistics.fmean(losses[max(0, end - AVERAGED) : end]) for end in range(1, len(losses) + 1)]

    def reached(self, loss: float) -> float | None:
        """When the averaged loss was at most this; None if never."""
        found = (at for at, value in zip(self.seconds, self.averaged, strict=True) if value <= loss)
        return next(found, None)

    def unequal(self, other: Trained) -> int:
        """How many losses differ from those of another training, or are missing."""
        here, there = ([loss for parts in one.parts for loss in parts] for one in (self, other))
        differing = sum(mine != theirs for mine, theirs in zip(here, there, strict=False))
        return differing + abs(len(here) - len(there)) + self.recomputed_differently


@dataclasses.dataclass
class ElasticOutcome:
    """The measurements."""

    study: ElasticStudy
    parameters: int = 0
    trained: dict[str, Trained] = dataclasses.field(default_factory=dict)

    def is_complete(self, contender: str) -> bool:
        """Whether its training came to the end, rather than stopping in a step."""
        return len(self.trained[contender].seconds) == self.study.steps

    @property
    def fixed_loss(self) -> float | None:
        """The loss whose times are compared; None without the undisturbed run."""
        found = self.trained.get("undisturbed")
        if found is None or not self.is_complete("undisturbed"):
            return None
        return found.averaged[round(_REACHED * self.study.steps) - 1]

    def time_to_loss(self, contender: str) -> float | None:
        """Seconds to the fixed loss."""
        loss = self.fixed_loss
        return None if loss is None else self.trained[contender].reached(loss)

    def targets(self) -> list[Target]:
        """The promises of this experiment, as far as they were measured."""
        found = [*self._recovery_targets(), *self._equality_targets(), *self._join_targets()]
        if {"undisturbed", "weft", "torchft"} <= set(self.trained):
            ours, theirs = self.time_to_loss("weft"), self.time_to_loss("torchft")
            text = " and ".join("never" if one is None else f"{one:.2f} s" for one in (ours, theirs))
            met = ours is not None and (theirs is None or ours < theirs)
            found.append(Target("time to the fixed loss below that of torchft over Gloo", text, met))
        return found

    def _recovery_targets(self) -> list[Target]:
        if "weft" not in self.trained:
            return []
        pauses = [event.pause for event in self.trained["weft"].events if event.kind == "kill"]
        if not pauses:
            return []
        limit = _KILL_S if self.study.hosts == 1 else _KILL_BETWEEN_HOSTS_S
        text = ", ".join("never" if one is None else f"{one:.3f} s" for one in pauses)
        met = all(one is not None and one <= limit for one in pauses)
        return [Target(f"from a kill to the next step at most {limit:g} s", text, met)]

    def _join_targets(self) -> list[Target]:
        """Of joins whose state is sent while the others go on."""
        events = self.trained["weft"].events if "weft" in self.trained else []
        joins = [one.joining for one in events if one.joining is not None and one.joining.slowdown is not None]
        if not joins:
            return []
        slowdowns = [one.slowdown or 0.0 for one in joins]
        pauses = [one.pause for one in joins]
        found = [
            Target(
                f"steps while a newcomer receives the state at most {_SLOWDOWN} x those before",
                ", ".join(f"{one:.2f}" for one in slowdowns),
                max(slowdowns) <= _SLOWDOWN,
            ),
            Target(
                "pause at the entry of a newcomer at most one step",
                ", ".join(f"{one:.2f}" for one in pauses),
                max(pauses) <= 1,
            ),
        ]
        line = (self.study.gbps or 0.0) * 1e9 / 8
        shares = [one.bytes_per_s / line for one in joins if one.bytes_per_s is not None and line]
        if shares:
            text = ", ".join(f"{share:.0%}" for share in shares)
            what = f"state arrives at no less than {_LINE_SHARE:.0%} of the newcomer's line"
            found.append(Target(what, text, min(shares) >= _LINE_SHARE))
        return found

    def _equality_targets(self) -> list[Target]:
        if not {"undisturbed", "weft"} <= set(self.trained):
            return []
        ours, alone = self.trained["weft"], self.trained["undisturbed"]
        unequal, left = ours.unequal(alone), ours.ranks[-1][1]
        states = " and ".join(sorted({*ours.hashes})) or "none"
        # One that was stopped when the others ended completes the training alone.
        are_equal = len({*ours.hashes, *alone.hashes}) == 1 and len(ours.hashes) >= left
        return [
            Target(
                "parameters, buffers and optimizer state at the end as undisturbed",
                f"{len(ours.hashes)} ranks have {states}",
                are_equal,
            ),
            Target("every loss as undisturbed", f"{unequal} of {sum(map(len, alone.parts))} differ", unequal == 0),
        ]

    def to_value(self) -> dict[str, Any]:
        """The JSON form: measurements, and results derived from them."""
        value = dataclasses.asdict(self)
        value["fixed_loss"] = self.fixed_loss
        value["time_to_loss"] = {name: self.time_to_loss(name) for name in self.trained}
        value["targets"] = [dataclasses.asdict(one) for one in self.targets()]
        return value


@dataclasses.dataclass(frozen=True)
class Target:
    """A promise, with what was measured."""

    what: str
    found: str
    met: bool


def load(path: Path) -> ElasticOutcome | None:
    """The contents of a file; None if it does not exist."""
    if not path.exists():
        return None
    value = json.loads(path.read_text())
    trained = {name: _trained(one) for name, one in value["trained"].items()}
    return ElasticOutcome(_study(value["study"]), value["parameters"], trained)


def _study(value: dict[str, Any]) -> ElasticStudy:
    return ElasticStudy(**{**value, "contenders": tuple(value["contenders"])})


def _trained(value: dict[str, Any]) -> Trained:
    ranks = [(at, count) for at, count in value["ranks"]]
    return Trained(**{**value, "ranks": ranks, "events": [_event(one) for one in value["events"]]})


def _event(value: dict[str, Any]) -> Event:
    costs = value.get("joining")
    return Event(**{**value, "joining": None if costs is None else Joining(**costs)})
