"""Data parallelism whose communication may last until a layer's next forward.

`DataParallel` averages gradients bucket by bucket while they are made, `Overlapped` lets an
optimizer update each bucket when it is first used again. docs/how-to/training.md tells how to
use them.
"""

from __future__ import annotations
