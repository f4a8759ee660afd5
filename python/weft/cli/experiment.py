"""The command `weft experiment`: training as published experiments trained, compared."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from weft import config
from weft.bench.processes import BenchError
from weft.cli.command import Command
from weft.cli.options import at_least
from weft.emulation import EmulatedNetwork, EmulationError, require_root
from weft.errors import ConfigError
from weft.experiment.study import CONTENDERS, StudyResult

MODELS = ("alexnet", "vgg16", "resnet50", "bert-base", "lenet", "mlp")

DESCRIPTION = f"""\
overlap: how long a step of training takes by several ways of averaging gradients, in turn in one run:

{chr(10).join(f"  {name:10} {what}" for name, what in CONTENDERS.items())}

The networks have their published sizes, backward is real, the data are random. On emulated hosts, which share this
machine's cores, --ratio chooses the line rate such that communication alone takes so many times as long as computation
does: that is what decides how much can be hidden. Prints a table with the bound of exact overlap, and writes what it
measured, and a picture, into a directory. A run that is called again goes on where it ended. Needs torch.

Under torchrun, or another launcher, it measures the machines that the ranks are on: the same command on every rank,
without --hosts and --ratio.
"""

EPILOG = """\
examples:
  sudo weft experiment overlap --model alexnet --hosts 4 --ratio 0.5,1,2
  sudo weft experiment overlap --model resnet50 --hosts 4 --gbps 1 --batch 8 --contenders compute,ddp-gloo,automatic
  torchrun --nnodes 4 --nproc-per-node 1 --rdzv-endpoint host0:29400 -m weft.cli experiment overlap --model alexnet
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=["overlap"], help="the experiment")
    parser.add_argument(
        "--model",
        type=_models,
        default=["alexnet"],
        metavar="NAME,...",
        help=f"of {', '.join(MODELS)}, or all (default: alexnet)",
    )
    parser.add_argument(
        "--hosts", type=at_least(1), default=1, metavar="N", help="emulated hosts (needs root; default: none)"
    )
    parser.add_argument(
        "--ranks", type=at_least(1), metavar="N", help="processes (default: one per host; 2 on one host)"
    )
    line = parser.add_mutually_exclusive_group()
    line.add_argument("--gbps", type=float, metavar="G", help="line rate of emulated hosts (default: no limit)")
    line.add_argument("--ratio", type=_ratios, metavar="R,...", help="communication alone, by computation")
    parser.add_argument("--batch", type=at_least(1), metavar="N", help="samples of a rank's batch (default: by model)")
    parser.add_argument("--contenders", type=_contenders, metavar="NAME,...", help="only these (default: all)")
    parser.add_argument(
        "--rounds", type=at_least(1), default=3, metavar="N", help="blocks of each (default: %(default)s)"
    )
    parser.add_argument(
        "--steps", type=at_least(1), default=3, metavar="N", help="timed ones of a block (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("weft-experiment"), metavar="DIR", help="where to write (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _run(arguments: argparse.Namespace) -> int:
    try:
        results = _results(arguments)
    except ModuleNotFoundError as error:
        print(f"weft experiment: the package {error.name} is missing: pip install 'weft[demo]'", file=sys.stderr)
        return 1
    except (BenchError, EmulationError) as error:
        print(f"weft experiment: {error}", file=sys.stderr)
        return 1
    if results is None:  # a rank that is not the first
        return 0
    from weft.experiment import report

    report.draw(results, arguments.out / "overlap.png")
    if arguments.json:
        print(json.dumps([result.to_value() for result in results]))
    else:
        print("\n\n".join(report.table(result) for result in results))
        print(f"\nmeasured: {arguments.out}/*.json; picture: {arguments.out / 'overlap.png'}")
    return 0


def _results(arguments: argparse.Namespace) -> list[StudyResult] | None:
    from weft.experiment import overlap

    place = _place()
    ranks = arguments.ranks or (arguments.hosts if arguments.hosts > 1 else 2)
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
    )
    if place is not None:
        if arguments.hosts > 1 or arguments.ratio:
            raise EmulationError("--hosts and --ratio are for emulated hosts: leave them out under a launcher")
        return overlap.take_part(list(studies), arguments.out)
    if arguments.ratio and arguments.hosts == 1:
        raise EmulationError("--ratio chooses the line rate of emulated hosts: give --hosts as well")
    if arguments.hosts > 1:
        require_root()
        EmulatedNetwork(arguments.hosts, arguments.gbps)
        if ranks % arguments.hosts:
            raise EmulationError(f"--ranks is {ranks}; it must be a multiple of --hosts, {arguments.hosts}")
    return [overlap.measure(study, arguments.out, _tell) for study in studies]


def _place() -> int | None:
    """The number of ranks, where a launcher has started several."""
    try:
        place = config.place()
    except ConfigError:
        return None
    return place.world_size if place.world_size > 1 else None


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _models(text: str) -> list[str]:
    return list(MODELS) if text == "all" else _known(text, MODELS)


def _contenders(text: str) -> list[str]:
    return _known(text, tuple(CONTENDERS))


def _known(text: str, known: tuple[str, ...]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


def _ratios(text: str) -> list[float]:
    try:
        ratios = [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers") from None
    if any(not 0.01 <= ratio <= 100 for ratio in ratios):
        raise argparse.ArgumentTypeError(f"{text!r}: a ratio must be between 0.01 and 100")
    return ratios


COMMAND = Command(
    name="experiment",
    summary="train by several ways of averaging gradients, and compare",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    run=_run,
)
