"""Data parallelism whose communication may last until a layer's next forward.

`DataParallel` averages gradients bucket by bucket while they are made, `Overlapped` lets an
optimizer update each bucket when it is first used again. docs/how-to/training.md tells how to
use them.

`plan`, `costs`, `fusion` and `urgency` are pure functions of what `windows` has measured and
`agreement` has compared; `planner` joins them. `buckets` hold gradients, `reducer` starts averages
by one attribute (`averaging`, `rows` or `mode_averaging`), and `overlapped` updates a bucket when
`first_use` finds that forward needs it.
"""

from __future__ import annotations
