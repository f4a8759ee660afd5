"""torchft's Streaming DiLoCo over Gloo, as a contender of the experiment `far`.

It needs `pip install torchft`. Its 8 bits are for GPUs, so here it sends exact changes.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from weft import config
from weft.processes.routes import own_address_towards
from weft.torch.exchange import gather
from weft_lab.demo.language import LanguageModel
from weft_lab.experiment.far import FarStudy

__all__ = ["TorchftDiLoCo", "is_installed", "present"]

_SECONDS = timedelta(seconds=300)


def is_installed() -> bool:
    """Whether torchft can take part here."""
    return importlib.util.find_spec("torchft") is not None


def present(contenders: Sequence[str], report_progress: Callable[[str], None]) -> tuple[str, ...]:
    """The contenders that can take part here: without torchft, those whose names begin otherwise.

    Reports if some are left out.
    """
    found = tuple(name for name in contenders if is_installed() or not name.startswith("torchft"))
    if len(found) < len(contenders):
        report_progress("torchft is left out: it is not installed (pip install torchft)")
    return found


class TorchftDiLoCo:
    """The outer steps, as hooks of the inner optimizer; each site is a replica of one rank."""

    def __init__(self, study: FarStudy, net: LanguageModel, inner: torch.optim.Optimizer) -> None:
        """Every rank calls it."""
        from torchft import Manager, ProcessGroupGloo
        from torchft.coordination import LighthouseServer
        from torchft.local_sgd import DiLoCo

        rank, own = dist.get_rank(), own_address_towards(config.place().host)
        self._lighthouse: Any = None
        port = 0
        if rank == 0:
            self._lighthouse = LighthouseServer(bind="[::]:0", min_replicas=study.sites, join_timeout_ms=60_000)
            port = int(self._lighthouse.address().rpartition(":")[2])
        address, port = gather([own, str(port)], list[str])[0]
        self._store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=_SECONDS),
            load_state_dict=net.load_state_dict,
            state_dict=net.state_dict,
            min_replica_size=study.sites,
            use_async_quorum=False,
            replica_id=f"site_{rank}",
            store_addr=own,
            store_port=self._store.port,
            lighthouse_addr=f"http://{address}:{port}",
            hostname=own,
            rank=0,
            world_size=1,
            timeout=_SECONDS,
            quorum_timeout=_SECONDS,
            connect_timeout=_SECONDS,
        )
        fragments = _fragments(net, study.fragments)
        lr, momentum = study.outer_lr, study.outer_momentum
        outers = [
            torch.optim.SGD(fragment.parameters(), lr=lr, momentum=momentum, nesterov=momentum > 0)
            for fragment in fragments
        ]
        diloco = DiLoCo(
            self._manager,
            fragments,
            inner,
            outers,
            sync_every=study.period,
            pin_memory=False,
            use_bucketization=True,
            fragment_sync_delay=study.delay,
            fragment_update_alpha=0.5,
        )
        self._hooks = contextlib.ExitStack()
        self._hooks.enter_context(diloco)

    def close(self) -> None:
        """Ends its servers. Every rank calls it."""
        self._hooks.close()
        dist.barrier()
        self._manager.shutdown(wait=False)
        if self._lighthouse is not None:
            self._lighthouse.shutdown()


def _fragments(net: LanguageModel, count: int) -> list[nn.Module]:
    """Consecutive layers, with about as many elements each."""
    layers = [net.embedding, net.positions, *net.blocks, net.norm, net.output]
    total, before = sum(one.numel() for one in net.parameters()), 0
    found: list[list[nn.Module]] = [[] for _ in range(count)]
    for layer in layers:
        size = sum(one.numel() for one in layer.parameters())
        found[min(count - 1, count * (before + size // 2) // total)].append(layer)
        before += size
    return [nn.ModuleList(layers) for layers in found if layers]
