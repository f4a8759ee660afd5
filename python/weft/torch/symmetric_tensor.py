"""One-sided operations on tensors in symmetric memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from weft.api.one_sided import ArrayKind, OneSided, Window
from weft.errors import ArgumentError
from weft.torch.arguments import element_type
from weft.torch.blocks import as_tensor
from weft.torch.lookup import backend_of
from weft.torch.patches.modes import outside_of_modes

__all__ = ["SymmetricTensor", "one_sided"]


class SymmetricTensor(OneSided):
    """The one-sided operations of a tensor in symmetric memory. Made by `one_sided`."""

    def __init__(self, tensor: Tensor, window: Window) -> None:
        self._tensor = tensor
        self._window = window

    @property
    def tensor(self) -> Tensor:
        """This rank's part."""
        return self._tensor

    @property
    def window(self) -> Window:
        """The symmetric buffer behind the tensor."""
        return self._window


@outside_of_modes
def one_sided(tensor: Tensor, group: ProcessGroup | None = None) -> SymmetricTensor:
    """Returns the one-sided operations on the ranks' parts of a tensor.

    They are those of `weft.SymmetricArray`, with tensors instead of arrays. It is not a collective
    call; torch's counterpart is `torch.distributed._symmetric_memory.rendezvous`.

    Args:
        tensor: A whole tensor that `empty_symmetric` returned.
        group: The group that it was made in; the default group if not given.

    Returns:
        An object with `put`, `get`, `signal` and the others, for elements of the tensor's type. The
        shape of a rank's part is the tensor's.

    Raises:
        weft.ArgumentError: It is a part of such a tensor, or another tensor.

    Examples:
        >>> buffer = weft.torch.one_sided(weft.torch.empty_symmetric(8))  # on every rank
        >>> buffer.put(right, torch.ones(4), at=2); buffer.quiet()
    """
    array = backend_of(group).symmetric_memory.array_of(tensor)
    if array is None:
        raise ArgumentError(
            "tensor was not returned by weft.torch.empty_symmetric for this group, or is only a part of it: "
            "one-sided operations need the whole tensor"
        )
    whole = array.window
    shape, dtype = tuple(tensor.shape), tensor.dtype
    kind = ArrayKind(
        lambda new: torch.empty(new, dtype=dtype, device="cpu"),
        lambda part: as_tensor(part, dtype).view(shape),
    )
    return SymmetricTensor(tensor, Window(whole.native, whole.member, element_type(dtype), shape, kind))
