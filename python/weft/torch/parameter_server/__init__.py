"""Parameter servers: shards of a model behind an address, for workers that join and leave.

A worker's connection is a group of two with the server (see [Note: Groups of two] in `server`), so
a death ends one connection. In processing order: `plan` cuts a model into pieces; `worker` pushes
and pulls them by `connection`, which repeats the requests of a lost connection, as `messages` with
`requests`; `server` accepts; `service` checks, writes to the `journal`, applies to the `shard` and
acknowledges, one request at a time.
"""

from weft.torch.parameter_server.compression import Largest
from weft.torch.parameter_server.embedding import ServedEmbedding
from weft.torch.parameter_server.errors import (
    LostPush,
    RequestTooLarge,
    ServerError,
    ServerLost,
    ShardLost,
    StalePlan,
    TooManyWorkers,
    Unavailable,
    UnknownShard,
    WrongShape,
)
from weft.torch.parameter_server.journal import Journal
from weft.torch.parameter_server.local import local_server
from weft.torch.parameter_server.messages import Limits
from weft.torch.parameter_server.optimizer import OPTIMIZERS, ServerOptimizer
from weft.torch.parameter_server.plan import ShardPlan, shard
from weft.torch.parameter_server.server import Server
from weft.torch.parameter_server.service import Service, ServiceOptions
from weft.torch.parameter_server.worker import Worker

__all__ = [
    "OPTIMIZERS",
    "Journal",
    "Largest",
    "Limits",
    "LostPush",
    "RequestTooLarge",
    "ServedEmbedding",
    "Server",
    "ServerError",
    "ServerLost",
    "ServerOptimizer",
    "Service",
    "ServiceOptions",
    "ShardLost",
    "ShardPlan",
    "StalePlan",
    "TooManyWorkers",
    "Unavailable",
    "UnknownShard",
    "Worker",
    "WrongShape",
    "local_server",
    "shard",
]
