"""The order of messages between hosts, apart from that of collectives.

[Note: Messages have an order of their own] A message ends when its peer sends or receives. The peer
may do that only after a collective that was called later, or after another message. So messages
wait for nothing but their own data: sends begin in the order of their calls, each when its data has
arrived on the host; receives begin in the order of their calls, immediately; and each ends by
itself, on a thread of its own.
"""

from __future__ import annotations

import functools
import queue
import threading

from weft.device.step import Failing, Step
from weft.errors import Aborted
from weft.threads import Threads

__all__ = ["MessageOrder"]

_threads = Threads("device-messages")


class MessageOrder:
    """The messages of one group."""

    def __init__(self, group: Failing) -> None:
        self._group = group
        self._changed = threading.Condition()
        self._under_way = {"sends": 0, "receives": 0}
        self._queues: dict[str, queue.SimpleQueue[Step | None]] = {}
        self._begins: list[threading.Thread] = []
        self._stopped = False

    def send(self, step: Step) -> None:
        """Adds a send."""
        self._put("sends", step)

    def receive(self, step: Step) -> None:
        """Adds a receive."""
        self._put("receives", step)

    def stop(self) -> None:
        """Admits no further message, and returns when all have begun, and all sends have ended."""
        with self._changed:
            self._stopped = True
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._begins:
            thread.join()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way["sends"])

    def join(self) -> None:
        """Returns when all messages have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not any(self._under_way.values()))

    def _put(self, kind: str, step: Step) -> None:
        with self._changed:
            if self._stopped:
                raise Aborted("the group was closed: no message can be started")
            if kind not in self._queues:
                self._queues[kind] = queue.SimpleQueue()
                thread = threading.Thread(target=self._begin, args=(kind,), name=f"weft-device-{kind}", daemon=True)
                self._begins.append(thread)
                thread.start()
            self._under_way[kind] += 1
            self._queues[kind].put(step)

    def _begin(self, kind: str) -> None:
        while (step := self._queues[kind].get()) is not None:
            if self._group.failure is None:
                try:
                    step.arrive()
                    step.work = step.begin()
                except BaseException as error:
                    self._group.fail(error)
            begun = [step]
            del step  # it is the list's alone: see [Note: No driver between arrival and release]
            _threads.run(functools.partial(self._end, kind, begun))

    def _end(self, kind: str, begun: list[Step]) -> None:
        step, error = begun.pop(), self._group.failure
        if step.work is not None:
            try:
                step.work.wait(None)
                error = None
            except BaseException as failure:
                self._group.fail(failure)
                error = failure
        step.end(error)
        with self._changed:
            self._under_way[kind] -= 1
            self._changed.notify_all()
