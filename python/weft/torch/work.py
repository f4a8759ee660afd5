"""torch's handle on operations under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Work

from weft.errors import StillRunning
from weft.torch.arguments import seconds
from weft.torch.completion import CompletionThreads

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["WeftWork"]

_NO_TIMEOUT = timedelta(0)
_threads = CompletionThreads()


class WeftWork(Work):
    """One or more operations of weft that torch sees as one."""

    def __init__(self, operations: Sequence[_weft.Work], result: Any, finishers: Sequence[Callable[[], None]]) -> None:
        """`result` is the future's value; `finishers` run once, when all operations have ended."""
        super().__init__()
        self._operations = operations
        self._result = result
        self._finishers = finishers
        # Reentrant, because a future that is complete at once takes the result while it is being made.
        self._lock = threading.RLock()
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Waits until the results are there. Raises what went wrong.

        With a timeout, raises `weft.StillRunning` when it is over; the operation itself goes on.
        """
        limit = seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        for operation in self._operations:
            remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not operation.wait(remaining):
                raise StillRunning(f"the operation has not ended after {limit} s; it goes on")
        self._finish()
        return True

    def is_completed(self) -> bool:
        """Whether all operations have ended, well or badly."""
        return all(operation.is_done() for operation in self._operations)

    def source_rank(self) -> int:
        """The rank whose message was received."""
        return self._operations[0].source()

    _source_rank = source_rank

    def result(self) -> Any:
        """The tensors that the operation wrote."""
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the result. Callbacks run on a thread of their own: see [Note: Callbacks may block]."""
        with self._lock:
            if self._future is None:
                # An exception that is set on a future directly crashes C++ code that expects tensors in it (DDP does
                # so). One that is raised by a callback arrives everywhere as an exception.
                ended: torch.futures.Future[None] = torch.futures.Future()
                self._future = ended.then(lambda _: self._outcome())
                self._complete(ended)
            return self._future

    def _complete(self, ended: torch.futures.Future[None]) -> None:
        """Completes `ended`: now, or when the operations that are under way have ended."""
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
            for finish in self._finishers:
                finish()
            self._finishers = ()
