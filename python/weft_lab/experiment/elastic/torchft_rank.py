"""A rank of the experiment over torchft and Gloo. It needs `pip install torchft`.

The settings are those with which torchft loses the least time here: short timeouts of heartbeats
and collectives, a quorum before every step (a replica that joins takes part in the first one), and
equal first parameters, so that they are not sent. Gradients go in one bucket, as torchft's
DistributedDataParallel would send those of networks of this size, waiting in its hook; the hook
itself ends a process in which a collective has failed (`assert fut._fut`, torchft 0.2.0).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector

from weft.processes.routes import own_address_towards
from weft_lab.experiment.elastic.faults import VIRTUAL_RANKS
from weft_lab.experiment.elastic.record import Record
from weft_lab.experiment.elastic.study import Plan
from weft_lab.experiment.elastic.tasks import Task, hashed

__all__ = ["lighthouse", "prepared"]

_HEARTBEAT_S, _HEARTBEAT_LOST_MS = 0.05, 500
_JOINING_MS, _TICK_MS = 100, 10
_POLL_S = 0.002
_PATIENCE = timedelta(seconds=60)


def lighthouse(port: int) -> Any:
    """The server that forms quorums; no fault ends it."""
    from torchft.coordination import LighthouseServer

    return LighthouseServer(
        bind=f"[::]:{port}",
        min_replicas=1,
        join_timeout_ms=_JOINING_MS,
        quorum_tick_ms=_TICK_MS,
        heartbeat_timeout_ms=_HEARTBEAT_LOST_MS,
    )


def prepared(task: Task, record: Record, plan: Plan, name: str) -> Callable[[], str]:
    """A function that trains to the end, and returns the hash of the state."""
    import torchft  # beforehand

    del torchft
    return lambda: _train(task, record, plan, name)


def _train(task: Task, record: Record, plan: Plan, name: str) -> str:
    from torchft import Manager, Optimizer, ProcessGroupGloo

    own = own_address_towards(plan.address(0))
    store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]

    def state() -> dict[str, Any]:
        return {"net": task.net.state_dict(), "optimizer": task.optimizer.state_dict()}

    def take(state: dict[str, Any]) -> None:
        task.net.load_state_dict(state["net"])
        task.optimizer.load_state_dict(state["optimizer"])

    class Group(ProcessGroupGloo):  # type: ignore[misc]  # of a package without types
        changes = 0

        def configure(self, *arguments: Any, **options: Any) -> None:
            super().configure(*arguments, **options)
            self.changes += 1

    timeout = timedelta(seconds=plan.study.timeout_s)
    group = Group(timeout=timeout)
    manager = Manager(
        pg=group,
        load_state_dict=take,
        state_dict=state,
        min_replica_size=1,
        use_async_quorum=False,
        init_sync=False,
        replica_id=f"process_{name}",
        store_addr=own,
        store_port=store.port,
        lighthouse_addr=f"http://{plan.address(0)}:{plan.ports[1]}",
        hostname=own,
        rank=0,
        world_size=1,
        timeout=timeout,
        quorum_timeout=_PATIENCE,
        connect_timeout=_PATIENCE,
        heartbeat_interval=timedelta(seconds=_HEARTBEAT_S),
    )
    optimizer = Optimizer(manager, task.optimizer)
    _meet(plan, name)
    changes = 0
    while manager.current_step() < plan.study.steps:
        optimizer.zero_grad()  # forms the quorum
        step = manager.current_step()
        if step == 0 and name not in plan.first:
            sys.exit()  # the training has ended: a replica alone begins anew
        ranks = manager.num_participants()
        if group.changes != changes:
            changes = group.changes
            record.entered(ranks)
        _compute(task, step, manager.participating_rank() or 0, ranks, record)
        _average(task, manager)
        optimizer.step()
        if manager.current_step() > step:
            record.completed(step)
    digest = hashed(task.net, task.optimizer.state_dict())
    manager.shutdown(wait=False)
    return digest


def _meet(plan: Plan, name: str) -> None:
    """Lets the first replicas begin together, so that they are the first quorum."""
    if name in plan.first:
        (plan.directory / f"ready-{name}").touch()
        while not all((plan.directory / f"ready-{other}").exists() for other in plan.first):
            time.sleep(_POLL_S)


def _compute(task: Task, step: int, rank: int, ranks: int, record: Record) -> None:
    """Computes a replica's parts of the batch; the mean over replicas is that over all parts."""
    for part in range(rank, VIRTUAL_RANKS, ranks):
        loss = task.loss(task.net, step, part)
        record.loss(step, part, float(loss.detach()))
        (loss * (ranks / VIRTUAL_RANKS)).backward()  # type: ignore[no-untyped-call]


def _average(task: Task, manager: Any) -> None:
    gradients = [one.grad for one in task.net.parameters() if one.grad is not None]
    bucket = parameters_to_vector(gradients)
    manager.allreduce(bucket).wait()
    parts = torch.split(bucket, [one.numel() for one in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
