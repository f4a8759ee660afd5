"""The command `weft hosts`: execution of a command on hosts emulated on this machine."""

import argparse
import sys

from weft.cli import values
from weft.cli.command import Command, UsageError
from weft_lab.cli import emulated_options
from weft_lab.emulation import EmulatedNetwork, EmulationError, HostLaunch, launch

DESCRIPTION = """\
Runs a command on hosts that are emulated on this machine by Linux namespaces. Each host has its own
network interface, /dev/shm, /tmp, processes, IPC and host name, and a line of the given rate to a
common switch. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and MASTER_PORT
are set for every rank, and OMP_NUM_THREADS=1 unless it is set already, as by torchrun.

With --delay-ms, a process delays every frame that the hosts send by this time, in order. It holds at most the bytes
that the lines send during the delay and 20 ms more (without --gbps: at 10 Gbit/s), and drops frames beyond that. At
1 Gbit/s the process takes a fifth of a core from the ranks; it passes at most 7 to 9 Gbit/s for all hosts together. At
the end it prints its processor time, and how exact the delays were. A single TCP stream fills a long line only if its
socket buffers hold the bytes in flight.

Needs root, and the programs ip, tc and bridge (package iproute2). Regardless of how the launcher ends, it leaves
nothing behind.
"""

EPILOG = """\
examples:
  sudo weft hosts --hosts 4 --gbps 1 --ranks-per-host 2 -- python train.py
  sudo weft hosts --hosts 2 --gbps 1 --delay-ms 20 -- python train.py
  WEFT_INTERFACE=all sudo -E weft hosts --hosts 2 --interfaces 2 --lose 1.0@5+3 -- python train.py
  sudo weft hosts --hosts 2 --forget 1@5 -- python train.py
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hosts", type=emulated_options.emulated_hosts, required=True, metavar="N", help="how many hosts"
    )
    emulated_options.add_rate(parser)
    parser.add_argument(
        "--delay-ms",
        type=emulated_options.delay_ms,
        metavar="D",
        help="delay of every frame between hosts, as on a long line: a round trip takes 2 D longer (default: no delay; "
        "with 0, frames pass through the process that would delay them)",
    )
    parser.add_argument(
        "--interfaces",
        type=emulated_options.interfaces,
        default=1,
        metavar="I",
        help="lines of every host, each of this rate and to a separate switch: eth0, eth1 ... with the addresses "
        "10.77.0.x, 10.77.1.x ... (default: %(default)s)",
    )
    parser.add_argument(
        "--lose",
        type=values.listed(emulated_options.line_loss),
        default=[],
        metavar="LOSS,...",
        help="losses of lines: 1.0@5+3 takes the line of eth0 from host 1 after 5 seconds, for 3 seconds. "
        "The interface stays up, and what it sends vanishes. 1.0:out@5+3 loses only what it sends, 1.0:in@5+3 what it "
        "receives",
    )
    parser.add_argument(
        "--forget",
        type=values.listed(emulated_options.forgetting),
        default=[],
        metavar="HOST@S,...",
        help="1@5: the TCP connections that host 1 has with others after 5 seconds are forgotten on the way, as by a "
        "translator of addresses (NAT) or a firewall that restarts: from then on their packets vanish, and those of "
        "new connections pass. 1@5:reset: the packets are answered with resets",
    )
    parser.add_argument(
        "--ranks-per-host",
        type=values.count,
        default=1,
        metavar="K",
        help="processes on every host (default: %(default)s)",
    )
    parser.add_argument(
        "--master-port",
        type=values.port,
        default=29500,
        metavar="PORT",
        help="the rendezvous port (default: %(default)s)",
    )
    parser.add_argument(
        "--share",
        type=values.existing_directory,
        action="append",
        default=[],
        metavar="DIR",
        help="a directory below /tmp or /dev/shm that all hosts see, as they see the working directory "
        "(may be given several times)",
    )
    parser.add_argument(
        "--grace",
        type=values.seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long the other ranks may continue once one has failed (default: %(default)s)",
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="the command, after --")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.interfaces > 1 and arguments.delay_ms is not None:
        raise UsageError("--interfaces and --delay-ms cannot be combined: only one line can have a delay")
    if arguments.lose and arguments.delay_ms is not None:
        raise UsageError("--lose and --delay-ms cannot be combined: lines with a delay cannot be lost")
    if arguments.forget and arguments.delay_ms is not None:
        raise UsageError("--forget and --delay-ms cannot be combined: frames take another way with a delay")


def _run(arguments: argparse.Namespace) -> int:
    try:
        return launch(
            HostLaunch(
                network=EmulatedNetwork(arguments.hosts, arguments.gbps, arguments.delay_ms, arguments.interfaces),
                command=arguments.command,
                ranks_per_host=arguments.ranks_per_host,
                master_port=arguments.master_port,
                shared=arguments.share,
                grace_s=arguments.grace,
                losses=arguments.lose,
                forgettings=arguments.forget,
            )
        )
    except EmulationError as error:
        print(f"weft hosts: {error}", file=sys.stderr)
        return 1


COMMAND = Command(
    name="hosts",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
