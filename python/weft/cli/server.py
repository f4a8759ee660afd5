"""The command `weft server`: a parameter server that runs until it is stopped."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from weft.cli import values
from weft.cli.command import Command
from weft.errors import Error

DESCRIPTION = """\
A parameter server: keeps a shard of a model for the workers of a job (weft.torch.parameter_server.Worker), updates
it with the gradients that they push, and outlives each of them. A job has one or more servers, and its workers get
the addresses of all, in the same order. A server learns model, optimizer and staleness from the first worker.

With --directory, everything that was acknowledged is first written there: start a server that was killed again
by the same command, and training continues from there. With --second, it is also sent to another server, started
before, which takes over when this one is lost; pass workers both as host1:port1+host2:port2.

As with ranks, an address other than loopback needs WEFT_SECRET (or certificates), and WEFT_ENCRYPT encrypts.
Ends at SIGTERM or Ctrl-C, after writing its shard. Needs torch.
"""

EPILOG = """\
examples:
  weft server --listen 10.0.0.7:29600 --directory /var/lib/weft/shard0
  weft server --listen 10.0.0.8:29600
  weft server --listen 10.0.0.7:29600 --second 10.0.0.8:29600
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", type=values.address, required=True, metavar="HOST:PORT", help="the address that workers use"
    )
    parser.add_argument(
        "--directory", type=values.directory, metavar="DIR", help="directory for the shard (default: none)"
    )
    parser.add_argument(
        "--seconds",
        type=values.seconds,
        default=30.0,
        metavar="S",
        help="how often the shard is written, and a new journal of pushes begun (default: %(default)s)",
    )
    parser.add_argument(
        "--journal-bytes",
        type=values.size,
        default=1 << 30,
        metavar="N",
        help="or when the journal has this many bytes (default: 1G)",
    )
    parser.add_argument(
        "--sync",
        action="store_true",
        help="acknowledge a push only when it is on disk, so that it survives a loss of power",
    )
    parser.add_argument(
        "--second", type=values.address, metavar="HOST:PORT", help="a server that gets everything, and may take over"
    )
    parser.add_argument(
        "--shard-bytes", type=values.size, default=64 << 30, metavar="N", help="refuse larger shards (default: 64G)"
    )
    parser.add_argument(
        "--message-bytes", type=values.size, default=1 << 30, metavar="N", help="refuse larger messages (default: 1G)"
    )
    parser.add_argument(
        "--workers", type=values.count, default=256, metavar="N", help="refuse more workers (default: %(default)s)"
    )
    parser.add_argument(
        "--rejoin",
        type=values.at_least(0.0),
        default=10.0,
        metavar="S",
        help="after a start from --directory, wait this long for the workers that were there (default: %(default)s)",
    )


def _run(arguments: argparse.Namespace) -> int:
    try:
        _serve(arguments)
    except Error as error:
        print(f"weft server: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(arguments: argparse.Namespace) -> None:
    from weft.torch.parameter_server import Journal, Limits, Server, Service, ServiceOptions

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    journal = None
    if arguments.directory is not None:
        journal = Journal(
            arguments.directory,
            seconds=arguments.seconds,
            journal_bytes=arguments.journal_bytes,
            sync=arguments.sync,
        )
    options = ServiceOptions(arguments.shard_bytes, arguments.workers, arguments.rejoin)
    service = Service(options, journal)
    limits = Limits(tensor_bytes=arguments.message_bytes)
    with Server(arguments.listen, service, limits=limits, second=arguments.second):
        print(f"weft server: serving at {arguments.listen}", flush=True)
        ended.wait()


COMMAND = Command(
    name="server",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
