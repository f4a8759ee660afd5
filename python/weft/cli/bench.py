"""The command `weft bench`: measurement of a collective of weft and other libraries in turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from weft import config
from weft.bench import accuracy, launch, peers, pipeline, rows, table
from weft.bench.collectives import BARRIER, COLLECTIVES
from weft.bench.peers.install import install
from weft.bench.rows import BenchRow
from weft.bench.sizes import parse_sizes
from weft.bench.spec import MEMORIES, RING, THROUGH, TRANSPORTS, Spec
from weft.cli.command import Command
from weft.emulation import EmulatedNetwork, EmulationError

_SIZES = "4:64M"
_ROUNDS = 5
DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8")

PEERS = ("gloo", *(peer.name for peer in peers.PEERS), RING)
"""Gloo comes with torch, and weft-ring is weft's; the others are installed by `--install-peers`."""

DESCRIPTION = """\
Starts its own ranks and measures a collective on them, or a message to and fro: weft, other libraries
and floors, in turn.

A sample is the slowest rank's time of one call after a start barrier; before it, every rank rewrites its
whole input. One loop in Rust times all of them; weft is called through its Rust API, MPI through its C API.
At each size the contenders take turns in rounds, all others asleep; what is shown is the median of
the rounds' medians, and by how much the round farthest from it differs. Every size is verified once,
element by element. Compare libraries within one run, not across runs: machines change their
speed from one second to the next.

Processor time is measured after a turn's samples, in a window of some 0.1 s or more of calls made one behind
another, with no barrier and no rewriting between them: what a user pays, background threads included. "cpu ms" is user
and system time of all threads of all ranks' processes, per call. "busy ms" is what the machine's cores were
busy, per call: cores x window - idle, whoever the kernel bills it to. The kernel tells it in steps of 10 ms, and
it includes whatever else runs on the machine: for figures to rely on, leave the machine alone and let windows take
2 s in all (--processor-seconds). --busy N runs N processes of arithmetic beside every turn, pinned to no core;
nothing is idle then, and "busy ms" stays empty.

ping-pong is a message from rank 0 to rank 1 and one back, by blocking calls: its time is the round trip's.
Ranks 2 and 3 play at the same time, and so on. A barrier moves no message, whatever the size.

Floors, on one host: the time that no library can go below. `prototype` (2 ranks) is a bare all-reduce: two
flags, each rank adds its half of both buffers and writes the sum to both. `add`: as many vectors as ranks,
added by all cores, the sum written to each. `flags`: a round trip between two cores. `memcpy`: a copy of the
message. "of floor" is the floor's part of a library's time: the prototype's, for other numbers of ranks
add's and flags' together.

On emulated hosts, peers are started on them by their own launchers, with their settings for TCP, and every
library has its own line. Floors there: `tcp streams` (one rank a host) is a bare all-reduce, one stream to every
other rank, all at once, what arrives added; `tcp stream` the rate B of one stream of the line, in buffers large
enough for its delay; `tcp poll` and `tcp block` a byte to another host and one back, by sockets that are polled,
or that block. "of bound" is what part of an all-reduce's time H hosts' lines need for its bytes:
2 (H - 1) / H x message / B, and with --delay-ms the delay besides.

--delay-ms makes a process for every library's hosts, which takes processor time of its own, told at the end; see
`weft hosts --help`.

--wire measures weft in these wire formats too, beside full precision. Such a result is right if its error lies
within the format's stated bound (docs/how-to/wire.md). Its rates, and what is "of bound", count the message in full.

--encrypt measures weft with these ciphers too (WEFT_ENCRYPT), as peers: their time as a multiple of weft's is what
encryption costs.
"""

