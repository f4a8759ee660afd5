"""The states that a training can return to.

[Note: Committed steps] A step is *prepared* on a rank when its state is complete there: all
averages have ended, all updates are done, `commit` was called, and divided state is where it will
be kept (see [Note: Kept shares]). Then the ranks meet; a rank that has passed this meeting copies
the state, and the step is *committed* there. So no rank copies before all have prepared, and the
last prepared step of any rank is at most one commit ahead of the last committed step of any other.

When the group breaks, the survivors take their lowest prepared step, S. A rank that has prepared S
and nothing since has not changed its state since, or has kept it: the state of S is there, or in
the copy. A rank that has prepared the next step has not copied it, since some survivor has not
prepared it: its copy is that of S. So one copy is enough. This also holds if another rank dies
meanwhile: all ranks that took S have prepared S now, so later agreements find S too.

[Note: Late copies] Where `weft.torch.Overlapped` makes all updates, a commit waits for nothing. The
ranks meet on their communication threads, each when it has all averages: a step is prepared on a
rank from then on, since nothing can keep it from carrying out its updates. Parameters and their
optimizer state are not copied at the commit but before an update changes them, and not even then if
the meeting has passed: the step that the update completes is the committed one, and its state is
what is in memory. A rank that has all averages waits for the meeting as long as the copy would
take. So copies are made while a rank waits for a slow network anyway, and else hardly ever. The
rest of the state, which changes elsewhere too, is copied at each commit.

An update of the next step waits for the meeting, which has passed long since: all ranks have voted
before its averages can end. A change of parameters by the program between a commit and the next
update is found by their versions; before anything relies on these, two commits copy everything.
After such a change everything is copied at each commit.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from weft.errors import ConfigError, Error
from weft.output.logs import LOGGER
from weft.torch.modes import Mode
from weft.torch.parallel.announced import watch_updates
from weft.torch.parallel.data_parallel import DataParallel
from weft.torch.parallel.virtual.sums import PartSums
from weft.torch.recovery.ahead import Ahead, AheadSender
from weft.torch.recovery.copies import Copy, OptimizerCopy, RandomNumbers, copy_of
from weft.torch.recovery.entrance import Entrance
from weft.torch.recovery.late import LateCopies
from weft.torch.recovery.vote import Vote

__all__ = ["NO_STATE", "States", "check_steps"]

NO_STATE = -1
"""The step of a rank that has no state yet."""
_WHOLE_COMMITS_MIN = 2
"""Those before one copies late."""


class States:
    """The kept state of a training on this rank."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._copies: list[Copy] = [*map(copy_of, parts), RandomNumbers()]
        self.optimizers = [one for one in self._copies if isinstance(one, OptimizerCopy)]
        self.prepared = self.committed = NO_STATE
        """The last prepared and the last committed step."""
        self.answers: Tensor | None = None
        """The rows of all ranks in the last vote that nobody waited for."""
        self._has_mode = any(isinstance(part, Mode) for part in parts)
        self._vote: Vote | None = None
        self._is_whole = True
        """Whether the copies hold all of the committed state."""
        self._whole_commits = 0
        """How many commits have copied everything, and noted versions."""
        self._trusts_versions = True
        self._changed = ""
        """A parameter whose committed values the program has changed before they were copied."""
        self._lock = threading.RLock()
        self._late = [LateCopies(one, self._copies, self) for one in self.optimizers]
        self.ahead: Ahead | None = None
        """State for newcomers, in a training that takes in some."""
        self._senders: list[AheadSender] = []

    @property
    def nbytes(self) -> int:
        """The bytes of the copies."""
        return sum(one.nbytes for one in self._copies)

    def content(self) -> list[Any]:
        """The committed state, as newcomers receive it."""
        return [one.content() for one in self._copies]

    def present_content(self) -> list[Any]:
        """The same of the present state, on a rank that has no committed one."""
        for one in self._copies:
            one.take()
        return self.content()

    def replace(self, content: Sequence[Any], step: int) -> None:
        """Takes the committed state of another rank."""
        for one, part in zip(self._copies, content, strict=True):
            one.replace(part)
        self.prepared = self.committed = step

    def keep(self) -> None:
        """Copies the prepared state, in place, which is the committed one from now on."""
        for one in self._copies:
            one.take()
        self.committed = self.prepared
        self._is_whole, self._changed = True, ""
        for late in self._late:
            late.reset()

    def forget(self) -> None:
        """Makes this rank one that has no state yet: the others continue without it."""
        self._vote, self.answers = None, None
        self.prepared = self.committed = NO_STATE
        self._is_whole, self._changed = True, ""
        for one in self.optimizers:
            one.shares.forget()

    def put_back(self, step: int) -> None:
        """Returns to a step that was agreed on."""
        if step != self.committed:  # prepared, and nothing since
            self.keep()
        for one in self._copies:
            one.put_back()
        for late in self._late:
            late.reset()
        self.prepared, self.answers = step, None

    # Late copies.

    def can_be_late(self, models: Sequence[DataParallel]) -> bool:
        """Whether commits need not wait. The same on all ranks."""
        return dist.get_world_size() > 1 and self._are_announced(models)

    def _are_announced(self, models: Sequence[DataParallel]) -> bool:
        """Whether all updates are those of `Overlapped`, with exact averages."""
        if self._has_mode or not models:
            return False
        if not all(_is_exact(model) for model in models):
            return False
        deferred = {id(optimizer) for model in models for optimizer in model._reducer.deferred}
        return all(id(one.optimizer) in deferred for one in self.optimizers)

    def commit_late(self, models: Sequence[DataParallel], row: Sequence[int]) -> None:
        """Commits a step by a vote on the communication thread. Every rank calls it.

        `row` is for the others: the step, and what else they must know.

        Raises:
            weft.Error: Communication has failed.
        """
        for late in self._late:
            late.check()
        is_late = self._trusts_versions and self._whole_commits >= _WHOLE_COMMITS_MIN
        is_late = is_late and all(late.is_possible for late in self._late)
        self._vote = Vote(models, row, is_late=is_late)
        if not is_late:
            for model in models:
                model.flush()
            self.end_vote()
            self.keep()
            self._whole_commits += 1
        pending = {id(parameter) for model in models for parameter in _pending(model)}
        if self.ahead is not None:
            self.ahead.begin(pending)
        for late in self._late:
            late.begin(pending)
            watch_updates(late.optimizer, late)
        if is_late:
            covered = {id(one) for late in self._late for one in late.parameters}
            with _unwatched(models):
                for copy in self._copies:
                    copy.take_rest(covered)

    def end_vote(self) -> None:
        """Waits for the vote on the last commit, if it has not ended.

        Raises:
            weft.Error: Communication has failed.
            weft.ConfigError: The ranks commit different steps.
        """
        with self._lock:
            if self._vote is None:
                return
            vote, rows = self._vote, self._vote.rows()
            check_steps(rows, vote.step)
            self._vote, self.answers = None, rows
            self.prepared = vote.step
            if vote.is_late:
                self._promote()

    def is_voting(self, seconds: float) -> bool:
        """Whether the last commit is still voted on, when it was waited for that long."""
        with self._lock:
            if self._vote is not None and self._vote.passes(seconds):
                self.end_vote()
            return self._vote is not None

    @property
    def is_whole(self) -> bool:
        """Whether the copies hold all of the committed state."""
        return self._is_whole

    def changed_by_program(self, name: str) -> None:
        """Notes that the program has changed a parameter, or its state, after a commit."""
        LOGGER.info("the program changes %s between commit and update: each commit copies everything", name)
        self._trusts_versions = False
        if not self._is_whole:
            self._changed = name

    def send_ahead(self, optimizer: Optimizer, groups: Sequence[Mapping[str, Any]]) -> None:
        """See `Commits`."""
        if self.ahead is not None:
            self.ahead.before_update(optimizer, groups)

    def settle(self, models: Sequence[DataParallel]) -> None:
        """After a failure: carries out the updates that can be, and finds out what is prepared.

        The models' wrappers end, and leave the parameters unchanged.
        """
        vote = self._vote
        if vote is not None:
            vote.give_up()
        flushed = True
        for model in models:
            try:
                model._reducer.flush()
            except Error:
                flushed = False
        with contextlib.suppress(Error):
            self.end_vote()
        complete = not self._is_pending if vote is not None and vote.is_late else flushed
        if vote is not None and vote is self._vote and complete:
            self.prepared = vote.step
        for model in models:
            try:
                model.unwrap()
            except Error:  # the first to notice: pending updates are dropped
                model.unwrap()

    def resolve(self, step: int) -> None:
        """Completes the copy of a step that was agreed on, if parameters were to be copied late.

        Raises:
            weft.Error: Committed values are lost.
        """
        vote, self._vote = self._vote, None
        is_late = vote is not None and vote.is_late
        if self._is_whole and not is_late:
            return
        if is_late and step == self.prepared != self.committed:
            self._promote()
        elif not is_late and self._is_pending:
            raise Error(f"updates of step {step} could not be carried out on this rank")
        self.prepared = self.committed
        if not self._is_whole:
            for late in self._late:
                late.complete()
            self._is_whole = True
        if self._changed:
            raise Error(
                f"the program has changed {self._changed} between a commit and the next update, so this rank cannot "
                "return to that commit: make such changes before commit()"
            )

    def end(self) -> None:
        """Ends the vote on the last commit, and watches updates no more.

        Raises:
            weft.Error: Communication has failed.
        """
        self.end_vote()
        self.end_ahead(in_order=False)
        for late in self._late:
            watch_updates(late.optimizer, None)

    def begin_ahead(self, entrance: Entrance, timeout: timedelta) -> None:
        """Prepares to send newcomers the state in this group: see [Note: State ahead]."""
        optimizers = [one.optimizer for one in self.optimizers]
        self.ahead = Ahead(optimizers, lambda: self.nbytes, entrance, timeout.total_seconds())
        self._senders = [AheadSender(self.ahead, optimizer) for optimizer in optimizers]

    def entering(
        self, models: Sequence[DataParallel], waiting: Callable[[Collection[int]], Sequence[int]]
    ) -> list[int]:
        """The newcomers that a commit that waits takes in; a rank alone sends its state ahead."""
        if self.ahead is None:
            return []
        if dist.get_world_size() > 1 or not self._are_announced(models):
            return self.ahead.entering(waiting)
        for sender in self._senders:
            watch_updates(sender.optimizer, sender)
        return self.ahead.entering_alone(waiting)

    def end_ahead(self, *, in_order: bool) -> None:
        """Sends newcomers no more: see `Ahead.end`."""
        if self.ahead is not None:
            self.ahead.end(in_order=in_order)

    @property
    def _is_pending(self) -> bool:
        return any(late.is_pending for late in self._late)

    def _promote(self) -> None:
        for one in self._copies:
            one.promote()
        for late in self._late:
            late.forget()
        self.committed = self.prepared
        self._is_whole, self._changed = False, ""


def check_steps(rows: Any, step: int) -> None:
    """Raises `weft.ConfigError` if the first numbers of the ranks' rows are not this step."""
    if (rows[:, 0] != step).any():
        raise ConfigError(f"ranks commit different steps: {rows[:, 0].tolist()}, by rank")


def _is_exact(model: DataParallel) -> bool:
    """Whether all averages are operations that a thread can wait for."""
    reducer, mode = model._reducer, model._mode
    if reducer.divided or model._on_device or any(bucket.planned.rows for bucket in reducer.buckets):
        return False
    return mode is None or isinstance(mode, PartSums)


def _pending(model: DataParallel) -> Iterator[Tensor]:
    """The parameters of a model whose updates of the last step are still to come."""
    for bucket in model._reducer.buckets:
        if bucket.updates:
            yield from (slot.parameter for slot in bucket.slots if slot.is_taken)


@contextlib.contextmanager
def _unwatched(models: Sequence[DataParallel]) -> Iterator[None]:
    """A block in which parameters are looked up without carrying out updates."""
    reducers = [model._reducer for model in models if model._reducer.watching]
    for reducer in reducers:
        reducer.watching = False
    try:
        yield
    finally:
        for reducer in reducers:
            reducer.watching = True
