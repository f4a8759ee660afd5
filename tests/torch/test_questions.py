"""Tests of torch's queries of a group and its backend: each is answered, or refused by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from caller_modes import METHODS, vector
from torch._C import _distributed_c10d as c10d
from torch.distributed import ProcessGroup, distributed_c10d

import weft
from weft.torch import registration
from weft.torch.lookup import backend_of

pytestmark = pytest.mark.skipif(
    not registration._accepts_python_backends(), reason="queries are of backends: torch 2.14 and newer"
)

CPU = torch.device("cpu")
SECOND = timedelta(seconds=1)
HOOK = 7
SELDOM = {
    "_add_ephemeral_timeout": lambda one: one._add_ephemeral_timeout(SECOND),
    "_backend_id": lambda one: one._backend_id(ProcessGroup.BackendType.CUSTOM),
    "_end_coalescing": lambda one: one._end_coalescing(*_device(one)),
    "_get_backend": lambda one: one._get_backend(CPU),
    "_register_on_completion_hook": lambda one: one._register_on_completion_hook(lambda _: None),
    "_set_group_uid": lambda one: one._set_group_uid("uid"),
    "_start_coalescing": lambda one: one._start_coalescing(*_device(one)),
    "allocate_tensor": lambda one: one.allocate_tensor(6, dtype=torch.float32, device=CPU),
    "eager_connect_single_device": lambda one: one.eager_connect_single_device(CPU),
    "gather_into_tensor": lambda one: one.gather_into_tensor(vector(0), vector(0)),
    "gather_single": lambda one: one.gather_single(vector(0), vector(0)),
    "get_backend": lambda one: one.get_backend(CPU),
    "merge": lambda one: one.merge(dist.HashStore(), one.options, 0, 1),
    "merge_remote_group": lambda one: one.merge_remote_group(dist.HashStore(), 1),
    "new_window": lambda one: one.new_window(vector(0)),
    "reconfigure": lambda one: one.reconfigure(c10d.ReconfigureOptions()),
    "register_abort_hook": lambda one: one.register_abort_hook(HOOK, lambda: None),
    "register_post_hook": lambda one: one.register_post_hook(HOOK, lambda _: None),
    "register_pre_hook": lambda one: one.register_pre_hook(HOOK, lambda _: None),
    "set_timeout": lambda one: one.set_timeout(timedelta(seconds=30)),
    "setUsePgForSymmMemRendezvous": lambda one: one.setUsePgForSymmMemRendezvous(False),
    "shrink": lambda one: one.shrink([1]),
    "supports_tensor_alloc": lambda one: one.supports_tensor_alloc(CPU),
    "unregister_abort_hook": lambda one: one.unregister_abort_hook(HOOK),
    "unregister_post_hook": lambda one: one.unregister_post_hook(HOOK),
    "unregister_pre_hook": lambda one: one.unregister_pre_hook(HOOK),
}
"""The arguments of queries that take some."""
ELSEWHERE = {"abort", "shutdown", "split", "split_group", "allreduce_sparse", "monitored_barrier"} | {
    "_start_time_estimate",
    "_end_time_estimate",
}
"""Methods that other tests call: they end the group, make another one, or need sparse tensors."""
OF_THE_CLASS = {"BackendType", "Options", "unbox", "_register_backend", "_set_default_backend"} | {
    "_set_group_desc",
    "_set_group_name",
}
"""The steps by which torch makes groups, before they may be queried."""


def test_every_question(workers) -> None:
    workers.run(2, questions_job)


def test_functions_that_ask(workers) -> None:
    workers.run(2, functions_job)


def test_error_after_a_death(workers) -> None:
    workers.run(2, death_job, dying=(1,))


def _device(one: Any) -> tuple[torch.device, ...]:
    return (CPU,) if isinstance(one, ProcessGroup) else ()


def questions(kind: type) -> list[str]:
    """Returns the attributes of torch's class, except operations, which have their own tests."""
    operations = {part.strip() for name in METHODS for part in name.split(",")}
    names = {name for name in dir(kind) if not name.startswith("__") and not name.startswith("_pybind11")}
    return sorted(names - operations - ELSEWHERE - OF_THE_CLASS)


def asked(one: Any, name: str) -> None:
    """Asks, and raises unless there is an answer, or an error that names weft and the question."""
    try:
        answer = SELDOM[name](one) if name in SELDOM else getattr(one, name)
        if callable(answer):
            answer()
    except RecursionError:
        raise
    except (weft.Error, RuntimeError, NotImplementedError) as error:
        assert "weft" in str(error), f"{name}: {error}"


def questions_job(_rank: int, _size: int) -> None:
    group = dist.group.WORLD
    wrong = []
    for one, kind in ((group, ProcessGroup), (group._get_backend(CPU), c10d.Backend)):
        for name in questions(kind):
            try:
                asked(one, name)
            except Exception as error:
                wrong.append(f"{kind.__name__}.{name}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    dist.barrier()


def functions_job(_rank: int, _size: int) -> None:
    backend = backend_of(None)
    answers = {name: getattr(backend, name) for name in dir(c10d.Backend) if name.lstrip("_").startswith("supports_")}
    del answers["supports_tensor_alloc"]
    assert {name for name, answer in answers.items() if answer} <= {
        "supports_abort_hooks",
        "supports_shrinking",
        "supports_splitting",
        "_supports_time_estimate",
    }
    assert {"supports_shrinking", "supports_splitting"} <= {name for name, answer in answers.items() if answer}
    for name in ("_supports_reconfigure", "_supports_window"):
        if hasattr(distributed_c10d, name):
            assert getattr(distributed_c10d, name)() is False
    if hasattr(backend, "get_error"):
        assert backend.get_error() == c10d.ErrorType.SUCCESS


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def death_job(rank: int, _size: int) -> None:
    dist.barrier()
    if rank == 1:
        os._exit(0)
    with pytest.raises(weft.PeerLost):
        dist.all_reduce(torch.ones(3))
    # The error may reach this thread before the group's end has been recorded.
    until(lambda: backend_of(None).get_error() == c10d.ErrorType.REMOTE_ERROR)