EPILOG = """\
examples:
  weft bench all-reduce --ranks 2,4 --sizes 4:256M --memory ordinary,symmetric --peers gloo
  weft bench ping-pong --ranks 2 --sizes 4:1M --peers openmpi,intel-mpi
  weft bench --install-peers
  weft bench all-reduce --ranks 2 --memory ordinary,symmetric --peers openmpi,intel-mpi
  weft bench all-reduce --through torch --ranks 2,4 --sizes 4:64M --peers gloo
  weft bench pipeline-experiment --json out.json --plot out.png
  weft bench all-reduce --ranks 2 --busy 1 --sizes 4:1M --peers openmpi,intel-mpi
  sudo weft bench all-reduce --hosts 4 --gbps 1 --sizes 1K:16M --json out.json --plot out.png
  sudo weft bench all-reduce --hosts 4 --gbps 1 --peers openmpi,mpich,intel-mpi,gloo --processor-seconds 2
  sudo weft bench all-reduce --hosts 4 --gbps 1 --delay-ms 20 --sizes 4:64M
  sudo weft bench all-reduce --hosts 4 --gbps 1 --wire bf16,fp8_e4m3 --sizes 64K:64M
  sudo weft bench all-reduce --hosts 4 --gbps 1 --encrypt aes-gcm,chacha20-poly1305 --sizes 4:64M
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    names = [collective.name for collective in COLLECTIVES]
    parser.add_argument(
        "collective",
        nargs="?",
        choices=[*names, pipeline.NAME],
        metavar="COLLECTIVE",
        help=f"{', '.join(names)}; {pipeline.NAME}: all-reduce of 256M by 8 ranks, 10 runs each, against "
        f"{', '.join(pipeline.PEERS)} and {RING}; medians with 95 %% intervals, no rehearsal",
    )
    parser.add_argument(
        "--ranks", type=_numbers, metavar="N,...", help="numbers of ranks (default: 2, or one per host)"
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="SIZES",
        help="bytes of the whole message: 4:256M, 4:1M:2 (factor 2), 1K,64K (default: 4:64M; a barrier's: 4)",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="element type (default: %(default)s)")
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default="auto", help="weft's transport (default: %(default)s)"
    )
    parser.add_argument(
        "--through",
        choices=THROUGH,
        default="library",
        help="time the libraries' own calls, or torch.distributed's (default: %(default)s)",
    )
    parser.add_argument(
        "--memory",
        type=_choices(MEMORIES),
        metavar="KIND,...",
        help="weft's memory: ordinary, symmetric, or both (default: ordinary)",
    )
    parser.add_argument(
        "--peers",
        type=_choices(PEERS),
        metavar="NAME,...",
        help=f"compare with: {', '.join(PEERS)} (openmpi-raben: its Rabenseifner all-reduce; mpich-ring: its ring; "
        f"baidu-ring: over Open MPI's messages; {RING}: weft's ring, one tile at a time)",
    )
    parser.add_argument(
        "--install-peers",
        action="store_true",
        help="install the peers, or those that --peers names, from PyPI into the user's cache, and build what calls "
        "them (needs a C compiler); Gloo comes with torch",
    )
    parser.add_argument("--hosts", type=int, default=1, metavar="N", help="on N emulated hosts (needs root)")
    parser.add_argument("--gbps", type=float, metavar="G", help="line rate of emulated hosts")
    parser.add_argument(
        "--delay-ms",
        type=float,
        metavar="D",
        help="how much later what an emulated host sends reaches another: a round trip takes 2 D longer",
    )
    parser.add_argument(
        "--wire",
        type=_choices(tuple(accuracy.ROUNDINGS)),
        metavar="FORMAT,...",
        help=f"measure weft in these wire formats too: {', '.join(accuracy.ROUNDINGS)}",
    )
    parser.add_argument(
        "--encrypt",
        type=_choices(config.CIPHERS),
        metavar="CIPHER,...",
        help=f"measure weft with these ciphers too: {', '.join(config.CIPHERS)}",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        metavar="S",
        help="how long to measure each library at each size, if that is more than the fewest calls "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--processor-seconds",
        type=float,
        default=0.5,
        metavar="S",
        help="how long to measure each library's processor time at each size; 0: not at all (default: %(default)s)",
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="N",
        help="run N processes of pure arithmetic beside every library's turns (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"turns of each library at each size (default: {_ROUNDS})"
    )
    parser.add_argument("--no-floors", dest="floors", action="store_false", help="leave the floors out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture (needs matplotlib)")


def _run(arguments: argparse.Namespace) -> int:
    wrong = _mistake(arguments)
    if wrong is not None:
        print(f"weft bench: {wrong}", file=sys.stderr)
        return 2
    try:
        if arguments.install_peers:
            asked = [peer for peer in peers.PEERS if not arguments.peers or peer.name in arguments.peers]
            install(asked, lambda line: print(line, flush=True))
        if arguments.collective is None:
            return 0
        run = _experiment if arguments.collective == pipeline.NAME else _measure
        found = run(arguments)
    except launch.BenchError as error:
        print(f"weft bench: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        rows.write(arguments.json, found)
        print(f"rows: {arguments.json}")
    if arguments.plot:
        from weft.bench import plot

        draw = pipeline.draw if arguments.collective == pipeline.NAME else plot.draw
        draw(arguments.plot, found)
        print(f"picture: {arguments.plot}")
    return 0 if all(row.verified for row in found) else 1


def _measure(arguments: argparse.Namespace) -> list[BenchRow]:
    found: list[BenchRow] = []
    for ranks in arguments.ranks or [max(2, arguments.hosts)]:
        with launch.shared_directory() as directory:
            spec = _spec(arguments, ranks, directory)
            print(table.title(spec))
            found += launch.measure(spec, _show)
    return found


def _experiment(arguments: argparse.Namespace) -> list[BenchRow]:
    found: list[BenchRow] = []
    for ranks in arguments.ranks or [pipeline.RANKS]:
        for size in arguments.sizes or [pipeline.BYTES]:
            with launch.shared_directory() as directory:
                runs = arguments.rounds or pipeline.RUNS
                asked = pipeline.PEERS if arguments.peers is None else arguments.peers
                spec = pipeline.spec(directory, size=size, ranks=ranks, runs=runs, peers=asked)
                rows_of_size = pipeline.measure(spec)
            print(pipeline.table(rows_of_size), flush=True)
            found += rows_of_size
    return found


def _mistake(arguments: argparse.Namespace) -> str | None:
    """What does not fit together."""
    if arguments.collective is None and not arguments.install_peers:
        return f"which collective? One of {', '.join(collective.name for collective in COLLECTIVES)}"
    if arguments.rounds is not None and arguments.rounds < 1:
        return f"--rounds {arguments.rounds}: at least 1"
    if arguments.busy < 0:
        return f"--busy {arguments.busy}: at least 0"
    if arguments.processor_seconds < 0:
        return f"--processor-seconds {arguments.processor_seconds:g}: at least 0"
    if arguments.collective == pipeline.NAME and (arguments.hosts > 1 or arguments.through == "torch"):
        return f"{pipeline.NAME} is measured on one host, library by library: leave --hosts and --through out"
    return (
        _mistaken_hosts(arguments)
        or _mistaken_wire(arguments)
        or _mistaken_encryption(arguments)
        or _mistaken_peers(arguments)
    )


def _mistaken_hosts(arguments: argparse.Namespace) -> str | None:
    """What does not fit to the hosts."""
    try:
        EmulatedNetwork(arguments.hosts, arguments.gbps, arguments.delay_ms)
    except EmulationError as error:
        return str(error)
    if any(ranks % arguments.hosts for ranks in arguments.ranks or []):
        return f"--ranks must be multiples of --hosts ({arguments.hosts})"
    if arguments.gbps is not None and arguments.hosts == 1:
        return "--gbps is the line rate of emulated hosts: give --hosts too"
    if arguments.delay_ms is not None and arguments.hosts == 1:
        return "--delay-ms is the delay between emulated hosts: give --hosts too"
    return None


def _mistaken_wire(arguments: argparse.Namespace) -> str | None:
    """What does not fit to the wire formats."""
    if arguments.wire is None:
        return None
    if arguments.collective in (None, pipeline.NAME):
        return "--wire is for collectives that are measured in turn: name one"
    if arguments.hosts == 1 and arguments.transport != "tcp":
        return "--wire says how elements travel between ranks that share no memory: give --hosts, or --transport tcp"
    refused = (accuracy.refusal(wire, arguments.collective, arguments.dtype) for wire in arguments.wire)
    return next((f"--wire: {why}" for why in refused if why is not None), None)


def _mistaken_encryption(arguments: argparse.Namespace) -> str | None:
    """What does not fit to the ciphers."""
    if arguments.encrypt is None:
        return None
    if arguments.collective in (None, pipeline.NAME) or arguments.through == "torch":
        return "--encrypt is for collectives of the library that are measured in turn: name one, without --through"
    if arguments.hosts == 1 and arguments.transport != "tcp":
        return "--encrypt is about what travels between ranks that share no memory: give --hosts, or --transport tcp"
    return None


def _mistaken_peers(arguments: argparse.Namespace) -> str | None:
    """What does not fit to the peers."""
    others = [name for name in arguments.peers or [] if name != "gloo"]
    if others and arguments.through == "torch":
        return f"--through torch: {others[0]} is no backend of torch; gloo is"
    if others and arguments.dtype not in peers.DTYPES:
        return f"--peers {others[0]} adds {', '.join(peers.DTYPES)}: not {arguments.dtype}"
    collective = "all-reduce" if arguments.collective in (None, pipeline.NAME) else arguments.collective
    for name in others:
        known = ("all-reduce",) if name == RING else peers.find(name).collectives
        if collective not in known:
            return f"--peers {name} is compared in {', '.join(known)}: not in {collective}"
    return None


def _spec(arguments: argparse.Namespace, ranks: int, directory: str) -> Spec:
    ports = launch.emulated_ports if arguments.hosts > 1 else launch.free_ports
    return Spec(
        collective=arguments.collective,
        dtype=arguments.dtype,
        sizes=arguments.sizes or _sizes("4" if arguments.collective == BARRIER else _SIZES),
        ranks=ranks,
        hosts=arguments.hosts,
        gbps=arguments.gbps,
        through=arguments.through,
        transport=arguments.transport,
        memories=arguments.memory or ["ordinary"],
        peers=arguments.peers or [],
        seconds=arguments.seconds,
        rounds=arguments.rounds or _ROUNDS,
        floors=arguments.floors and arguments.through == "library",
        ports=ports(2),
        directory=directory,
        processor_seconds=arguments.processor_seconds,
        neighbours=arguments.busy,
        delay_ms=arguments.delay_ms,
        wires=arguments.wire or [],
        ciphers=arguments.encrypt or [],
    )


def _show(same_size: Sequence[BenchRow]) -> None:
    for row in same_size:
        print(table.line(row, same_size), flush=True)


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
