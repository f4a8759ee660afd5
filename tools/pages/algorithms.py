"""docs/explanation/algorithms.md and its drawings.

Its texts about an algorithm are in the algorithm's own file in crates/algorithms; its counts are
the verifier's, and its drawings show the simulator's runs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from tools.pages.filling import filled
from weft.schedule import Algorithm, CallShape, Formula, Report, algorithms, plan
from weft.simulation import Machine, gantt

__all__ = ["files", "write"]

PAGE = "algorithms.md"
DRAWINGS = "algorithms"
COUNTED_RANKS = (4, 16, 64)
DRAWN_RANKS = 4
DRAWN_BYTES = 64 << 10
RANKS_OF_A_HOST = 4
WIDTH = 118

_HEAD = """\
# Algorithms

<!-- Generated from crates/algorithms by `make docs`. Do not edit. -->

What each algorithm does, how many bytes it moves, how many times it waits for the network, and when it is the best.
The numbers are not estimates: the tests of `crates/algorithms` compare the closed form of every algorithm with what
the verifier counts, from 1 rank to 64, and the tables below are counted by the verifier. `weft plan NAME --ranks 8`
shows any schedule, `weft plan --explain` and `weft simulate` say what it would take on a machine of your choice.

`P` is the number of ranks, `N` the message (with all-gather, reduce-scatter, gather, scatter and all-to-all it
consists of `P` blocks of `N / P`). *Sent* is what one rank writes to the memory of others (over TCP: the bytes on the
wire), *read* is what it reads there; where ranks differ, the greatest is given. *Steps* is the longest chain of
signals, each sent after the one before it arrived: at small sizes an operation takes about this many times the
latency of the network. A message is cut into tiles and several tiles are under way at once, so at large sizes the
bytes count and the steps do not.

Three kinds of memory matter:

- **ordinary**: what a peer sends arrives in receive buffers of weft's own pool and is copied or reduced from there;
- **ordinary, one host**: ranks that share memory also read each other's scratch memory in the pool;
- **symmetric**: all ranks reach each other's input and output, nothing is staged. A peer may write into an output
  only after its owner has entered the operation; where an algorithm does not know this anyway, one more step signals
  it.

*By the book* is what the source says that an algorithm costs, for `p` ranks and a message of `n`; the tests compare
steps and bytes with it. Of composed algorithms the formula adds up those of their parts, for `H` units (hosts, say) of
`A` ranks each. Where units differ in size, what all ranks send together is compared, and what one of them sends is
bounded, as are steps there and where parts read memory: the last of a part may pass beside the first of the next.

With one rank every algorithm moves nothing but the rank's own data from input to output.

"""

_ORDER = """
## Order of reduction

The order in which the contributions to an element are combined depends on the algorithm, the number of ranks and the
element's place in the message, never on timing or on the tile size; and all ranks get the bits that one rank
computed, or compute the same expression. `weft plan NAME` shows it, chunk by chunk. What is called *reproducible*
above combines every element in the order of ranks, in one pass, in which 16-bit floats are added in 32 bits and
rounded once: the canonical tree, whose bits depend neither on the algorithm nor on where the ranks are. Others round
after each of several passes.

## User schedules

A schedule that you write, with `weft.schedule.Builder` or as text, runs, simulates and tunes like these: `weft verify
FILE` checks it, `weft simulate --schedule FILE` predicts its times, `group.use_schedule` runs it, and options,
configuration and `weft tune` may name it: see [Tuning](../how-to/tuning.md). `examples/user_algorithm.py` adds one
in under 40 lines. It is for one collective, root and number of ranks; it needs symmetric memory if it reaches the
input or output of other ranks, and is reproducible if the verifier finds the canonical tree in it, which `weft
verify` reports.

## Blocks of a size per rank

The "v" collectives are carried out by those called *sizes per rank* above. Each rank touches only blocks whose sizes
it and the other end know.

## The drawings

