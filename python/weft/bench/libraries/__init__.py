"""What is measured: weft, peers and floors, one module for each way of calling."""

from weft.bench.libraries.contender import Contender, Description, Operation
from weft.bench.libraries.floors import floors
from weft.bench.libraries.gloo import Gloo
from weft.bench.libraries.shim import Shim
from weft.bench.libraries.through_torch import ThroughTorch
from weft.bench.libraries.weft import Weft, WeftRing

__all__ = ["Contender", "Description", "Gloo", "Operation", "Shim", "ThroughTorch", "Weft", "WeftRing", "floors"]
