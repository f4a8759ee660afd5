"""Measured libraries: weft, peers and floors, one module per calling interface."""

from weft_lab.bench.libraries import floors, tcp_floors
from weft_lab.bench.libraries.contender import Contender, Description, TimedOperation
from weft_lab.bench.libraries.gloo import Gloo
from weft_lab.bench.libraries.shim import ShimLibrary
from weft_lab.bench.libraries.through_torch import ThroughTorch
from weft_lab.bench.libraries.weft import EncryptedWeft, RegisteredWeft, Weft, WeftRing

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
