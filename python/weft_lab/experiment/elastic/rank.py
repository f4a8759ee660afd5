"""A process of the experiment: `python -m weft_lab.experiment.elastic.rank PLAN NAME`.

It loads everything, prints a line, and begins when a line comes from its standard input.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from weft.processes.local_ranks import die_with_parent
from weft_lab.experiment.elastic import tasks
from weft_lab.experiment.elastic.record import Record
from weft_lab.experiment.elastic.study import Plan

__all__ = ["main"]


def main() -> None:
    """Waits for its time, and trains."""
    die_with_parent()
    plan, name = Plan.load(Path(sys.argv[1])), sys.argv[2]
    torch.set_num_threads(1)
    _warm_up(plan)
    task = tasks.made(plan.study.task, plan.study.samples)
    record = Record(plan.directory, name)
    if plan.contender.startswith("torchft"):
        from weft_lab.experiment.elastic.torchft_rank import prepared
    else:
        from weft_lab.experiment.elastic.weft_rank import prepared
    train = prepared(task, record, plan, name)
    print("loaded", flush=True)
    if not sys.stdin.readline():
        return
    record.ended(train(), sum(one.numel() for one in task.net.parameters()))
    sys.stderr.flush()
    os._exit(0)  # torchft leaves threads that do not end


def _warm_up(plan: Plan) -> None:
    """Makes torch load what it loads in a first step, with a training of its own."""
    task = tasks.made(plan.study.task, plan.study.samples)
    task.optimizer.zero_grad()
    task.loss(task.net, 0, 0).backward()  # type: ignore[no-untyped-call]
    task.optimizer.step()


if __name__ == "__main__":
    main()
