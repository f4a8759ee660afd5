"""The default process group of the survivors, which replaces a broken one."""

from __future__ import annotations

import socket
from datetime import timedelta

import numpy as np
import torch.distributed as dist
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from weft._weft import AboveStandardStreams
from weft.api.group import Group
from weft.errors import ConfigError
from weft.processes.routes import own_address_towards
from weft.torch.groups import already_made
from weft.torch.lookup import backend_of

__all__ = ["check_default_group", "default_timeout", "meeting_of", "replace_default_group"]

_ADDRESS_BYTES = 256
_CONNECTING_MAX = timedelta(seconds=10)
_LOOPBACK = "127.0.0.1"


def check_default_group() -> None:
    """Raises `weft.ConfigError` unless there is a default process group over weft."""
    if not dist.is_initialized():
        raise ConfigError("there is no process group: call torch.distributed.init_process_group('weft') first")
    if dist.get_backend() != "weft":
        raise ConfigError(
            f"the default process group's backend is {dist.get_backend()}: expected weft, as in "
            "init_process_group('weft')"
        )


def default_timeout() -> timedelta:
    """How long the default group's operations may take."""
    timeout: timedelta = backend_of(None).options._timeout
    return timeout


def meeting_of(group: Group, timeout: timedelta, route: str | None) -> Store:
    """A store that all ranks of a group reach, served by its rank 0: every rank calls this.

    The store where the ranks met before may have ended with its rank. `route` is an address,
    `host:port`, to which the ranks' network leads; by default this host's name gives its address.

    Raises:
        weft.Error: Communication has failed.
        torch.distributed.DistError: Rank 0 cannot be reached.
    """
    store = _open(group, timeout, route)
    group.barrier()  # rank 0 continues when all have connected
    return store


def replace_default_group(group: Group, store: Store, timeout: timedelta) -> None:
    """Ends the default process group, and makes one of these ranks; waits for no other rank."""
    if dist.is_initialized():
        dist.destroy_process_group()
    with already_made(group.native):
        dist.init_process_group("weft", store=store, rank=group.rank, world_size=group.size, timeout=timeout)


def _open(group: Group, timeout: timedelta, route: str | None) -> Store:
    address = np.zeros(_ADDRESS_BYTES, np.uint8)
    store = None
    if group.rank == 0:
        store, text = _serve(group, timeout, route)
        address[: len(text)] = np.frombuffer(text.encode(), np.uint8)
    group.broadcast(address, 0)
    if store is not None:
        return store
    host, _, port = address.tobytes().rstrip(b"\0").decode().rpartition(":")
    with AboveStandardStreams():
        store = TCPStore(host, int(port), is_master=False, timeout=min(timeout, _CONNECTING_MAX))
    store.set_timeout(timeout)
    return store


def _serve(group: Group, timeout: timedelta, route: str | None) -> tuple[TCPStore, str]:
    """A store and its address for the others: if all are on one host, no other host reaches it."""
    on_one_host = len(set(group.hosts)) == 1
    host = _LOOPBACK if on_one_host else _own_address(route)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with AboveStandardStreams():
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
        listener.listen(socket.SOMAXCONN)
        port = listener.getsockname()[1]
        store = TCPStore(
            host, port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listener.detach()
        )
    return store, f"{host}:{port}"


def _own_address(route: str | None) -> str:
    if route is None:
        return socket.gethostbyname(socket.gethostname())
    host, _, port = route.rpartition(":")
    return own_address_towards(host.strip("[]"), port)
