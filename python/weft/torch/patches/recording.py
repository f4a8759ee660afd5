"""torch's flight recorder, which leaves out groups of weft: weft has its own.

[Note: States that torch cannot learn] torch records the operations of other backends from outside,
and learns from a backend's completion hooks when they end. A backend in Python cannot have such
hooks: torch's class that calls Python forwards neither `supportsCompletionHooks` nor
`registerCompletionHook`. So torch would show an operation that is under way as retired, as soon as
it was issued, and one that the caller has waited for as active forever. In weft's own records
(`weft.flight_record`, `weft trace`, the page `/weft/flight`) the states are true.

torch 2.15 and newer: its list of backends that record themselves is private.
"""

from __future__ import annotations

from torch.distributed import distributed_c10d

__all__ = ["record_itself"]


def record_itself(name: str) -> None:
    """Declares that the backend of this name records its operations itself."""
    backends: set[str] = getattr(distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    backends.add(name)
