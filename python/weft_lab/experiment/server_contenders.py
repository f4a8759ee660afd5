"""Contenders of the parameter-server experiment, listed without loading torch."""

__all__ = ["SERVER_CONTENDERS"]

SERVER_CONTENDERS: dict[str, str] = {
    "compute": "no communication",
    "all-reduce": "weft.torch.DataParallel",
    "localps": "all-reduce by parameter-server, a shard on every rank (the schedule)",
    "ddp-gloo": "DistributedDataParallel over Gloo",
    "localps-service": "a server on every rank, synchronous",
    "default": "servers apart, synchronous",
    "default-stale": "servers apart, any staleness",
    "rpc": "a parameter server by torch.distributed.rpc (one, asynchronous, without overlap)",
}
"""Contenders by name, with descriptions."""
