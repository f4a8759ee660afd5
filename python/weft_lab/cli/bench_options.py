"""Options of `weft bench`, and combinations that are not allowed."""

from __future__ import annotations

import argparse

from weft import _weft
from weft.cli import values
from weft.cli.collective_names import usual
from weft.cli.command import UsageError
from weft.quantities import FACTOR, parse_sizes, steps
from weft.settings import CIPHERS
from weft_lab.bench import accuracy, elements, one_sided, peers, pipeline
from weft_lab.bench.collectives import BARRIER, COLLECTIVES, OUT_OF_PLACE, PING_PONG
from weft_lab.bench.spec import GLOO, MEMORIES, REGISTRATIONS, RING, THROUGH, TRANSPORTS
from weft_lab.cli import emulated_options
from weft_lab.cli.plot_option import add_plot

__all__ = ["PLACES", "ROUNDS", "add_arguments", "check", "sizes"]

ROUNDS = 5
PLACES = {"in": ["in"], "out": ["out"], "both": ["in", "out"]}
_LARGEST = 64 << 20

PEERS = (GLOO, *(peer.name for peer in peers.PEERS), RING)
"""Gloo comes with torch, and weft-ring is weft's; the others are installed by `--install-peers`."""
_OTHERS = (None, one_sided.NAME, pipeline.NAME)
"""Measurements that replace a collective that is measured in turn with others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds all of them."""
    names = [collective.name for collective in COLLECTIVES]
    parser.add_argument(
        "collective",
        nargs="?",
        type=usual,
        choices=[*names, one_sided.NAME, pipeline.NAME],
        metavar="COLLECTIVE",
        help=f"{', '.join(names)}, also as others spell them (allreduce, all_gather, bcast ...); {one_sided.NAME}: "
        f"{', '.join(one_sided.OPERATIONS)} between {one_sided.RANKS} ranks; {pipeline.NAME}: "
        f"all-reduce of 256M by 8 ranks, 10 runs each, against "
        f"{', '.join(pipeline.PEERS)} and {RING}; medians with 95 %% intervals, no rehearsal",
    )
    parser.add_argument(
        "--ranks",
        type=values.listed(values.count),
        metavar="N,...",
        help="numbers of ranks (default: 2, or one per host)",
    )
    _add_messages(parser)
    _add_contenders(parser)
    _add_hosts(parser)
    _add_effort(parser)
    parser.add_argument(
        "--floors",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="measure the floors too (default: no)",
    )
    parser.add_argument("--csv", action="store_true", help="print comma-separated values in place of tables")
    parser.add_argument(
        "--json", type=values.output_file(values.DATA), metavar="FILE", help="write the rows as JSON (.json)"
    )
    parser.add_argument(
        "--record",
        type=values.output_file(values.DATA),
        metavar="FILE",
        help="write one file to send: rows, command, and what `weft doctor` finds here (.json)",
    )
    add_plot(parser)
    parser.add_argument(
        "--stages",
        type=values.output_file((".svg",)),
        metavar="FILE",
        help="draw what rank 0 does with the tiles of one call of the largest message (.svg)",
    )


def _add_messages(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sizes",
        type=values.sizes,
        metavar="SIZES",
        help="bytes of the whole message: 4:256M, 4:1M:2 (factor 2), 1K,64K (default: 4:64M; a barrier's: 4)",
    )
    parser.add_argument("-b", "--minbytes", type=values.size, metavar="BYTES", help="the smallest message (default: 4)")
    parser.add_argument("-e", "--maxbytes", type=values.size, metavar="BYTES", help="the largest one (default: 64M)")
    parser.add_argument(
        "-f",
        "--stepfactor",
        type=values.at_least(2),
        metavar="F",
        help=f"factor between sizes (default: {FACTOR}; with -m 2)",
    )
    parser.add_argument(
        "-m", "--message-size", metavar="[MIN:]MAX", type=_range, help="the smallest and the largest message"
    )
    parser.add_argument(
        "-d",
        "--dtype",
        type=lambda name: elements.ALIASES.get(name, name),
        choices=elements.ELEMENT_TYPES,
        default="float32",
        metavar="TYPE",
        help=f"element type: {', '.join(elements.ELEMENT_TYPES)}, or half, float, double ... (default: %(default)s)",
    )
    parser.add_argument(
        "--place",
        choices=tuple(PLACES),
        default="in",
        help=f"where the results of {' and '.join(OUT_OF_PLACE)} are written: into the input's memory, into other "
        f"memory, or both in turn; {GLOO} and {RING} know the first only (default: %(default)s)",
    )


