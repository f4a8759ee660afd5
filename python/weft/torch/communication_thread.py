"""The thread on which callbacks of communication hooks run, in the order of issue.

[Note: Callbacks of hooks] DDP's communication hooks start operations in callbacks (PowerSGD does).
All ranks must start the operations of a group in one order, while the backward pass continues and
starts others. So:

- Callbacks run on one thread per process group, one after the other, in the order in which the
  hooks requested futures, which is the order of the program.
- Their operations go to a child group that is used for nothing else, in the order of this thread.
  Collectives are complete on return, since callbacks may wait for them (PowerSGD's and the
  quantization hooks' do).
- A callback that is added to a completed future runs immediately on the thread that adds it. So a
  future is not completed before the hook that requested it has returned, however early its
  operation ends. The hook has returned when another hook requests a future, or at the end of the
  backward pass; the engine calls what was queued first, which is before DDP waits for its futures.
- A hook that waits in its own body ends the delay: all futures are completed first
  (`weft.torch.patches.futures`).

`weft.torch.DataParallel` runs the later stages of modes on it (`submit`), without a delay.
"""

from __future__ import annotations

import atexit
import collections
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import torch
from torch.distributed import Work

from weft.torch.patches.autograd import at_end_of_backward, calling_hook, in_backward, in_node
from weft.torch.patches.futures import extend_futures

__all__ = ["CommunicationThread", "communication_thread", "here", "note_failure", "wait_in_callback"]

T = TypeVar("T")

_STOP_SECONDS_MAX = 1.0


class _Here(threading.local):
    """The state of a thread, and the futures that it holds back."""

    thread: CommunicationThread | None = None
    submitted = False
    """Whether the running task was submitted: then its waiter gets its error."""

    def __init__(self) -> None:
        self.holding: list[CommunicationThread] = []


here = _Here()


def communication_thread() -> CommunicationThread | None:
    """The communication thread that the caller runs on, if it does."""
    return here.thread


def note_failure(error: Exception) -> None:
    """Makes the backward pass end with the error of an operation in a callback, unchanged."""
    if here.thread is not None and not here.submitted:
        here.thread.note_failure(error)


def wait_in_callback(work: Work) -> None:
    """Completes an operation before a callback gets its handle: see [Note: Callbacks of hooks]."""
    try:
        work.wait()
    except Exception as error:
        note_failure(error)
        raise


class _Task(Protocol):
    """A task for the thread."""

    def run(self) -> None:
        """Runs it on this thread. Must not raise."""


class _Submitted:
    """A body to run, and the future that gets its result or error."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self._body = body
        self.future: Future[Any] = Future()

    def run(self) -> None:
        here.submitted = True
        try:
            result = self._body()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)
        finally:
            here.submitted = False


class _Callback:
    """A body to run, and the torch future of its result."""

    def __init__(self, body: Callable[[], Any]) -> None:
        self._body = body
        self._start: torch.futures.Future[None] = torch.futures.Future()
        # An exception that is set on a future crashes C++ code that expects tensors in it. An
        # exception that a callback raises arrives everywhere as an exception.
        self.future = self._start.then(lambda _: self._outcome())

    def run(self) -> None:
        """Runs the body, and the callbacks of its future, on this thread."""
        self._start.set_result(None)

    def _outcome(self) -> Any:
        try:
            return self._body()
        except Exception as error:
            note_failure(error)
            raise


class CommunicationThread:
    """Runs the later parts of hooks of one process group: see [Note: Callbacks of hooks].

    The thread starts on first use.
    """

    def __init__(self, name: str) -> None:
        """`name` is the group's, the same on all ranks."""
        self.name = name
        self._changed = threading.Condition()
        self._held: list[_Callback] = []
        self._hook: object | None = None
        self._released: collections.deque[_Task] = collections.deque()
        self._unfinished = 0
        self._closed = False
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        extend_futures(_settle)

    def after_hook(self, body: Callable[[], T]) -> torch.futures.Future[T]:
        """The future of the result of `body`, which runs when the requesting hook has returned.

        Outside a backward pass, that is when this thread waits for a future. At the end of one,
        `body` runs as soon as possible: the first step of a static graph calls all hooks there, and
        DDP waits for their futures before the engine calls anything else.
        """
        task = _Callback(body)
        if in_backward() and not in_node():
            self._release_held()
            self._release([task])
            return task.future
        hook = calling_hook()
        if hook is not self._hook:
            self._release_held()
            self._hook = hook
            if in_backward():
                at_end_of_backward(self._end_of_backward)
        self._held.append(task)
        if self not in here.holding:
            here.holding.append(self)
        return task.future

    def submit(self, body: Callable[[], T]) -> Future[T]:
        """The future of the result of `body`, which runs as soon as those before it have.

        All ranks submit in one order, on the threads of their programs.
        """
        task = _Submitted(body)
        self._release([task])
        return task.future

    def settle(self) -> None:
        """Completes every requested future. Returns when the callbacks have run."""
        self._release_held()
        if here.thread is self:
            while self._released and self._run_next():
                pass
            return
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished == 0)

    def note_failure(self, error: Exception) -> None:
        """Keeps the first error since the end of the last backward pass, to raise it there."""
        self._error = self._error or error

    def close(self) -> None:
        """Ends the thread when it has run its tasks.

        Later requests, for instance of a hook that failed while it held futures back, run on the
        requesting thread: operations of a closed group are over.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS_MAX)
        atexit.unregister(self.close)

    def _end_of_backward(self) -> None:
        """Raises the error of an operation unchanged; DDP makes a RuntimeError of it."""
        self.settle()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _release_held(self) -> None:
        held, self._held, self._hook = self._held, [], None
        if self in here.holding:
            here.holding.remove(self)
        if held:
            self._release(held)

    def _release(self, tasks: Sequence[_Task]) -> None:
        with self._changed:
            closed = self._closed
            if not closed:
                self._released.extend(tasks)
                self._unfinished += len(tasks)
            if not closed and self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"weft-communication {self.name}", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            self._changed.notify_all()
        if closed:
            for task in tasks:
                task.run()

    @torch.no_grad()
    def _serve(self) -> None:
        here.thread = self
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Runs the next task, after waiting for one. Returns False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._released or self._closed)
            if not self._released:
                return False
            task = self._released.popleft()
        task.run()
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()
        return True


def _settle(done: Callable[[], bool]) -> None:
    """Completes, before a thread waits for a future, those that only this thread can complete."""
    for thread in list(here.holding):
        thread.settle()
    own = here.thread
    while own is not None and own._released and not done() and own._run_next():
        pass
