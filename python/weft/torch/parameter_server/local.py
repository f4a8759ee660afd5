"""The layout `localps`: a shard on every worker, served by threads of the worker's process."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Unpack

import torch.distributed as dist
from torch.distributed import ProcessGroup

from weft import config
from weft._weft import AboveStandardStreams
from weft.errors import ConfigError
from weft.processes.routes import own_address_towards
from weft.settings import Options
from weft.torch.exchange import gather
from weft.torch.parameter_server.journal import Journal
from weft.torch.parameter_server.server import Server
from weft.torch.parameter_server.service import Service

__all__ = ["local_server"]


def local_server(
    process_group: ProcessGroup | None = None,
    *,
    address: str | None = None,
    directory: Path | None = None,
    **options: Unpack[Options],
) -> tuple[Server, list[str]]:
    """Starts this rank's server, and returns it with the addresses of all ranks' servers.

    Every rank of the process group, of any backend, calls it, and passes both to `Worker`, as
    `local=` and as `servers`. The group is not needed after that: the death of a rank breaks the
    group, not the servers of the others.

    Args:
        process_group: The workers; the default group if not given.
        address: The address of this rank's server, `host:port`; by default a free port of the
            address that routes to the rendezvous. A server that other ranks must find again after a
            restart needs one.
        directory: The directory for its shard; none by default.
        options: See `weft.settings.Options`.

    Returns:
        The server, and the addresses of all ranks' servers, by rank.

    Raises:
        weft.ConfigError: There is no process group.
        weft.Error: The server cannot listen.

    Examples:
        >>> server, addresses = local_server()  # on every rank
        >>> worker = Worker(net, ServerOptimizer("sgd", lr=0.1), addresses, local=server)
    """
    if process_group is None and not dist.is_initialized():
        raise ConfigError("the layout localps needs a process group: call torch.distributed.init_process_group first")
    service = Service(journal=None if directory is None else Journal(directory))
    server = Server(address or f"{_own_host()}:{_free_port()}", service, **options)
    return server, gather(server.address, str, process_group)


def _own_host() -> str:
    """This host's address on the route to the rendezvous."""
    try:
        return own_address_towards(config.rendezvous_host(), family=socket.AF_INET)
    except OSError:
        return "127.0.0.1"


def _free_port() -> int:
    with AboveStandardStreams(), socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])