def _add_contenders(parser: argparse.ArgumentParser) -> None:
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
        type=values.choices(MEMORIES),
        metavar="KIND,...",
        help="weft's memory: ordinary, symmetric, or both (default: ordinary)",
    )
    parser.add_argument(
        "--peers",
        type=values.choices(PEERS),
        metavar="NAME,...",
        help=f"compare with: {', '.join(PEERS)} (openmpi-raben: its Rabenseifner all-reduce; mpich-ring: its ring; "
        f"baidu-ring: over Open MPI's messages; -ucx: by UCX over RDMA devices; {RING}: weft's ring, one tile at a "
        "time)",
    )
    parser.add_argument(
        "--install-peers",
        action="store_true",
        help="install the peers, or those that --peers names, from PyPI into the user's cache, and build the shims "
        "that call them (needs a C compiler); Gloo comes with torch",
    )
    parser.add_argument(
        "--wire",
        type=values.choices(tuple(accuracy.ROUNDINGS)),
        metavar="FORMAT,...",
        help=f"measure weft in these wire formats too: {', '.join(accuracy.ROUNDINGS)}",
    )
    parser.add_argument(
        "--encrypt",
        type=values.choices(CIPHERS),
        metavar="CIPHER,...",
        help=f"measure weft with these ciphers too: {', '.join(CIPHERS)}",
    )
    parser.add_argument(
        "--registration",
        type=values.choices(REGISTRATIONS),
        metavar="WAY,...",
        help=f"with --transport rdma: measure these ways to register ordinary memory: {', '.join(REGISTRATIONS)}",
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    emulated_options.add_hosts(parser)
    emulated_options.add_rate(parser)
    parser.add_argument(
        "--delay-ms",
        type=emulated_options.delay_ms,
        metavar="D",
        help="delay of every frame between emulated hosts: a round trip takes 2 D longer",
    )


def _add_effort(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=values.seconds,
        default=0.5,
        metavar="S",
        help="how long to measure each library at each size, with at least a few calls (default: %(default)s)",
    )
    parser.add_argument(
        "-i",
        "-n",
        "--iterations",
        type=values.within(1, _weft.ControlBlock.SAMPLES_MAX),
        metavar="N",
        help="number of measured calls of each library at each size, in place of --seconds",
    )
    parser.add_argument(
        "-x",
        "-w",
        "--warmup",
        type=values.within(0, _weft.ControlBlock.SAMPLES_MAX),
        default=0,
        metavar="N",
        help="warm-up calls at each size, which are not counted (default: the one that is verified, and a few more)",
    )
    parser.add_argument(
        "--processor-seconds",
        type=values.seconds,
        default=0.5,
        metavar="S",
        help="how long to measure each library's processor time at each size; 0: not at all (default: %(default)s)",
    )
    parser.add_argument(
        "--busy",
        type=values.within(0, 1024),
        default=0,
        metavar="N",
        help="run N processes of pure arithmetic beside every library's turns (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=values.count, metavar="N", help=f"turns of each library at each size (default: {ROUNDS})"
    )


def _range(text: str) -> tuple[int | None, int]:
    smallest, sign, largest = text.rpartition(":")
    return (values.size(smallest) if sign else None), values.size(largest)


def sizes(arguments: argparse.Namespace) -> list[int]:
    """The requested sizes in bytes that messages of this many ranks can have.

    Raises `UsageError` if there are none, or elements would have to be divided.
    """
    element = elements.find(arguments.dtype)
    found: list[int] = arguments.sizes or _stepped(arguments, element.itemsize)
    for size in found:
        if size % element.itemsize:
            raise UsageError(
                f"{size} bytes are not a whole number of elements: {element.name} has {element.itemsize} bytes; "
                f"give sizes that are multiples of {element.itemsize}"
            )
    return found


def _stepped(arguments: argparse.Namespace, itemsize: int) -> list[int]:
    """The sizes of -b, -e, -f and -m, or the default."""
    if arguments.collective == BARRIER and arguments.minbytes is None:
        return parse_sizes(str(itemsize))
    first, last = arguments.message_size or (arguments.minbytes, arguments.maxbytes)
    factor = arguments.stepfactor or (2 if arguments.message_size else FACTOR)
    first = first or max(4, itemsize)
    last = last or max(first, _LARGEST)
    try:
        return steps(first, last, factor, f"{first}:{last}")
    except ValueError as error:
        raise UsageError(f"sizes {error}") from None


def check(arguments: argparse.Namespace) -> None:
    """Raises `UsageError` if something does not fit together."""
    if arguments.collective is None and not arguments.install_peers:
        raise UsageError(f"which collective? One of {', '.join(collective.name for collective in COLLECTIVES)}")
    for check_part in (_check_experiment, _check_one_sided, _check_sizes, _check_hosts, _check_place, _check_wire):
        check_part(arguments)
    _check_encryption(arguments)
    _check_registration(arguments)
    _check_stages(arguments)
    _check_peers(arguments)


def _check_experiment(arguments: argparse.Namespace) -> None:
    if arguments.collective == pipeline.NAME and (arguments.hosts > 1 or arguments.through == "torch"):
        raise UsageError(
            f"{pipeline.NAME} is measured on one host, library by library: leave --hosts and --through out"
        )


def _check_one_sided(arguments: argparse.Namespace) -> None:
    if arguments.collective != one_sided.NAME:
        return
    if arguments.ranks not in (None, [one_sided.RANKS]) or arguments.hosts > one_sided.RANKS:
        raise UsageError(f"{one_sided.NAME} is measured between {one_sided.RANKS} ranks: leave --ranks out")
    unfit = {
        "--through torch": arguments.through == "torch",
        "--memory": arguments.memory,
        "--peers": arguments.peers and not arguments.install_peers,
        "--busy": arguments.busy,
        "--floors": arguments.floors,
    }
    for option, given in unfit.items():
        if given:
            raise UsageError(f"{option} is for collectives: {one_sided.NAME} is measured without")


def _check_sizes(arguments: argparse.Namespace) -> None:
    stepped = [
        name
        for name, value in (
            ("-b", arguments.minbytes),
            ("-e", arguments.maxbytes),
            ("-f", arguments.stepfactor),
            ("-m", arguments.message_size),
        )
        if value is not None
    ]
    if arguments.sizes and stepped:
        raise UsageError(f"--sizes and {stepped[0]} both say which sizes: give one of them")
    if arguments.message_size and (arguments.minbytes or arguments.maxbytes):
        raise UsageError("-m says what -b and -e say: give one of them")
    if arguments.collective is None:
        return
    sizes(arguments)
    most = elements.EXACT_RANKS_MAX.get(arguments.dtype)
    if most is not None and max(arguments.ranks or [arguments.hosts]) > most:
        raise UsageError(f"--dtype {arguments.dtype}: results can be verified exactly with up to {most} ranks")


def _check_hosts(arguments: argparse.Namespace) -> None:
    for ranks in arguments.ranks or []:
        if ranks % arguments.hosts:
            raise UsageError(f"--ranks {ranks}: it must be a multiple of --hosts ({arguments.hosts})")
    if arguments.gbps is not None and arguments.hosts == 1:
        raise UsageError("--gbps is the line rate of emulated hosts: give --hosts too")
    if arguments.delay_ms is not None and arguments.hosts == 1:
        raise UsageError("--delay-ms is the delay between emulated hosts: give --hosts too")


def _check_place(arguments: argparse.Namespace) -> None:
    if arguments.place == "in":
        return
    if arguments.collective not in OUT_OF_PLACE or arguments.through == "torch":
        raise UsageError(f"--place {arguments.place} is for the library's own {' and '.join(OUT_OF_PLACE)}")


def _check_wire(arguments: argparse.Namespace) -> None:
    if arguments.wire is None:
        return
    if arguments.collective in _OTHERS:
        raise UsageError("--wire is for collectives that are measured in turn: name one")
    if arguments.hosts == 1 and arguments.transport != "tcp":
        raise UsageError(
            "--wire is the format of elements between ranks that share no memory: give --hosts, or --transport tcp"
        )
    for wire in arguments.wire:
        refused = accuracy.refusal(wire, arguments.collective, arguments.dtype)
        if refused is not None:
            raise UsageError(f"--wire: {refused}")


def _check_encryption(arguments: argparse.Namespace) -> None:
    if arguments.encrypt is None:
        return
    if arguments.collective in _OTHERS or arguments.through == "torch":
        raise UsageError(
            "--encrypt is for collectives of the library that are measured in turn: name one, without --through"
        )
    if arguments.hosts == 1 and arguments.transport != "tcp":
        raise UsageError("--encrypt is for data between ranks that share no memory: give --hosts, or --transport tcp")


def _check_registration(arguments: argparse.Namespace) -> None:
    if arguments.registration is None:
        return
    if arguments.collective in (*_OTHERS, PING_PONG, BARRIER) or arguments.through == "torch":
        raise UsageError("--registration is for collectives of the library that move data: name one, without --through")
    if arguments.transport != "rdma":
        raise UsageError("--registration is about memory that RDMA adapters read: give --transport rdma")


def _check_stages(arguments: argparse.Namespace) -> None:
    if arguments.stages is None:
        return
    if arguments.collective in (*_OTHERS, PING_PONG) or arguments.through == "torch":
        raise UsageError("--stages is for collectives of the library: name one, without --through")
    if len(arguments.ranks or []) > 1:
        raise UsageError("--stages draws one call: give one number of --ranks")


def _check_peers(arguments: argparse.Namespace) -> None:
    others = [name for name in arguments.peers or [] if name != "gloo"]
    if others and arguments.through == "torch":
        raise UsageError(f"--through torch: {others[0]} is not a backend of torch; gloo is")
    if others and arguments.dtype not in peers.DTYPES:
        raise UsageError(f"--peers {others[0]} adds {', '.join(peers.DTYPES)}: not {arguments.dtype}")
    collective = "all-reduce" if arguments.collective in _OTHERS else arguments.collective
    for name in others:
        known = ("all-reduce",) if name == RING else peers.find(name).collectives
        if collective not in known:
            raise UsageError(f"--peers {name} is compared in {', '.join(known)}: not in {collective}")
