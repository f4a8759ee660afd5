"""torch's handle of an operation on tensors of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from weft.device.operation import DeviceOperation
from weft.errors import StillRunning
from weft.torch.arguments import seconds
from weft.torch.device.accelerator import Accelerator
from weft.torch.device.host_queue import QueuedOperation
from weft.torch.patches.modes import outside_of_modes
from weft.torch.work import WeftWork

__all__ = ["DeviceWork"]

_NO_TIMEOUT = timedelta(0)


class DeviceWork(Work):
    """An operation whose result later work on the current stream sees, as with NCCL."""

    in_python = False
    """Whether the caller is written in Python, not torch's C++."""

    def __init__(
        self,
        operation: DeviceOperation | QueuedOperation,
        accelerator: Accelerator,
        result: Any,
        *,
        finishers: Sequence[Callable[[], object]] = (),
        on_host: Sequence[WeftWork] = (),
        sequence: int = 0,
    ) -> None:
        """`finishers` copy results that are not contiguous, in the current stream, in `wait`.

        `on_host` gets the handle of the operation between the ranks' hosts once that has begun.
        """
        super().__init__()
        self._operation = operation
        self._accelerator = accelerator
        self._result = result
        self._finishers = finishers
        self._on_host = on_host
        self._sequence = sequence

    @outside_of_modes
    def wait(self, timeout: timedelta | None = _NO_TIMEOUT) -> bool:
        """Makes the current stream wait for the result. Raises the error, if there is one by now.

        With a timeout, the caller itself waits, too: after it, `weft.StillRunning` is raised and
        the operation continues.
        """
        self._accelerator.refuse_capture(self._operation.device, "wait")
        limit = None if timeout is None else seconds(timeout)
        if limit is not None and not self._operation.wait(limit):
            raise StillRunning(
                f"the wait timed out: the operation has not ended within its timeout of {limit} s; it continues"
            )
        self._operation.wait_on(self._accelerator.current_stream(self._operation.device))
        finishers, self._finishers = self._finishers, ()
        for finish in finishers:
            finish()
        return True

    def synchronize(self) -> None:
        """Like `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the operation has ended or failed."""
        return self._operation.is_done()

    def is_success(self) -> bool:
        """Whether the operation has ended without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error; None if there is none yet."""
        return self._operation.error

    def source_rank(self) -> int:
        """The rank whose message was received; waits for it."""
        self._operation.wait()
        return self._on_host[0].source_rank()

    _source_rank = source_rank

    def _get_sequence_number(self) -> int:
        """How many collective operations the group had started, including this one."""
        return self._sequence

    def result(self) -> Any:
        """The tensors that the operation writes."""
        return self._result

    @outside_of_modes
    def get_future(self) -> torch.futures.Future[Any]:
        """A future of the result: the streams of its reader wait for the value.

        A later error is raised by `wait` and by the next operation, not by the future.
        """
        self._accelerator.refuse_capture(self._operation.device, "get_future")
        if self._finishers:
            self.wait()
        return self._accelerator.future(self._result, self._operation, in_python=self.in_python)
