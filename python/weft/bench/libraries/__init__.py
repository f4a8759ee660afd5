"""The libraries that are measured. One module each; `PEERS` is the table of those that weft is compared with."""

from collections.abc import Callable

from weft.bench.libraries.contender import Contender, Meeting
from weft.bench.libraries.gloo import Gloo
from weft.bench.libraries.through_torch import ThroughTorch
from weft.bench.libraries.weft import Weft

PEERS: dict[str, Callable[[Meeting], Contender]] = {"gloo": Gloo}
THROUGH_TORCH = {"gloo": "tcp"}
"""The peers that torch.distributed has as backends, and their transport."""

__all__ = ["PEERS", "THROUGH_TORCH", "Contender", "Meeting", "ThroughTorch", "Weft"]
