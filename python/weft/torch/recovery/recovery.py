"""Training whose ranks die, leave and join: kept states, and the state that each continues from.

[Note: Planned changes] Newcomers are taken in, and ranks leave, right after a commit: the step is
the same on all ranks, and nothing is computed again. Else it is what happens after a death: the
ranks of the next group agree on the step, those without a state receive it, and `train` is called
again. So a newcomer that dies while it is taken in is one more death.

[Note: Latest members] Few that are left may go on where all others have ended: after the agreement,
that is no more than half of a group. But a rank that was stopped may have been given up before, the
others may have taken in newcomers, and ended since; then it is the newcomers that go on. So
memberships are numbered, each one higher than all that its ranks have known, and lobbies declare
theirs. Few that are left look for a lobby with a higher number than that of the membership that
they knew, and join it. They need not look if they were in touch with all others just before: nobody
can have given them up.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import torch.distributed as dist

from weft import config
from weft.api.group import Group
from weft.bootstrap import endpoints
from weft.bootstrap.stores import rendezvous
from weft.errors import ArgumentError, ConfigError, Error, Timeout
from weft.output.logs import LOGGER
from weft.torch.lookup import group_of
from weft.torch.parallel.communication import Communication
from weft.torch.parallel.data_parallel import DataParallel, living_models
from weft.torch.parallel.virtual.continued import fewest_virtual_ranks
from weft.torch.recovery import description
from weft.torch.recovery.entrance import Entrance
from weft.torch.recovery.failures import FAILURES, StateLost, Superseded, failure_in
from weft.torch.recovery.garbage import older_objects_frozen
from weft.torch.recovery.lobby import addresses_in
from weft.torch.recovery.members import Change, led_by, meet_newcomers, sigterm_noted
from weft.torch.recovery.states import NO_STATE, States, check_steps
from weft.torch.recovery.transfer import transferred
from weft.torch.survivors import check_default_group, default_timeout, meeting_of, replace_default_group

__all__ = ["Recovery"]

T = TypeVar("T")

_ROOM_MAX = 64
"""The most newcomers that are taken in at once."""
_PATIENCE = 4
"""Which part of a timeout a commit may wait for those that are taken in: as others wait for it."""
_FAILED_ENTRIES_MAX = 3
"""After how many newcomers in a row, with which the program fails, no more are taken in."""


class Recovery:
    """Training that continues with the surviving ranks when others die, and takes in new ones.

    It keeps a copy of the last committed state of models, optimizers and other objects with
    `state_dict`. When a rank dies, the survivors restore it, make a default process group of their
    own, and compute the later steps again. `run` calls a function for this, again after each
    change of the ranks: make objects that depend on ranks there.

    With a lobby, processes that are started later are taken in after a commit, and receive the
    state from the others. A rank that receives SIGTERM leaves after the next commit but one at
    the latest.

    Every rank of the default process group, over weft, makes one with the same parts and options.

    Attributes:
        step: The number of completed steps. Set it before `run` to continue from a checkpoint.
        recoveries: How often this rank has returned to a committed step.
    """

    def __init__(
        self,
        *parts: Any,
        every: int = 1,
        ranks_min: int = 1,
        ranks_max: int | None = None,
        lobby: str | None = None,
        version: str = "",
    ) -> None:
        """Describes the state of training.

        Args:
            parts: Plain models and optimizers, and other objects with `state_dict` and
                `load_state_dict`: schedulers, a `GradScaler`, a `weft.torch.modes.Mode`. The states
                of the random number generators of torch (CPU), NumPy and Python are kept as well.
            every: Steps from one committed step to the next, and so the most that are computed
                again; one commit more where all optimizers are in `weft.torch.Overlapped`, whose
                commits do not wait. A commit copies all parts, or those that updates change, when
                they do.
            ranks_min: With fewer survivors, `run` raises an error; with a lobby, fewer ranks do not
                begin a training, but look for one.
            ranks_max: With as many ranks, newcomers wait; without it, all are taken in, up to the
                number of virtual ranks if the model has them.
            lobby: Where newcomers are taken in: addresses as `host:port`, with commas between, of
                some or all hosts, in the forms of WEFT_LOBBY, which is the default. The same on all
                processes.
            version: A text that newcomers must have too, such as the options of the program.

        Raises:
            weft.ArgumentError: An option is not allowed, or a part has no state or is wrapped.
            weft.UnsupportedError: A model is sharded.
        """
        for name, value in (("every", every), ("ranks_min", ranks_min), ("ranks_max", ranks_max)):
            if value is not None and value < 1:
                raise ArgumentError(f"{name}={value} is not allowed: expected a number of at least 1")
        if ranks_max is not None and ranks_max < ranks_min:
            raise ArgumentError(f"ranks_max={ranks_max} is not allowed: expected at least ranks_min={ranks_min}")
        if not parts:
            raise ArgumentError("no parts: expected the model, the optimizer, and other objects that training changes")
        lobby = config.load().lobby if lobby is None else lobby
        self.step = 0
        self.recoveries = 0
        self._every = every
        self._ranks_min = ranks_min
        self._ranks_max = ranks_max
        self._leaves = threading.Event()
        self._states = States(parts)
        own = description.of(parts, every, version)
        self._entrance = None if lobby is None else Entrance(addresses_in(lobby), own, self._states)
        self._route = None if self._entrance is None else self._entrance.route
        """The address whose interface the process's endpoint uses."""
        self._tried = -1, 0, 0
        """The committed step and the number of ranks with which the last recovery continued, and
        the step that had been reached before it.
        """
        self._shrinking: Group | None = None
        """The group that has too few survivors, or where too few were found in time."""
        self._ranks_before: int | None = None
        """The number of ranks before newcomers were taken in, until a step with them is done."""
        self._failed_entries = 0
        self._membership = 0
        """The number of the present one: see [Note: Latest members]."""
        self._later_from = 0
        """The lowest number of a later one: the same, until all ranks are known to be there."""
        self._is_superseded = False
        self._times = time.monotonic(), time.monotonic()
        """When it was in touch with all others for certain, and when its last commit began."""
        self._others: WeakSet[DataParallel] = WeakSet()
        """Models that existed before `run`, and whose failures are not those of `train`."""

    @property
    def nbytes(self) -> int:
        """The bytes of the copies on this rank."""
        return self._states.nbytes

    @property
    def committed(self) -> int:
        """The last step that is known to be committed; `step`, or up to two commits before it."""
        return self._states.committed

    def run(self, train: Callable[[Recovery], T]) -> T:
        """Calls a function until it returns without a change of ranks, and returns its result.

        `train` wraps the models for the default process group, looks up rank and size, and computes
        steps from `step` on, with a `commit` after each. After a death it is called again, on fewer
        ranks, and after newcomers on more. It must keep nothing of the group anywhere else.

        With a lobby, `run` makes the default process group if there is none: of the ranks that the
        launcher has started, or by joining the training that runs.

        Raises:
            weft.ConfigError: There is no default process group over weft, or the training that runs
                refuses this process; the error says why.
            weft.Error: Fewer than `ranks_min` ranks survive; the same step has failed again on the
                same ranks; or the others have given up this rank, and it finds no lobby in which it
                could join them again.
            SystemExit: This rank has left, after SIGTERM; the status is 0.
        """
        self._begin()
        with sigterm_noted() as self._leaves:
            self._others.update(living_models())
            while True:
                if self._entrance is not None:
                    self._entrance.serve(self._membership)
                    self._entrance.stand(self._membership, group_of().hosts)
                    self._states.begin_ahead(self._entrance, default_timeout())
                with older_objects_frozen():
                    try:
                        result = train(self)
                        self._end()
                        return result
                    except Exception as error:
                        planned = error.with_traceback(None) if isinstance(error, Change) else None
                        self._states.end_ahead(in_order=planned is not None)
                        failure = None if planned is not None else failure_in(error) or self._without_newcomers(error)
                        if planned is None and failure is None:
                            raise
                        self._states.settle(self._models())
                    # The error's frames have gone with what `train` has made of the group: DDP's
                    # hooks on the parameters end when it is collected.
                    gc.collect()
                try:
                    if planned is not None:
                        self._change(planned)
                    elif failure is not None:
                        self._recover(failure)
                except (*FAILURES, Superseded) as error:
                    self._enter_again(error)

    def _begin(self) -> None:
        """Makes the first group, or enters that of the training that runs."""
        if self._entrance is not None:
            self._entrance.begin(self._settle, self._ranks_min)
        check_default_group()
        if self._route is None:
            self._route = rendezvous(dist.group.WORLD.get_group_store())  # type: ignore[union-attr]
        if self._states.prepared == NO_STATE:
            self._states.prepared = self.step
            self._states.keep()

    def _end(self) -> None:
        self._states.end()
        if self._states.committed != self.step:
            self._commit_at_once(changes=False)
        for model in self._models():
            model.flush()
        self._close_lobby()

    def _close_lobby(self, *, has_ended: bool = True) -> None:
        if self._entrance is not None:
            self._entrance.close(has_ended=has_ended)

    def commit(self) -> None:
        """Ends a step, on every rank; every `every` steps all agree that it is done, and keep it.

        Change parameters and optimizer states before it, not between it and the next update: such
        changes make each commit copy everything, and the first may end the training on a rank that
        has to go back to the commit before it.

        Raises:
            weft.Error: Communication has failed. Let it pass: `run` handles it.
        """
        self.step += 1
        self._later_from = self._membership + 1
        if self._ranks_before is not None:
            self._ranks_before, self._failed_entries = None, 0
        if self.step % self._every == 0:
            self._commit()

    def _commit(self) -> None:
        """See [Note: Committed steps] and [Note: Late copies]."""
        self._states.end_vote()
        self._times = self._times[1], time.monotonic()
        answers, self._states.answers = self._states.answers, None
        models = self._models()
        if (answers is not None and answers[:, 1:3].any()) or not self._states.can_be_late(models):
            self._commit_at_once(changes=True)
            return
        row = [self.step, self._leaves.is_set()]
        if self._states.ahead is not None:
            row += self._states.ahead.vote(
                None if answers is None else answers.tolist(), lambda: self._waiting(dist.get_world_size())
            )
        self._states.commit_late(models, row)

    def _commit_at_once(self, *, changes: bool) -> None:
        """Commits the step before anything else; see [Note: Planned changes] for `changes`."""
        models = self._models()
        for model in models:
            model.flush()
        divided = {one.inner: one for model in models for one in model._reducer.divided}
        for kept in self._states.optimizers:
            kept.prepare(divided.get(kept.optimizer))
        self._states.prepared = self.step
        group = group_of()
        newcomers = self._states.entering(models, partial(self._waiting, group.size)) if changes else []
        own = np.array([self.step, len(newcomers), self._leaves.is_set()])
        rows = group.all_gather(own).reshape(group.size, own.size)
        check_steps(rows, self.step)
        self._states.keep()
        leaving = np.flatnonzero(rows[:, 2]).tolist()
        if changes and (leaving or rows[:, 1].any()):
            has_newcomers = bool(rows[:, 1].any()) and not leaving
            raise Change(newcomers, has_newcomers=has_newcomers, leaving=leaving)

    def _waiting(self, ranks: int, awaited: Collection[int] = ()) -> list[int]:
        """The newcomers for which rank 0 has room, by their numbers: see `Desk.ready`."""
        assert self._entrance is not None, "newcomers wait in a lobby"
        limits = (_ROOM_MAX + ranks, self._ranks_max, fewest_virtual_ranks())
        room = min(limit for limit in limits if limit is not None) - ranks
        return self._entrance.ready(room, awaited, default_timeout().total_seconds() / _PATIENCE)

    def _models(self) -> list[DataParallel]:
        """The models that `train` has made."""
        return [model for model in living_models() if model not in self._others]

    def _recover(self, failure: str) -> None:
        """Makes a group of the survivors, and returns to the last step that all have prepared."""
        group = group_of()
        LOGGER.warning("in step %d: %s. Looking for survivors", self.step, failure)
        Communication(None).abort(failure)  # nobody waits for this rank
        timeout = default_timeout()
        self._settle(self._shrunk(group, timeout), timeout, failure)
        self.recoveries += 1

    def _enter_again(self, error: Error) -> None:
        """Joins the others, which have given up this rank or have the quorum, as a newcomer."""
        LOGGER.warning("after step %d: %s. Looking for the others, or their lobby", self.step, error)
        self._close_lobby(has_ended=False)
        self._is_superseded = False
        find_again = partial(self._find_again, str(error))
        if self._entrance is None or not self._entrance.come_back(self._settle, find_again):
            raise error
        self.recoveries += 1

    def _find_again(self, failure: str) -> bool:
        """Looks once more for the others in the group in which too few were found."""
        with contextlib.suppress(*FAILURES, ConfigError, Superseded):  # if they were found, and not reached
            if self._shrinking is not None:
                timeout = default_timeout()
                self._settle(self._shrunk(self._shrinking, timeout), timeout, failure)
                return True
        return False

    def _without_newcomers(self, error: Exception) -> str | None:
        """Lets the members go on alone, where `train` fails with newcomers; None if there are none.

        Such as newcomers with other options of the model. They raise the error. If all newcomers
        fail, as where a model is shared by the ranks of one host, they take in no more. Returns
        what has failed.
        """
        if self._ranks_before is None:
            return None
        self._failed_entries += 1
        LOGGER.warning("the program fails with newcomers: %d ranks go on without them", self._ranks_before)
        if self._failed_entries >= _FAILED_ENTRIES_MAX:
            LOGGER.warning("no more than %d ranks from now on, as the program fails with more", self._ranks_before)
            self._ranks_max = self._ranks_before
        return f"{type(error).__name__}: {error}"

    def _shrunk(self, group: Group, timeout: timedelta) -> Group:
        """The group of the survivors. Where too few were found, there may be enough later."""
        self._shrinking = None
        try:
            left = group.shrink()
        except Timeout:
            self._shrinking = group
            raise
        self._look_for_later(group, left, timeout)
        return left

    def _look_for_later(self, before: Group, left: Group, timeout: timedelta) -> None:
        """See [Note: Latest members]."""
        touched = time.monotonic() - self._times[0]
        # A silent rank is given up after half of the time that a group has to shrink.
        patience = min(timeout.total_seconds() / 2, config.load().peer_timeout)
        self._is_superseded |= (
            self._entrance is not None
            and 2 * left.size <= before.size
            and touched > patience
            and self._entrance.finds_later(self._later_from)
        )

    def _change(self, change: Change) -> None:
        """See [Note: Planned changes]."""
        group, timeout = group_of(), default_timeout()
        if 0 < len(change.leaving) < group.size:
            try:
                self._hand_over(change.leaving, group)
            except (*FAILURES, dist.DistError) as error:
                self._recover(f"{type(error).__name__}: {error}")  # those that leave do it at the next commit
                return
        if group.rank in change.leaving:
            LOGGER.warning("rank %d of %d leaves after step %d", group.rank, group.size, self.step)
            self._close_lobby(has_ended=len(change.leaving) == group.size)
            dist.destroy_process_group()
            raise SystemExit(0)
        if change.has_newcomers:
            endpoint = endpoints.shared(config.load(), group.rank, self._route)
            desk = None if self._entrance is None else self._entrance.desk
            self._shrinking = None  # the others may have gone on in the group with the newcomers
            left = meet_newcomers(group, desk, change.newcomers, timeout.total_seconds(), endpoint)
            self._look_for_later(group, left, timeout)
            group = left
        else:
            group = self._shrunk(group, timeout)
        self._settle(group, timeout)

    def _hand_over(self, leaving: Collection[int], group: Group) -> None:
        """Ends when ranks that stay have what those that leave keep."""
        for kept in self._states.optimizers:
            kept.shares.hand_over(leaving)
        group.barrier()

    def _settle(self, group: Group, timeout: timedelta, failure: str = "") -> None:
        """Continues in a group: all of its ranks take the last step that all have prepared.

        Ranks without a state receive it. If ranks die meanwhile, it continues with the others.
        `failure` is why the members change, unless it was planned.
        """
        before = dist.get_world_size() if dist.is_initialized() else 0
        led = 0  # the number of ranks of which another one was to be rank 0
        while True:
            try:
                leader = 0 if self._entrance is None else self._entrance.leader(group)
                if leader != 0 and led != group.size:
                    led = group.size
                    group = self._led_by(leader, group, timeout)
                    continue
                step = self._agree(group, failure)
                store = meeting_of(group, timeout, self._route)
                break
            except (*FAILURES, dist.DistError) as error:
                failure = f"{type(error).__name__}: {error}"
                LOGGER.warning("recovering: %s. Looking for survivors", failure)
            group = self._shrunk(group, timeout)
        replace_default_group(group, store, timeout)
        self._times = time.monotonic(), time.monotonic()
        self._states.put_back(step)
        self.step = step
        if group.rank != 0:
            self._close_lobby(has_ended=False)
        LOGGER.warning("%d ranks continue after step %d; %d before", group.size, step, before)

    def _led_by(self, leader: int, group: Group, timeout: timedelta) -> Group:
        """See [Note: Leader]."""
        led = led_by(leader, group, timeout.total_seconds())
        self._look_for_later(group, led, timeout)
        return led

    def _agree(self, group: Group, failure: str) -> int:
        """The step that all ranks of a group continue from; all have its state afterwards."""
        states = self._states
        own = np.array([states.prepared, self._membership, self._is_superseded, self.step])
        steps, memberships, superseded, reached = group.all_gather(own).reshape(group.size, own.size).T
        if superseded.any():
            group.close()
            raise Superseded("the training goes on with later members")
        self._membership = self._later_from = int(memberships.max()) + 1
        holders = np.flatnonzero(steps != NO_STATE).tolist()
        if not holders:
            group.close()
            raise StateLost("no rank is left that has the state of training")
        step = int(steps[holders].min())
        self._check_progress(group.size, step, int(reached.max()), failure)
        states.resolve(step)
        self._ranks_before = None
        if len(holders) < group.size:
            if group.rank in holders:
                self._ranks_before = len(holders)
            received = states.present_content if self._entrance and self._entrance.replay else lambda: None
            content = transferred(group, (states.content if group.rank in holders else received)(), holders)
            if group.rank not in holders:
                states.replace(content, step)
        for kept in states.optimizers:
            kept.shares.collect(group, committed=step == states.committed)
        return step

    def _check_progress(self, ranks: int, step: int, reached: int, failure: str) -> None:
        """Raises if training cannot continue, or would fail again forever.

        It may fail again after the same committed `step` if it has `reached` a later one meanwhile.
        """
        if ranks < self._ranks_min:
            raise Error(f"{ranks} ranks are left, and ranks_min={self._ranks_min}: training ends. {failure}")
        if not failure:
            return
        if self._tried[:2] == (step, ranks) and reached <= self._tried[2]:
            raise Error(f"the {ranks} ranks that continued after step {step} have failed there again. {failure}")
        self._tried = step, ranks, reached
