"""A library behind a shim in C: see `weft/bench/peers/shim.h`."""

from __future__ import annotations

import ctypes
from pathlib import Path

from weft import _weft
from weft.bench.collectives import BenchCollective
from weft.bench.elements import ElementType
from weft.bench.libraries.contender import Contender, Description, TimedOperation, ordinary


class Shim(Contender):
    """A library that the peer's own launcher has started the processes of."""

    def __init__(self, name: str, path: Path, ranks: int, transport: str) -> None:
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self._call("weft_bench_start")
        started = self._library.weft_bench_ranks()
        if started != ranks:
            raise RuntimeError(f"{name}: {started} ranks have met instead of {ranks}")
        self.rank: int = self._library.weft_bench_rank()
        version = ctypes.create_string_buffer(256)
        self._call("weft_bench_version", version, ctypes.c_size_t(len(version)))
        self._ranks = ranks
        self.description = Description(name, version.value.decode(), "ordinary", transport, "peer", ranks)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        self._call("weft_bench_type", dtype.name.encode())
        source, target = ordinary(collective, dtype, elements, self._ranks)
        function = ctypes.cast(self._library["weft_bench_" + collective.name.replace("-", "_")], ctypes.c_void_p)
        # The shims count what a rank brings, or takes if that is less; of an all-to-all, what goes
        # to one rank.
        count = collective.count(elements, self._ranks)
        timed = _weft.Timed.library(
            function.value or 0, source.ctypes.data, target.ctypes.data, count, (source, target)
        )
        return TimedOperation(source, target, timed)

    def close(self) -> None:
        """See `Contender`."""
        self._call("weft_bench_finish")

    def _call(self, name: str, *arguments: object) -> None:
        code = self._library[name](*arguments)
        if code != 0:
            raise RuntimeError(f"{self._library._name}: {name} returned {code}")
