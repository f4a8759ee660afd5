"""Wire formats of torch's operations: for a block of code, and as a communication hook of DDP."""

# Without postponed annotations: DDP inspects those of its hooks.
import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket
from torch.distributed import ProcessGroup, distributed_c10d

from weft.errors import ArgumentError
from weft.settings import WIRE_FORMATS
from weft.torch.call_context import within_block
from weft.torch.patches.modes import outside_of_modes

__all__ = ["wire_format", "wire_hook"]


@contextlib.contextmanager
def wire_format(name: str) -> Iterator[None]:
    """Sends the operations that this thread starts in the block in a wire format.

    For all_reduce, reduce and reduce_scatter (sum, avg), all_gather and broadcast, with elements of
    `float32`; others are refused. Every rank does so around the same operations. See
    the documentation's page "Wire formats".

    Args:
        name: `full`, `fp16`, `bf16`, `fp8_e4m3` or `fp8_e5m2`.

    Raises:
        weft.ArgumentError: There is no such format.

    Examples:
        >>> with weft.torch.wire_format("bf16"):
        ...     dist.all_reduce(tensor)  # sends half of the bytes
    """
    if name not in WIRE_FORMATS:
        raise ArgumentError(f"wire_format({name!r}): expected one of {', '.join(WIRE_FORMATS)}")
    with within_block(wire=name):
        yield


@outside_of_modes
def wire_hook(state: tuple[ProcessGroup | None, str] | str, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A communication hook by which DDP averages gradients in a wire format.

    `net.register_comm_hook("bf16", weft.torch.wire_hook)`. Gradients stay `float32` and are added
    as such; buckets of other types are sent unchanged. For groups whose backend is weft.

    Args:
        state: The name of the format; or DDP's process group, if it is not the default one, and the
            name.
        bucket: DDP's bucket.

    Returns:
        A future of the average.
    """
    group, name = (None, state) if isinstance(state, str) else state
    group = distributed_c10d._get_default_group() if group is None else group
    gradients = bucket.buffer().div_(group.size())
    format_asked: Any = wire_format(name) if gradients.dtype == torch.float32 else contextlib.nullcontext()
    with format_asked:
        work = torch.distributed.all_reduce(gradients, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
