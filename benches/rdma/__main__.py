"""The command `python -m benches.rdma`: all-reduce over verbs, over TCP and by other libraries.

`make bench-rdma` runs it in the virtual machine of `tests/rdma/vm.sh`, whose devices are emulated
and slow: ratios within a block mean something there, times do not. A block measures every contender
once; ratios are of one block, so that changes of the machine's speed between blocks do not matter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benches import record
from benches.rdma.ratios import RatioTable
from weft.processes.local_ranks import RanksError
from weft.processes.ports import free_ports
from weft.quantities import parse_sizes
from weft_lab.bench import launch
from weft_lab.bench.rows import BenchRow
from weft_lab.bench.spec import Spec

_SECONDS = 0.5


def main() -> int:
    """Runs it."""
    arguments = _arguments()
    found = RatioTable()
    try:
        for block in range(arguments.blocks):
            print(f"block {block + 1} of {arguments.blocks}", flush=True)
            for transport in ("rdma", "tcp"):
                found.add(_measured(arguments, transport))
    except RanksError as error:
        print(f"benches.rdma: {error}", file=sys.stderr)
        return 1
    text = found.text()
    print(text)
    if arguments.output:
        title = f"All-reduce over RDMA, {datetime.now(UTC).date()}"
        record.write(arguments.output, title, found.to_value(), text)
    return 0 if found.verified else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.rdma", description=__doc__)
    parser.add_argument("--sizes", type=parse_sizes, default=parse_sizes("64K:16M"), metavar="SIZES")
    parser.add_argument("--ranks", type=int, default=2, metavar="N")
    parser.add_argument("--blocks", type=int, default=7, metavar="N")
    parser.add_argument("--peers", type=lambda text: text.split(","), default=[], metavar="NAME,...")
    parser.add_argument(
        "--registration",
        type=lambda text: text.split(","),
        default=[],
        metavar="WAY,...",
        help="also measure RDMA in these ways to register memory: handle, pipelined, per-call",
    )
    parser.add_argument("--output", type=Path, metavar="DIRECTORY", help="write rows, table and README.md")
    return parser.parse_args()


def _measured(arguments: argparse.Namespace, transport: str) -> Sequence[BenchRow]:
    """One contender or, with TCP, all others, at every size."""
    with launch.shared_directory() as directory:
        spec = Spec(
            collective="all-reduce",
            dtype="float32",
            sizes=arguments.sizes,
            ranks=arguments.ranks,
            hosts=1,
            gbps=None,
            through="library",
            transport=transport,
            memories=["ordinary"],
            peers=arguments.peers if transport == "tcp" else [],
            registrations=arguments.registration if transport == "rdma" else [],
            seconds=_SECONDS,
            rounds=1,
            floors=False,
            ports=free_ports(2),
            directory=directory,
        )
        return launch.measure(spec, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
