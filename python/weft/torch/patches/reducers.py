"""News of the buckets that DDP's `Reducer` lays out, of which torch tells nobody.

[Note: When buckets are laid out] DDP lays out its buckets when it is made and, unless it looks for
unused parameters in every step, once more before its second forward, in the order in which
gradients were ready: on all ranks at the same place among their collectives. Nobody but DDP has
seen these new buckets before their first all-reduce. With `gradient_as_bucket_view`, users may
look into them afterwards (`parameter.grad`); they could have before it only if another forward
came in between, as where gradients are accumulated.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._C._distributed_c10d import Reducer
from torch.distributed import ProcessGroup

__all__ = ["NewBuckets", "follow_reducers"]

_ARGUMENTS = (
    "params",
    "bucket_indices",
    "per_bucket_size_limits",
    "process_group",
    "expect_sparse_gradients",
    "bucket_bytes_cap",
    "find_unused_parameters",
    "gradient_as_bucket_view",
    "param_to_name_mapping",
    "first_bucket_types_cap",
    "skip_all_reduce_unused_params",
    "use_python_reducer",
    "bucket_bytes_cap_list",
    "batched_grad_copy",
    "lazy_bucket_allocation",
)
"""Of `Reducer` in torch 2.15; older versions have the first ones."""


@dataclasses.dataclass
class NewBuckets:
    """Buckets that were laid out in the order of use."""

    elements: int
    """Of all buckets of dense gradients on the CPU; those that have not been all-reduced yet."""
    exposed: bool = False
    """Whether users may have looked into those that have not been all-reduced yet."""


@dataclasses.dataclass
class _Followed:
    group: ProcessGroup
    elements: int
    as_views: bool
    laid_out: NewBuckets | None = None


_followed: weakref.WeakKeyDictionary[Reducer, _Followed] = weakref.WeakKeyDictionary()
_tell: Callable[[ProcessGroup, NewBuckets], None] | None = None


def follow_reducers(tell: Callable[[ProcessGroup, NewBuckets], None]) -> None:
    """Extends `Reducer`, the first time.

    From then on, `tell` hears of all new buckets: see [Note: When buckets are laid out]. Buckets
    that torch frees between steps are left out.
    """
    global _tell
    if _tell is None:
        Reducer.__init__ = _remembering(Reducer.__init__)  # type: ignore[method-assign]
        Reducer._rebuild_buckets = _telling(Reducer._rebuild_buckets)  # type: ignore[assignment, method-assign]
    _tell = tell


def _remembering(original: Callable[..., None]) -> Callable[..., None]:
    def method(self: Reducer, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        given = dict(zip(_ARGUMENTS, arguments, strict=False)) | named
        if not given.get("lazy_bucket_allocation", False):
            elements = _dense_elements(given["params"], given.get("expect_sparse_gradients", ()))
            as_views = bool(given.get("gradient_as_bucket_view", False))
            _followed[self] = _Followed(given["process_group"], elements, as_views)

    method.__name__, method.__doc__ = "__init__", original.__doc__
    return method


def _telling(original: Callable[[Reducer], bool]) -> Callable[[Reducer], bool]:
    def method(self: Reducer) -> bool:
        followed = _followed.get(self)
        if followed is not None and followed.laid_out is not None and followed.as_views:
            followed.laid_out.exposed = True
        rebuilt = original(self)
        if rebuilt and followed is not None and _tell is not None:
            followed.laid_out = NewBuckets(followed.elements)
            _tell(followed.group, followed.laid_out)
        return rebuilt

    method.__name__, method.__doc__ = "_rebuild_buckets", original.__doc__
    return method


def _dense_elements(parameters: Sequence[Tensor], sparse: Sequence[bool]) -> int:
    flags = [*sparse, *[False] * (len(parameters) - len(sparse))]
    pairs = zip(parameters, flags, strict=True)
    return sum(one.numel() for one, is_sparse in pairs if not is_sparse and one.is_cpu)
