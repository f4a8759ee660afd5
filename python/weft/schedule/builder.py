"""Builder of schedules: programs of all ranks, memory slices, signal numbers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

from weft.errors import ArgumentError
from weft.schedule.schedule import Schedule

__all__ = ["Area", "Buffer", "Builder", "RankProgram", "Slice"]

COLLECTIVES = {
    "all-reduce": "",
    "reduce": " to ",
    "broadcast": " from ",
    "all-gather": "",
    "reduce-scatter": "",
    "all-to-all": "",
    "gather": " to ",
    "scatter": " from ",
    "barrier": "",
}
"""The collectives, and the word between the name and the root of rooted ones."""

ENCODINGS = ("f32", "f16", "bf16", "e4m3", "e5m2")


@dataclasses.dataclass(frozen=True)
class Slice:
    """A range of chunks in a buffer of a rank."""

    rank: int
    buffer: str
    """The name in the text form: `output`, `scratch(0)`, `receive(2:0@1)` ..."""
    start: int
    stop: int
    encoding: str = ""

    def encoded(self, encoding: str) -> Slice:
        """The same chunks as elements of another type, one of `f32`, `f16`, `bf16`, `e4m3`, `e5m2`.

        Temporary memory only.
        """
        if encoding not in ENCODINGS:
            raise ArgumentError(f"encoding={encoding!r}: one of {', '.join(ENCODINGS)}")
        return dataclasses.replace(self, encoding=encoding)

    def __str__(self) -> str:
        chunks = str(self.start) if self.stop == self.start + 1 else f"{self.start}..{self.stop}"
        suffix = f":{self.encoding}" if self.encoding else ""
        return f"{self.rank}.{self.buffer}[{chunks}]{suffix}"


@dataclasses.dataclass(frozen=True)
class Area:
    """An entry of temporary memory, on every rank."""

    entry: int
    width: int
    whole: bool
    """Whether it is as wide as the message: then each chunk has its own place in it."""

    def name(self, first_chunk: int) -> str:
        """The name in the text form for a slice that begins with this chunk."""
        base = 0 if self.whole else first_chunk
        return str(self.entry) if base == first_chunk else f"{self.entry}@{base}"


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A rank's memory.

    `buffer[2]` is chunk 2, `buffer[2:5]` are three chunks, `buffer[:]` is the whole message.
    """

    rank: int
    chunks: int
    name: Callable[[int], str]
    """The name in the text form for a slice that begins with a chunk."""

    def __getitem__(self, chunks: int | slice) -> Slice:
        if isinstance(chunks, slice):
            start = 0 if chunks.start is None else chunks.start
            stop = self.chunks if chunks.stop is None else chunks.stop
            step = chunks.step
        else:
            start, stop, step = chunks, chunks + 1, None
        if step is not None or not 0 <= start < stop <= self.chunks:
            raise ArgumentError(f"chunks {start}:{stop} of {self.name(0)}: ascending, from 0 to {self.chunks}")
        return Slice(self.rank, self.name(start), start, stop)


class RankProgram:
    """The steps of one rank, and its name and memory in the programs of other ranks."""

    def __init__(self, builder: Builder, rank: int) -> None:
        self.rank = rank
        self.lines: list[str] = []
        self._builder = builder
        self._signals: Counter[int] = Counter()
        self._waits: Counter[int] = Counter()
        self._claimed: Counter[str] = Counter()

    def after(self, distance: int) -> RankProgram:
        """The rank `distance` after this one, around the ring; before it, if negative."""
        return self._builder.programs[(self.rank + distance) % len(self._builder.programs)]

    @property
    def input(self) -> Buffer:
        """The caller's source memory."""
        return self._buffer(lambda _: "input")

    @property
    def output(self) -> Buffer:
        """The caller's destination memory; of an all-reduce or reduction also its contribution."""
        return self._buffer(lambda _: "output")

    def scratch(self, area: Area) -> Buffer:
        """Temporary memory that this rank writes and its peers may read if they map it."""
        return self._buffer(lambda chunk: f"scratch({area.name(chunk)})")

    def receive_buffer(self, area: Area, writer: RankProgram) -> Buffer:
        """Temporary memory of this rank that only `writer` writes."""
        return self._buffer(lambda chunk: f"receive({writer.rank}:{area.name(chunk)})")

    def copy(self, to: Slice | Sequence[Slice], source: Slice, claim: Sequence[RankProgram] = ()) -> None:
        """Writes `source` to every destination in one pass.

        It is a put if a destination is another rank's.

        A step in the programs of several ranks may be executed by any one of `claim`: its owner,
        then the ranks that may help. They do so while they would otherwise wait at what follows the
        step in their programs, if the owner has not reached it yet. The first 64 such steps of a
        schedule can be helped with.
        """
        self._add("copy", to, [source], claim)

    def reduce(
        self,
        to: Slice | Sequence[Slice],
        sources: Sequence[Slice],
        final: bool = False,
        claim: Sequence[RankProgram] = (),
    ) -> None:
        """Combines the sources in this order into every destination, in one pass.

        `final` says that all contributions are now combined, so that averages are scaled and sums
        rounded.
        """
        self._add("reduce", to, sources, claim, " final" if final else "")

    def signal(self, to: RankProgram) -> None:
        """Notifies another rank that all earlier steps are complete."""
        self.lines.append(f"signal {to.rank} #{self._signals[to.rank]}")
        self._signals[to.rank] += 1

    def wait(self, source: RankProgram) -> None:
        """Waits for the next signal of another rank."""
        self.lines.append(f"wait {source.rank} #{self._waits[source.rank]}")
        self._waits[source.rank] += 1

    def _add(
        self,
        kind: str,
        to: Slice | Sequence[Slice],
        sources: Sequence[Slice],
        claim: Sequence[RankProgram],
        suffix: str = "",
    ) -> None:
        destinations = [to] if isinstance(to, Slice) else to
        if claim:
            step = f"{kind} {destinations} {sources} {[program.rank for program in claim]}"
            number = self._builder.claim_number(step, self._claimed[step])
            self._claimed[step] += 1
            suffix += f" claim {number} by {', '.join(str(program.rank) for program in claim)}"
        self.lines.append(
            f"{kind} {', '.join(map(self._shown, destinations))} <- {' + '.join(map(self._shown, sources))}{suffix}"
        )

    def _shown(self, part: Slice) -> str:
        """The name of a slice in this rank's program."""
        return str(part).removeprefix(f"{self.rank}.")

    def _buffer(self, name: Callable[[int], str]) -> Buffer:
        return Buffer(self.rank, self._builder.chunks, name)


