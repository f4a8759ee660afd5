"""`weft bench`: measures a collective, weft's and other libraries' in turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.bench import launch, rows
from weft.bench.collectives import COLLECTIVES
from weft.bench.libraries import PEERS
from weft.bench.rows import Row
from weft.bench.sizes import parse_sizes, show_bytes
from weft.bench.spec import MEMORIES, THROUGH, TRANSPORTS, Spec
from weft.cli.command import Command

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8")

DESCRIPTION = """\
Starts its own ranks and measures a collective on them: weft, and other libraries in turn with it.

A sample is the slowest rank's time of one call after a start barrier; before it, every rank rewrites its
whole input. Every size is verified once, element by element. Compare libraries within one run, not across
runs: machines change their speed from one second to the next.
"""

EPILOG = """\
examples:
  weft bench all-reduce --ranks 2,4 --sizes 4:256M --memory ordinary,symmetric --peers gloo
  weft bench all-reduce --through torch --ranks 2,4 --sizes 4:64M --peers gloo
  sudo weft bench all-reduce --hosts 4 --gbps 1 --sizes 1K:16M --json out.json --plot out.png
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    names = [collective.name for collective in COLLECTIVES]
    parser.add_argument("collective", choices=names, help=", ".join(names), metavar="COLLECTIVE")
    parser.add_argument(
        "--ranks", type=_numbers, metavar="N,...", help="numbers of ranks (default: 2, or one per host)"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        default="4:64M",
        metavar="SIZES",
        help="bytes of the whole message: 4:256M, 4:1M:2 (factor 2), 1K,64K (default: %(default)s)",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="element type (default: %(default)s)")
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default="auto", help="weft's transport (default: %(default)s)"
    )
    parser.add_argument(
        "--through",
        choices=THROUGH,
        default="python",
        help="time the libraries' own calls, or torch.distributed's (default: %(default)s)",
    )
    parser.add_argument(
        "--memory",
        type=_choices(MEMORIES),
        default=["ordinary"],
        metavar="KIND,...",
        help="weft's memory: ordinary, symmetric, or both (default: ordinary)",
    )
    parser.add_argument(
        "--peers", type=_choices(tuple(PEERS)), default=[], metavar="NAME,...", help=f"compare with: {', '.join(PEERS)}"
    )
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="on N emulated hosts (needs root)")
    parser.add_argument("--gbps", type=float, metavar="G", help="line rate of emulated hosts")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        metavar="S",
        help="how long to measure each library at each size, at least 15 calls (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (needs matplotlib)")


def _run(arguments: argparse.Namespace) -> int:
    rank_counts: list[int] = arguments.ranks or [max(2, arguments.hosts)]
    if any(ranks % arguments.hosts for ranks in rank_counts):
        print(f"weft bench: --ranks must be multiples of --hosts ({arguments.hosts})", file=sys.stderr)
        return 2
    if arguments.gbps is not None and arguments.hosts == 1:
        print("weft bench: --gbps is the line rate of emulated hosts: give --hosts too", file=sys.stderr)
        return 2
    if arguments.through == "torch" and arguments.memory != ["ordinary"]:
        print("weft bench: --through torch measures tensors in ordinary memory: leave --memory out", file=sys.stderr)
        return 2
    table = Table(len(arguments.memory) + len(arguments.peers))
    found: list[Row] = []
    try:
        for ranks in rank_counts:
            with launch.shared_directory() as directory:
                spec = _spec(arguments, ranks, directory)
                table.title(spec)
                found += launch.measure(spec, table.add)
    except launch.BenchError as error:
        print(f"weft bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        rows.write(arguments.json, found)
        print(f"rows: {arguments.json}")
    if arguments.plot:
        from weft.bench import plot

        plot.draw(arguments.plot, found)
        print(f"picture: {arguments.plot}")
    return 0 if all(row.verified for row in found) else 1


def _spec(arguments: argparse.Namespace, ranks: int, directory: str) -> Spec:
    ports = launch.emulated_ports if arguments.hosts > 1 else launch.free_ports
    return Spec(
        collective=arguments.collective,
        dtype=arguments.dtype,
        sizes=arguments.sizes,
        ranks=ranks,
        hosts=arguments.hosts,
        gbps=arguments.gbps,
        through=arguments.through,
        transport=arguments.transport,
        memories=arguments.memory,
        peers=arguments.peers,
        seconds=arguments.seconds,
        ports=ports(1 + len(arguments.peers)),
        directory=directory,
    )


class Table:
    """Prints rows as they come, and with each of weft's the ratio to every peer at that size."""

    def __init__(self, contenders: int) -> None:
        self._contenders = contenders
        self._pending: list[Row] = []

    def title(self, spec: Spec) -> None:
        """Begins a new table."""
        line = "" if spec.gbps is None else f" at {spec.gbps:g} Gbit/s"
        hosts = f"{spec.hosts} emulated hosts{line}" if spec.hosts > 1 else "one host"
        through = " through torch" if spec.through == "torch" else ""
        print(f"\n{spec.collective}{through}, {spec.dtype}, {spec.ranks} ranks on {hosts}, transport {spec.transport}")
        print(
            f"{'bytes':>9} {'library':<16} {'min us':>11} {'median us':>11} {'p95 us':>11} "
            f"{'alg GB/s':>9} {'bus GB/s':>9}  peers' time / weft's"
        )

    def add(self, row: Row) -> None:
        """Takes one row; prints all rows of a size together."""
        self._pending.append(row)
        if len(self._pending) == self._contenders:
            for pending in self._pending:
                print(_line(pending, self._pending), flush=True)
            self._pending = []


def _line(row: Row, same_size: Sequence[Row]) -> str:
    name = f"{row.library} {row.memory}" if row.library == "weft" else row.library
    peers = [peer for peer in same_size if peer.library != "weft"] if row.library == "weft" else []
    ratios = "  ".join(f"{peer.library} {peer.median_us / row.median_us:.2f}x" for peer in peers)
    wrong = "" if row.verified else "  WRONG RESULT"
    return (
        f"{show_bytes(row.bytes):>9} {name:<16} {row.min_us:>11.1f} {row.median_us:>11.1f} {row.p95_us:>11.1f} "
        f"{row.algbw_gbs:>9.3f} {row.busbw_gbs:>9.3f}  {ratios}{wrong}"
    ).rstrip()


def _sizes(text: str) -> list[int]:
    try:
        return parse_sizes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _numbers(text: str) -> list[int]:
    numbers = [int(item) for item in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return numbers


def _choices(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(allowed)}")
        return names

    return parse


COMMAND = Command(
    name="bench",
    summary="measure a collective, and compare with other libraries",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
