"""The command `weft predict`: training steps on machines that the user does not have."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from typing import TYPE_CHECKING

from weft.cli import options, values
from weft.cli.command import Command, UsageError, report_progress
from weft.errors import ArgumentError
from weft_lab import console
from weft_lab.cli.experiment import MODELS
from weft_lab.cli.plot_option import add_plot

if TYPE_CHECKING:
    from weft_lab.prediction.cluster import Cluster
    from weft_lab.prediction.profile import TrainingProfile

DESCRIPTION = """\
Profiles some steps of a training script on this machine, and predicts the time of a step on a cluster: by averaging
after backward, DDP over Gloo and over weft, weft's wrapper without and with its overlap into forward, and with
compression. Prints steps, how long they wait for communication, and scaling efficiency, for the cluster and for fewer
hosts.

The script is not changed: it runs as the only rank of its group until enough steps were measured. It may use weft's
wrapper, DDP or none. Communication is priced by the simulator of `weft simulate`, by closed form, with the fastest of
the algorithms that weft chooses from.

Modelled: when gradients are ready and parameters are used, buckets and priorities, updates, copies into buckets,
latency, line rate, and the processor time that communication takes from computation. Not modelled: the processor time
of compression, Python's time per bucket, embeddings sent as rows, BatchNorm's buffers, stragglers, other traffic, and
any algorithm of Gloo except its ring.
"""

EPILOG = """\
examples:
  weft predict train.py --hosts 64 --ranks-per-host 8 --gbps 100
  weft predict train.py --hosts 16 --save-profile profile.json --arguments='--batch-size 32'
  weft predict --profile profile.json --hosts 16 --gbps 25 --plot prediction.svg
  weft predict --model alexnet --batch 16 --hosts 4 --gbps 1
"""

STEPS = 5
TIMEOUT_S = 1800.0


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=values.input_file, nargs="?", metavar="TRAIN.py", help="the script to profile")
    parser.add_argument(
        "--arguments",
        type=shlex.split,
        default=[],
        metavar="TEXT",
        help="arguments of the script, split as by a shell: --arguments='--batch-size 32'",
    )
    parser.add_argument("--model", choices=MODELS, help="a network of `weft experiment` in place of a script")
    parser.add_argument(
        "--profile", type=values.input_file, metavar="FILE", help="a profile that was saved, in place of a script"
    )
    parser.add_argument(
        "--save-profile", type=values.output_file(values.DATA), metavar="FILE", help="write the profile there (.json)"
    )
    parser.add_argument(
        "--batch", type=values.count, metavar="N", help="batch size of --model, in samples (default: by model)"
    )
    parser.add_argument(
        "--steps",
        type=values.count,
        default=STEPS,
        metavar="N",
        help="steps to measure, after two warm-up steps (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=values.positive,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="longest time that profiling may take (default: %(default)g)",
    )
    parser.add_argument("--hosts", type=values.count, required=True, metavar="N", help="number of hosts of the cluster")
    parser.add_argument(
        "--ranks-per-host", type=values.count, default=1, metavar="K", help="ranks on each host (default: %(default)s)"
    )
    parser.add_argument(
        "--gbps", type=values.positive, metavar="G", help="line rate of a host (default: --machine's, or 8)"
    )
    parser.add_argument(
        "--latency-us",
        type=values.at_least(0.0),
        metavar="US",
        help="latency of a message between hosts (default: --machine's, or 20)",
    )
    parser.add_argument(
        "--machine",
        type=values.input_file,
        metavar="FILE",
        help="JSON with a measured machine's `host` and `network`, as in profiles of `weft tune`",
    )
    parser.add_argument(
        "--cores",
        type=values.positive,
        metavar="C",
        help="cores of each rank, or its share of one (default: the threads of the profile)",
    )
    parser.add_argument(
        "--compute-ms",
        type=values.positive,
        metavar="MS",
        help="time of a step without communication on the cluster (default: as profiled here)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_plot(parser)


def _run(arguments: argparse.Namespace) -> int:
    try:
        return _predict(arguments)
    except (ArgumentError, OSError) as error:
        print(f"weft predict: {error}", file=sys.stderr)
        return 2


def _predict(arguments: argparse.Namespace) -> int:
    from weft_lab.prediction import report
    from weft_lab.prediction.prediction import predict_scaling, smaller

    profile = _profile(arguments)
    if arguments.save_profile:
        profile.save(arguments.save_profile)
    if arguments.compute_ms is not None:
        profile = profile.scaled(arguments.compute_ms * 1e-3)
    numbers = smaller(arguments.hosts)
    with console.progress(f"pricing up to {arguments.hosts} hosts", len(numbers)) as progress:
        predictions = predict_scaling(profile, _cluster(arguments, profile), priced=lambda _: progress.advance())
    if arguments.plot:
        report.draw(profile, predictions, arguments.plot)
        report_progress(f"picture: {arguments.plot}")
    if arguments.json:
        print(json.dumps({"what": profile.what, "predictions": [one.to_value() for one in predictions]}, indent=1))
    else:
        console.show(*report.table(profile, predictions))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    sources = [arguments.script, arguments.model, arguments.profile]
    if sum(source is not None for source in sources) != 1:
        raise UsageError("name one of a script, --model and --profile")
    if arguments.batch is not None and arguments.model is None:
        raise UsageError("--batch is for --model; a script takes its own by --arguments")
    if arguments.arguments and arguments.script is None:
        raise UsageError("--arguments is for a script: name one")


def _profile(arguments: argparse.Namespace) -> TrainingProfile:
    from weft_lab.prediction.profile import TrainingProfile
    from weft_lab.prediction.profiling import profile_model, profile_script

    if arguments.profile is not None:
        return TrainingProfile.load(arguments.profile)
    report_progress(f"profiling {arguments.script or arguments.model}, with its output:")
    if arguments.model is not None:
        return profile_model(arguments.model, arguments.batch, arguments.steps, arguments.timeout)
    return profile_script(arguments.script, arguments.arguments, arguments.steps, arguments.timeout)


def _cluster(arguments: argparse.Namespace, profile: TrainingProfile) -> Cluster:
    from weft_lab.prediction.cluster import Cluster

    return dataclasses.replace(
        Cluster(arguments.hosts, arguments.ranks_per_host, arguments.gbps, arguments.latency_us),
        cores=arguments.cores or float(profile.threads),
        measured=options.machine_parameters(arguments.machine),
    )


COMMAND = Command(
    name="predict",
    description=DESCRIPTION,
    epilog=EPILOG,
    add_arguments=_add_arguments,
    check=_check,
    run=_run,
)
