"""A rank of the experiment over weft: recovery, virtual ranks, overlapped updates."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

import weft.torch
from weft_lab.experiment.elastic.faults import VIRTUAL_RANKS
from weft_lab.experiment.elastic.record import Record
from weft_lab.experiment.elastic.study import Plan
from weft_lab.experiment.elastic.tasks import Task, hashed

__all__ = ["prepared"]


def prepared(task: Task, record: Record, plan: Plan, name: str) -> Callable[[], str]:
    """A function that trains to the end, and returns the hash of the state."""
    is_first = name in plan.first
    lobby = ",".join(f"{plan.address(host)}:{plan.ports[1]}" for host in range(plan.study.hosts))

    def train(recovery: weft.torch.Recovery) -> str:
        if recovery.step == 0 and not is_first:
            sys.exit()  # the training has ended: a process alone begins anew
        model = weft.torch.DataParallel(task.net, virtual_ranks=VIRTUAL_RANKS)
        optimizer = weft.torch.Overlapped(task.optimizer, model)
        record.entered(dist.get_world_size())
        while recovery.step < plan.study.steps:
            step = recovery.step
            _train(task, model, optimizer, record, step)
            try:
                recovery.commit()
            except Exception:  # also after a commit, when the ranks change
                if recovery.committed > step:
                    record.completed(step)
                raise
            record.completed(step)
        return hashed(task.net, optimizer.full_state_dict())

    recovery = weft.torch.Recovery(task.net, task.optimizer, every=plan.study.every, lobby=lobby)
    return lambda: recovery.run(train)


def _train(
    task: Task, model: weft.torch.DataParallel, optimizer: torch.optim.Optimizer, record: Record, step: int
) -> None:
    """Carries out a step."""
    optimizer.zero_grad()
    for part in model.parts(list(model.virtual_ranks)):
        loss = task.loss(model, step, part)
        record.loss(step, part, float(loss.detach()))
        loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
