"""torch's handle of an operation in progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work

from weft.errors import StillRunning
from weft.threads import Threads
from weft.torch.arguments import seconds
from weft.torch.patches.autograd import at_end_of_backward, in_backward, in_joined_hook, in_node
from weft.torch.patches.modes import outside_of_modes

if TYPE_CHECKING:
    from weft import _weft
    from weft.torch.communication_thread import CommunicationThread

__all__ = ["WeftWork"]

_NO_TIMEOUT = timedelta(0)
_threads = Threads("completion")


class WeftWork(Work):
    """One or more operations of weft that torch sees as one."""

    in_python = False
    """Whether the caller is written in Python, not torch's C++."""

    def __init__(
        self,
        operations: Sequence[_weft.Work],
        result: Any,
        finishers: Sequence[Callable[[], object]],
        sequence: int = 0,
        timeout: float | None = None,
        thread: CommunicationThread | None = None,
    ) -> None:
        """`result` is the future's value; `finishers` run once, when all operations have ended.

        `sequence` is the number of the last of these operations in the group, `timeout` the seconds
        that each may take, and `thread` that of the group's hooks.
        """
        super().__init__()
        self._thread = thread
        self._waited = False
        self._sequence = sequence
        self._timeout = timeout
        self._operations = operations
        self._result = result
        self._finishers = finishers
        # Reentrant, because a future that is complete at the start takes the result while it is
        # being made.
        self._lock = threading.RLock()
        self._future: torch.futures.Future[Any] | None = None

    def finish_with(self, finish: Callable[[], object], result: Any) -> None:
        """Adds a function that runs when all operations have ended and returns the result."""
        self._finishers = [*self._finishers, finish]
        self._result = result

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits until the results are available. Raises the operation's error.

        With a timeout, raises `weft.StillRunning` after it; the operation itself continues.
        """
        limit = None if timeout is _NO_TIMEOUT else seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        for operation in self._operations:
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not operation.wait(remaining):
                raise StillRunning(
                    f"the wait timed out: the operation has not ended within its timeout of {limit} s; it continues"
                )
        if self._finishers:
            self._finish()
        self._waited = True
        return True

    def synchronize(self) -> None:
        """Like `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether all operations have ended or failed. If they ended, the results are available."""
        if not all(operation.is_done() for operation in self._operations):
            return False
        if self._finishers and self.exception() is None:
            self._finish()
        return True

    def is_success(self) -> bool:
        """Whether all operations have ended without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """The error; None if there is none yet."""
        for operation in self._operations:
            if operation.is_done():
                try:
                    operation.wait(None)
                except Exception as error:
                    return error
        return None

    def source_rank(self) -> int:
        """The rank whose message was received."""
        return self._operations[0].source()

    _source_rank = source_rank

    @property
    def timeout(self) -> timedelta:
        """The time that the operation may take."""
        return _NO_TIMEOUT if self._timeout is None else timedelta(seconds=self._timeout)

    def _get_sequence_number(self) -> int:
        """How many collective operations the group had started, including this one."""
        return self._sequence

    def result(self) -> Any:
        """The tensors that the operation wrote."""
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the result.

        Callbacks run on a separate thread (see [Note: Callbacks may block]), or immediately if the
        future is complete; for those of a communication hook of DDP see [Note: Callbacks of hooks].
        Outside a backward pass, a callback that starts operations should use a group of its own,
        since every rank must start the operations of a group in one order.
        """
        with self._lock:
            if self._future is None:
                self._enter_hook()
            if self._future is None:
                # An exception that is set on a future directly crashes C++ code that expects
                # tensors in it (DDP does so). An exception that a callback raises arrives
                # everywhere as an exception.
                ended: torch.futures.Future[None] = torch.futures.Future()
                self._future = ended.then(lambda _: self._outcome())
                self._complete(ended)
            return self._future

    def _enter_hook(self) -> None:
        """Maintains the order of operations, and the type of exceptions, during a backward pass.

        [Note: Futures in backward] A hook written in Python gets a future that the group's
        communication thread completes. Without a hook, DDP's C++ code requests it and has no
        callbacks that start operations, so its futures are completed in the background. Between two
        functions of the graph there is nothing left to overlap with (in the first step of a static
        graph, DDP requests all buckets there), so futures are complete when they are returned. So
        are those of operations that were waited for, as DDP's C++ code expects of a future made in
        Python. The calls of a rank that has joined, during the others' backward passes, are treated
        as if it were in one.

        DDP turns any error in a future into a RuntimeError. A function that the autograd engine
        calls at the end of the pass, before DDP's own that was registered later, raises the
        exception unchanged.
        """
        if not in_backward():
            if self.in_python and self._thread is not None and in_joined_hook():
                self._future = self._thread.after_hook(self._outcome)
        elif self._waited or not in_node():
            self.wait()
        elif not self.in_python:
            at_end_of_backward(self.synchronize)
        elif self._thread is not None:
            self._future = self._thread.after_hook(self._outcome)

    def _complete(self, ended: torch.futures.Future[None]) -> None:
        """Completes `ended`: now, or when the operations under way have ended."""
        for operation in self._operations:
            if not operation.is_done():
                _threads.when_ended(operation, lambda: self._complete(ended))
                return
        ended.set_result(None)

    def _outcome(self) -> Any:
        self.wait()
        return self._result

    def _finish(self) -> None:
        with self._lock:
            if self._finishers:
                self._run_finishers()

    @outside_of_modes
    def _run_finishers(self) -> None:
        for finish in self._finishers:
            finish()
        self._finishers = ()
