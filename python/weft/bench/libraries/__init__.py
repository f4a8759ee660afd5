"""The libraries that are measured. One module each; `PEERS` is the table of those that weft is compared with."""

from collections.abc import Callable

from weft.bench.libraries.contender import Contender, Meeting
from weft.bench.libraries.gloo import Gloo
from weft.bench.libraries.weft import Weft

PEERS: dict[str, Callable[[Meeting], Contender]] = {"gloo": Gloo}

__all__ = ["PEERS", "Contender", "Meeting", "Weft"]
