"""Measured libraries: weft, peers and floors, one module per calling interface."""

from weft.bench.libraries import floors, tcp_floors
from weft.bench.libraries.contender import Contender, Description, TimedOperation
from weft.bench.libraries.gloo import Gloo
from weft.bench.libraries.shim import ShimLibrary
from weft.bench.libraries.through_torch import ThroughTorch
from weft.bench.libraries.weft import EncryptedWeft, RegisteredWeft, Weft, WeftRing

__all__ = [
    "Contender",
    "Description",
    "EncryptedWeft",
    "Gloo",
    "RegisteredWeft",
    "TimedOperation",
    "ShimLibrary",
    "ThroughTorch",
    "Weft",
    "WeftRing",
    "floors",
    "tcp_floors",
]
