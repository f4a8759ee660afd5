"""Data parallelism whose communication may last until a layer's next forward.

`DataParallel` averages gradients bucket by bucket as backward computes them. `Overlapped` makes an
optimizer update each bucket when it is first used again. See docs/how-to/training.md.


`plan`, `costs`, `fusion` and `urgency` are pure functions of the measurements of `windows`, after
`agreement` has compared the ranks; `planner` joins them. `buckets` hold gradients, `reducer` starts
averages by one attribute (`averaging`, `rows` or `mode_averaging`), and `overlapped` updates a
bucket when `first_use` finds that forward needs it. `divided` has the shares of updates, `virtual`
the sums over virtual ranks.
"""

from __future__ import annotations
