"""Communication modes: methods by which ranks average gradients or parameters.

There is one file for each. `weft.torch.hooks` makes DDP use those of gradients; see
docs/how-to/compression.md.
"""

from __future__ import annotations

from weft.torch.modes.bucket import Bucket
from weft.torch.modes.cast import Cast
from weft.torch.modes.coarse_grained_sparse import CoarseGrainedSparse
from weft.torch.modes.communication import GroupCommunication
from weft.torch.modes.deep_gradient_compression import DeepGradientCompression
from weft.torch.modes.diloco import DiLoCo
from weft.torch.modes.double_buffering import DoubleBuffering
from weft.torch.modes.exact import Exact
from weft.torch.modes.local_sgd import LocalGradients, LocalSGD
from weft.torch.modes.mode import Communication, Mode, Stages, Work, run
from weft.torch.modes.one_bit import OneBit
from weft.torch.modes.power_sgd import PowerSGD
from weft.torch.modes.sites import Sites
from weft.torch.modes.streaming_diloco import StreamingDiLoCo
from weft.torch.modes.variance_based import VarianceBased
from weft.torch.modes.virtual_ranks import VirtualRanks
from weft.torch.modes.wire import Wire

__all__ = [
    "Bucket",
    "Cast",
    "CoarseGrainedSparse",
    "Communication",
    "DeepGradientCompression",
    "DiLoCo",
    "DoubleBuffering",
    "Exact",
    "GroupCommunication",
    "LocalGradients",
    "LocalSGD",
    "Mode",
    "OneBit",
    "PowerSGD",
    "Sites",
    "Stages",
    "StreamingDiLoCo",
    "VarianceBased",
    "VirtualRanks",
    "Wire",
    "Work",
    "run",
]
