"""One rank of one build: `python -P contender.py SPEC BUILD RANK`, in that build's environment.

It imports nothing of this repository: the modules of the two builds may differ. Of weft it uses the
public API, and for timing `ControlBlock` and `Timed` of the extension, which it finds by their
methods, not by name.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import weft
import weft.torch

_PAGE_BYTES = 4096
_PATTERN_BYTES = 16 * 1024
_PTRACE_TRACEME = 0
_DEATH_SIGNAL = 1


def main() -> None:
    """Measures the cells that it is ordered to, until the order to end."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)  # ends with the coordinating process, however that ends
    spec, build, rank = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    ranks, ports = spec["ranks"], spec["ports"][build]
    dist.init_process_group("weft", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=ranks)
    with weft.init(rank, ranks, address=f"127.0.0.1:{ports[1]}") as group:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(spec["socket"])
        lines = connection.makefile("rw")
        _send(lines, {"group": build, "rank": rank, "contenders": []})
        contender = BuildContender(group, Path(spec["directory"], f"control-block-{build}"), spec["bytes_max"])
        while (question := json.loads(lines.readline()))["do"] != "end":
            _send(lines, contender.answer(question))
    dist.destroy_process_group()


def _send(lines: Any, value: object) -> None:
    lines.write(json.dumps(value) + "\n")
    lines.flush()


class BuildContender:
    """The groups of one rank, its memory, and the timed operation."""

    def __init__(self, group: weft.CellGroup, control_block: Path, bytes_max: int) -> None:
        self._group = group
        self._rank, self._ranks = group.rank, group.size
        cores = sorted(os.sched_getaffinity(0))
        self._control_block = _class_with("SAMPLES_MAX")(
            str(control_block), self._rank, self._ranks, self._ranks <= len(cores)
        )
        self._samples_max: int = self._control_block.SAMPLES_MAX
        elements = bytes_max // 4
        raw = np.zeros(bytes_max + _PAGE_BYTES, np.uint8)
        begin = -raw.ctypes.data % _PAGE_BYTES
        self._arrays = {
            "ordinary": raw[begin : begin + bytes_max].view(np.float32),
            "symmetric": group.symmetric(elements, np.float32),
        }
        self._tensors = {
            "ordinary": torch.from_numpy(self._arrays["ordinary"]),
            "symmetric": weft.torch.empty_symmetric(elements, dtype=torch.float32),
        }
        self._array = self._arrays["ordinary"]
        self._timed: Any = None
        # The placement of ranks decides about small messages, and a launch would keep a random one.
        # Only this thread, and only now: the library's threads and its view of the machine stay as
        # for users.
        os.sched_setaffinity(0, {cores[self._rank % len(cores)]})

    def answer(self, question: dict[str, Any]) -> Any:
        """Carries out a request, and returns its answer."""
        match question["do"]:
            case "prepare":
                return self._prepare(question["level"], question["memory"], question["bytes"] // 4)
            case "time":
                return self._time(question["calls"])
            case "step":
                return self._step(question["calls"])
        raise ValueError(question)

    def _prepare(self, level: str, memory: str, elements: int) -> bool:
        """Makes ready for a cell: whether the first result is right."""
        tensor = self._tensors[memory][:elements]
        self._array = tensor.numpy() if level == "torch" else self._arrays[memory][:elements]
        self._timed = self._operation(level, tensor)
        self._calls(1)
        return bool(np.all(self._array == self._ranks * (self._ranks + 1) / 2))

    def _operation(self, level: str, tensor: torch.Tensor) -> Any:
        """Returns the timed operation: a call from Rust, from Python or through torch."""
        timed, array, group = _class_with("callable"), self._array, self._group
        pointer, count = array.ctypes.data, array.size
        if level == "rust":
            native = _first_of(group, "native", "_native")
            # Builds before 0.1.0's `Operation` name the collective in the request.
            of = getattr(weft._weft, "Operation", None)
            kind: tuple[Any, ...] = (of("all-reduce", "float32", 4),) if of else ("all-reduce", "float32", 4)
            request: Any = weft._weft.Request
            return timed.group(native, request(*kind, count, pointer, pointer), array)
        call: Callable[[], object] = lambda: group.all_reduce(array)  # noqa: E731
        if level == "torch":
            call = lambda: dist.all_reduce(tensor)  # noqa: E731
        return timed.callable(call)

    def _calls(self, calls: int) -> list[float]:
        array = self._array
        pattern = np.full(min(array.size, _PATTERN_BYTES // 4), self._rank + 1, np.float32).tobytes()
        samples: list[float] = self._control_block.time(self._timed, array.ctypes.data, array.nbytes, pattern, calls)
        return samples

    def _time(self, calls: int) -> dict[str, float]:
        """The median of the slowest rank's times, and a call's seconds with its surroundings."""
        calls, begin = min(calls, self._samples_max), time.monotonic()
        median_us = 1e6 * statistics.median(self._calls(calls))
        return {"median_us": median_us, "each_s": (time.monotonic() - begin) / calls}

    def _step(self, calls: int) -> bool:
        """Has the coordinating process, the parent, step through calls.

        This thread stops before and after them.
        """
        ctypes.CDLL(None).ptrace(_PTRACE_TRACEME, 0, None, None)
        signal.raise_signal(signal.SIGSTOP)
        self._calls(calls)
        signal.raise_signal(signal.SIGSTOP)
        return True


def _class_with(name: str) -> Any:
    """The class of the extension that has something of this name."""
    return next(kind for kind in vars(weft._weft).values() if isinstance(kind, type) and hasattr(kind, name))


def _first_of(value: object, *names: str) -> Any:
    """The first of these attributes that there is: builds may call it otherwise."""
    return next(getattr(value, name) for name in names if hasattr(value, name))


if __name__ == "__main__":
    main()
