"""Other libraries: where they come from, how they are built and started. `PEERS` is the table of all of them."""

from weft.bench.peers.peer import Peer
from weft.bench.peers.table import DTYPES, PEERS, find

__all__ = ["DTYPES", "PEERS", "Peer", "find"]