class Builder:
    """The programs of all ranks under construction."""

    def __init__(
        self,
        collective: str,
        ranks: int,
        chunks: int | Sequence[Fraction] | Literal["blocks"] = 1,
        root: int | None = None,
    ) -> None:
        """Begins the programs of `ranks` ranks.

        Args:
            collective: `all-reduce`, `broadcast` ...
            ranks: How many ranks the group has.
            chunks: The division of the message: into this many equal chunks, at ascending shares
                from 0 to 1, or (`"blocks"`) into one block for every rank, whose sizes are known
                only in the call.
            root: The rank that sends or gets everything, if the collective has one.
        """
        if collective not in COLLECTIVES:
            raise ArgumentError(f"collective={collective!r}: one of {', '.join(COLLECTIVES)}")
        if ranks < 1:
            raise ArgumentError(f"ranks={ranks}: at least 1")
        preposition = COLLECTIVES[collective]
        if root not in range(ranks) if preposition else root is not None:
            wanted = f"a number from 0 to {ranks - 1}" if preposition else "None, as it has no root"
            raise ArgumentError(f"root={root} of collective {collective!r}: {wanted}")
        self.chunks, grid = _grid(chunks, ranks)
        self.programs = [RankProgram(self, rank) for rank in range(ranks)]
        """One program for every rank."""
        self._head = [
            "format 2",
            f"collective {collective}{preposition}{root if preposition else ''}",
            f"ranks {ranks}",
            grid,
        ]
        self._scratch: list[int] = []
        self._receive: list[int] = []
        self._claims: dict[tuple[str, int], int] = {}

    def add_scratch(self, width: int) -> Area:
        """Adds an entry of this many chunks to the temporary memory of every rank."""
        return self._area(self._scratch, width)

    def add_receive_buffer(self, width: int) -> Area:
        """Adds an entry of this many chunks to every rank's temporary memory."""
        return self._area(self._receive, width)

    def claim_number(self, step: str, occurrence: int) -> int:
        """Adds an entry of as many chunks to the receive buffers of every ordered pair of ranks."""
        return self._claims.setdefault((step, occurrence), len(self._claims))

    def build(self) -> Schedule:
        """The schedule. `Schedule.verify` checks whether it is valid."""
        lines = list(self._head)
        for name, widths in (("scratch", self._scratch), ("receive", self._receive)):
            if widths:
                lines.append(f"{name} {' '.join(map(str, widths))}")
        lines.append("")
        for program in self.programs:
            lines += [f"rank {program.rank}", *(f"  {line}" for line in program.lines)]
        return Schedule("\n".join(lines) + "\n")

    def _area(self, widths: list[int], width: int) -> Area:
        if not 1 <= width <= self.chunks:
            raise ArgumentError(f"width={width}: from 1 to {self.chunks}, the number of chunks")
        widths.append(width)
        return Area(len(widths) - 1, width, whole=width == self.chunks)


def _grid(chunks: int | Sequence[Fraction] | str, ranks: int) -> tuple[int, str]:
    """The number of chunks, and the grid's line of the text form."""
    if chunks == "blocks":
        return ranks, f"grid blocks {ranks}"
    if isinstance(chunks, int) and chunks >= 1:
        return chunks, f"grid equal {chunks}"
    if isinstance(chunks, str | int) or len(chunks) < 2:
        raise ArgumentError(f"chunks={chunks!r}: a number of at least 1, shares from 0 to 1, or 'blocks'")
    cuts = [Fraction(cut) for cut in chunks]
    return len(cuts) - 1, "grid cuts " + " ".join(f"{cut.numerator}/{cut.denominator}" for cut in cuts)