Each shows four ranks and a message of 64 KiB, as `weft plan NAME --draw FILE` simulates it: on four hosts with 100
Gbit/s and a latency of 5 µs, on two hosts of two ranks where the algorithm is for units, or on one host where it
needs that. Bars are what the ranks' threads do, with the numbers of the chunks; below them, in grey, is where they
wait; arrows are messages.
"""


def files() -> Iterator[tuple[str, str]]:
    """Returns the page and its drawings: paths below docs/explanation, with contents."""
    family = algorithms()
    for algorithm in family:
        yield f"{DRAWINGS}/{_file_name(algorithm)}", _drawing(algorithm)
    yield PAGE, filled(_page(family))


def write(directory: Path) -> None:
    """Writes the page and its drawings, and removes drawings of algorithms that are gone."""
    (directory / DRAWINGS).mkdir(parents=True, exist_ok=True)
    written = set()
    for path, text in files():
        (directory / path).write_text(text, encoding="utf-8")
        written.add(directory / path)
    for drawing in (directory / DRAWINGS).glob("*.svg"):
        if drawing not in written:
            drawing.unlink()


def _page(family: Sequence[Algorithm]) -> str:
    sections = [_HEAD, _overview(family), _ORDER]
    for collective, members in groupby(family, lambda algorithm: algorithm.collective):
        sections.append(f"\n## {_title(collective)}\n")
        sections += [_section(algorithm) for algorithm in members]
    return "".join(sections)


def _title(collective: str) -> str:
    return collective[0].upper() + collective[1:]


def _overview(family: Sequence[Algorithm]) -> str:
    lines = [
        "| collective | algorithm | needs | can | memory | steps | sent | read |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for collective, members in groupby(family, lambda algorithm: algorithm.collective):
        first = collective
        for algorithm in members:
            link = f"[`{algorithm.name}`](#{_anchor(algorithm)})"
            about = [first, link, algorithm.requirements, _abilities(algorithm)]
            for formula in algorithm.about.formulas:
                costs = [_memory(formula), formula.steps, formula.sent, formula.read]
                lines.append(f"| {' | '.join([*about, *costs])} |")
                about = [""] * 4
            first = ""
    return "\n".join(lines) + "\n"


def _abilities(algorithm: Algorithm) -> str:
    able = ["reproducible"] * algorithm.reproducible + ["sizes per rank"] * algorithm.per_rank_sizes
    return ", ".join(able)


def _memory(formula: Formula) -> str:
    return "" if formula.memory == "any" else formula.memory


def _anchor(algorithm: Algorithm) -> str:
    """As GitHub makes it of the heading."""
    return f"{algorithm.collective}-{algorithm.name}"


def _file_name(algorithm: Algorithm) -> str:
    return f"{_anchor(algorithm)}.svg"


def _section(algorithm: Algorithm) -> str:
    about = algorithm.about
    lines = [f"\n### {algorithm.collective} `{algorithm.name}`\n", _wrapped(about.how), ""]
    lines += [_wrapped(f"*When it wins:* {about.wins}"), ""]
    lines += [f"*Needs:* {algorithm.requirements}.", ""] if algorithm.requirements else []
    lines += [_wrapped(f"*Source:* {about.source}."), ""] if about.source else []
    lines += [_wrapped(f"*By the book:* {algorithm.textbook}."), ""]
    lines += _counts(algorithm)
    lines += [
        "",
        f"![{algorithm.collective} {algorithm.full_name} on {DRAWN_RANKS} ranks]({DRAWINGS}/{_file_name(algorithm)})",
    ]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _counts(algorithm: Algorithm) -> list[str]:
    """Returns a table of the verifier's counts."""
    where = f", `{algorithm.full_name}` on hosts of {RANKS_OF_A_HOST}" if _for_units(algorithm) else ""
    heads = [f"P = {ranks}{where if ranks == COUNTED_RANKS[-1] else ''}" for ranks in COUNTED_RANKS]
    lines = [f"| memory | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    memories = [formula.memory for formula in algorithm.about.formulas]
    for memory in memories:
        of = "ordinary" if memory == "any" else memory
        cells = [_counted(_report(algorithm, ranks, of)) for ranks in COUNTED_RANKS]
        lines.append(f"| {memory} | {' | '.join(cells)} |")
    return lines


def _counted(report: Report) -> str:
    cells = [f"{report.latency_steps} step{'s' * (report.latency_steps != 1)}"]
    for name, shares in (("sent", report.sent), ("read", report.read)):
        most = max(share or 0.0 for share in shares)
        cells += [f"{name} {most:.4g} N"] if most else []
    return ", ".join(cells)


def _report(algorithm: Algorithm, ranks: int, memory: str) -> Report:
    hosts = _hosts(algorithm, ranks, RANKS_OF_A_HOST)
    planned = plan(algorithm.full_name, CallShape(algorithm.collective, ranks, hosts=hosts, memory=memory))
    if planned.report is None:
        raise RuntimeError(f"{algorithm.collective} {algorithm.full_name} on {ranks} ranks: {planned.problem}")
    return planned.report


def _for_units(algorithm: Algorithm) -> bool:
    return algorithm.units


def _hosts(algorithm: Algorithm, ranks: int, ranks_of_a_host: int) -> int:
    """On how many hosts an algorithm is counted.

    Memory is symmetric on one host only, and the counts are the same.
    """
    return max(2, ranks // ranks_of_a_host) if _for_units(algorithm) else 1


def _drawing(algorithm: Algorithm) -> str:
    hosts = 1 if algorithm.mapped == "all" else DRAWN_RANKS
    if _for_units(algorithm):
        hosts = 2
    call = CallShape(algorithm.collective, DRAWN_RANKS, hosts=hosts)
    return gantt(Machine(DRAWN_RANKS, hosts), DRAWN_BYTES, call, algorithm.full_name)
