"""Peer libraries: origin, build and launch. `PEERS` is the table of all of them."""

from weft_lab.bench.peers.peer import PeerLibrary, RankPlacement
from weft_lab.bench.peers.table import DTYPES, PEERS, find

__all__ = ["DTYPES", "PEERS", "PeerLibrary", "RankPlacement", "find"]
