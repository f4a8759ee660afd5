"""A library behind a shim in C: see `weft_lab/bench/peers/shim.h`."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from weft import _weft
from weft_lab.bench.collectives import BenchCollective
from weft_lab.bench.elements import ElementType
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation, ordinary


class ShimLibrary:
    """A library whose processes the peer's own launcher has started; they have met."""

    def __init__(self, name: str, path: Path, ranks: int, transport: str) -> None:
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.call("weft_bench_start")
        started = self._library.weft_bench_ranks()
        if started != ranks:
            raise RuntimeError(f"{name}: {started} ranks have met instead of {ranks}")
        self.rank: int = self._library.weft_bench_rank()
        version = ctypes.create_string_buffer(256)
        self.call("weft_bench_version", version, ctypes.c_size_t(len(version)))
        self.ranks = ranks
        self.description = Description(name, version.value.decode(), "ordinary", transport, "peer", ranks)

    def contenders(self, places: Sequence[str]) -> list[Shim]:
        """One for each place of the results: `in` the input's memory, `out` of it."""
        return [Shim(self, out_of_place=place == "out") for place in places]

    def function(self, collective: BenchCollective) -> int:
        """The address of a collective's function."""
        found = self._library["weft_bench_" + collective.name.replace("-", "_")]
        return ctypes.cast(found, ctypes.c_void_p).value or 0

    def finish(self) -> None:
        """Ends the library on all ranks."""
        self.call("weft_bench_finish")

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of the shim.

        Raises:
            RuntimeError: It returned an error.
        """
        code = self._library[name](*arguments)
        if code != 0:
            raise RuntimeError(f"{self._library._name}: {name} returned {code}")


class Shim(Contender):
    """Such a library with its results in one place. Its contenders share the library."""

    def __init__(self, library: ShimLibrary, *, out_of_place: bool) -> None:
        self._library = library
        self.description = dataclasses.replace(library.description, out_of_place=out_of_place)

    def operation(self, collective: BenchCollective, dtype: ElementType, elements: int) -> TimedOperation:
        """See `Contender`."""
        library = self._library
        library.call("weft_bench_type", dtype.name.encode())
        if self.description.out_of_place:
            collective = dataclasses.replace(collective, in_place=False)
        source, target = ordinary(collective, dtype, elements, library.ranks)
        # The shims count the elements that a rank contributes, or receives if that is less; of an
        # all-to-all, those for one rank.
        count = collective.count(elements, library.ranks)
        timed = _weft.Timed.library(
            library.function(collective), source.ctypes.data, target.ctypes.data, count, (source, target)
        )
        return TimedOperation(source, target, timed)
