"""Tables of the elastic experiment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from weft_lab import console
from weft_lab.experiment.elastic.study import CONTENDERS, ElasticOutcome, Trained

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["tables"]

_HASH_LETTERS = 8


def tables(outcome: ElasticOutcome) -> list[Table | str]:
    """A title, a row for each contender, for each fault and for each join, and the targets."""
    study = outcome.study
    size = f"{outcome.parameters / 1e6:.2f} M parameters" if outcome.parameters else "parameters unknown"
    title = f"{study.title}: {size}, batch {4 * study.samples} in 4 parts, {study.steps} steps"
    parts: list[Table | str] = [title, f"faults: {study.faults}", "", _contenders(outcome)]
    faults = _faults(outcome)
    if faults is not None:
        parts += ["", faults]
    joins = _joins(outcome)
    if joins is not None:
        parts += ["", joins]
    targets = [f"{one.what}: {one.found} - {'met' if one.met else 'MISSED'}" for one in outcome.targets()]
    return [*parts, *([""] if targets else []), *targets]


def _contenders(outcome: ElasticOutcome) -> Table:
    loss = outcome.fixed_loss
    to_loss = ">s to the fixed loss" if loss is None else f">s to loss {loss:.3f}"
    about = ("", {"no_wrap": False})
    found = console.new_table("", ">s", to_loss, ">longest pause", ">restarts", "hash", "losses", about)
    alone = outcome.trained.get("undisturbed")
    for name, one in outcome.trained.items():
        reached = outcome.time_to_loss(name)
        found.add_row(
            name,
            _end(outcome, name),
            "" if loss is None else "never" if reached is None else f"{reached:.2f}",
            f"{_longest_pause(one):.2f}",
            str(one.restarts),
            ", ".join(digest[:_HASH_LETTERS] for digest in sorted({*one.hashes})) or "none",
            _equality(one, alone),
            CONTENDERS[name],
        )
    return found


def _end(outcome: ElasticOutcome, name: str) -> str:
    """The whole time, or where the training stopped."""
    seconds = outcome.trained[name].seconds
    if outcome.is_complete(name):
        return f"{seconds[-1]:.2f}"
    return f"stopped in step {len(seconds)}"


def _longest_pause(trained: Trained) -> float:
    return max((other - one for one, other in pairwise(trained.seconds)), default=0.0)


def _equality(trained: Trained, alone: Trained | None) -> str:
    if alone is None or trained is alone:
        return ""
    unequal = trained.unequal(alone)
    return "equal" if unequal == 0 else f"{unequal} differ"


def _faults(outcome: ElasticOutcome) -> Table | None:
    names = [name for name in outcome.trained if not name.endswith("undisturbed")]
    if not names or not outcome.trained[names[0]].events:
        return None
    found = console.new_table("fault", *(f">{name}: pause in s" for name in names))
    pauses = [{event.fault: event.pause for event in outcome.trained[name].events} for name in names]
    for fault in _all_faults(outcome, names):
        cells = [_pause(one, fault) for one in pauses]
        found.add_row(fault, *cells)
    return found


def _joins(outcome: ElasticOutcome) -> Table | None:
    """The costs of each join for the others."""
    costs = ("join", "contender", ">step before in ms", ">meanwhile", ">steps", ">with entry", ">after", ">MB", ">MB/s")
    found = console.new_table(*costs)
    for name, trained in outcome.trained.items():
        for event in trained.events:
            if (one := event.joining) is not None:
                times = (_ms(one.before), _ms(one.meanwhile), str(one.steps), _ms(one.entry), _ms(one.after))
                line = (_millions(one.nbytes), _millions(one.bytes_per_s))
                found.add_row(event.fault, name, *times, *line)
    return found if found.row_count else None


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.0f}"


def _millions(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:.1f}"


def _all_faults(outcome: ElasticOutcome, names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(event.fault for name in names for event in outcome.trained[name].events))


def _pause(pauses: dict[str, float | None], fault: str) -> str:
    if fault not in pauses:
        return "not reached"
    pause = pauses[fault]
    return "no step followed" if pause is None else f"{pause:.3f}"
