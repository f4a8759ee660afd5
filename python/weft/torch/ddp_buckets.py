"""Buckets of stock DistributedDataParallel in symmetric memory, without a word of the user's.

[Note: Buckets in symmetric memory] DDP allocates its flat buckets itself, and asks nobody. So a
bucket is moved: torch has an operation that lets a storage move to shared memory in place, with all
views following, and weft's own memory then takes the place of what torch has mapped. torch frees it
as before.

It is done at the bucket's first all-reduce after its layout is final, when nobody but DDP knows it:
an array of NumPy that shows a tensor's memory would not follow. All ranks come by this point in the
same order, so they make the same pieces of memory; where one has no room for its part, or must
leave its bucket alone, operations run as on any other memory on all ranks. Nobody waits for the
others here: until the parts of all ranks are known, operations run so as well.

Operations are given the address at which weft itself has mapped the memory. So the runtime need not
know torch's mapping, which ends when torch frees it, and no other memory that comes to lie there
can be taken for the bucket. weft's part hangs on the storage and is let go with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from torch import Tensor, UntypedStorage
from torch.distributed import ProcessGroup

from weft import config
from weft.errors import ArgumentError
from weft.torch.arguments import is_reducible
from weft.torch.lookup import backend_of
from weft.torch.patches.autograd import called_by_reducer
from weft.torch.patches.reducers import NewBuckets, follow_reducers

if TYPE_CHECKING:
    from weft import _weft

__all__ = ["DDPBuckets"]

_BYTES_MIN = 512 << 10  # what is copied of smaller ones takes less than to agree on their place
_PART = "_weft_part"


@dataclasses.dataclass(frozen=True)
class _Part:
    """This rank's part of the symmetric memory in which a storage lies."""

    symmetric: _weft.Symmetric
    group: _weft.Group

    @property
    def address(self) -> int:
        address: int = self.symmetric.__array_interface__["data"][0]
        return address


class DDPBuckets:
    """The buckets of a group's DDP models: see [Note: Buckets in symmetric memory]."""

    def __init__(self, group: _weft.Group) -> None:
        self._group = group
        self._new: list[NewBuckets] = []
        self._any_moved = False
        self._may_move = group.size > 1 and len(set(group.hosts())) == 1
        if self._may_move:
            follow_reducers(_expect)

    def expect(self, new: NewBuckets) -> None:
        """Lets new buckets be moved when they are first all-reduced.

        Not where ranks are on several hosts, of which some may follow reducers for another group,
        nor where options forbid it.
        """
        if self._may_move and config.load().symmetric_buckets:
            self._new.append(new)

    def address(self, tensor: Tensor) -> int:
        """Where an all-reduce of a contiguous tensor takes place."""
        if not self._any_moved and not self._new:
            return tensor.data_ptr()
        storage = tensor.untyped_storage()
        part: _Part | None = getattr(storage, _PART, None)
        if part is None and self._new and _is_whole(tensor, storage) and called_by_reducer():
            part = self._move(tensor, storage)
        if part is None or part.group is not self._group:
            return tensor.data_ptr()
        return part.address + tensor.data_ptr() - storage.data_ptr()

    def _move(self, tensor: Tensor, storage: UntypedStorage) -> _Part | None:
        """Moves a bucket, if it is new and nothing speaks against it.

        All ranks offer memory or none does: that depends on nothing but what all of them pass.
        """
        elements = tensor.numel()
        new = next((new for new in self._new if new.elements >= elements), None)
        if new is None:
            return None
        new.elements -= elements
        if new.elements == 0:
            self._new.remove(new)
        if tensor.nbytes < _BYTES_MIN or not is_reducible(tensor.dtype):
            return None
        symmetric = self._group.offer_symmetric(tensor.nbytes)
        if symmetric is None or new.exposed or storage.is_shared():
            return None
        with contextlib.suppress(RuntimeError, OSError):  # no room for torch's copy, as in a container
            descriptor, _ = storage._share_fd_cpu_()
            symmetric.replace(storage.data_ptr(), descriptor)
            part = _Part(symmetric, self._group)
            setattr(storage, _PART, part)
            self._any_moved = True
            return part
        return None


def _expect(group: ProcessGroup, new: NewBuckets) -> None:
    with contextlib.suppress(ArgumentError):  # of another backend
        backend_of(group).weft_operations.ddp_buckets.expect(new)


def _is_whole(tensor: Tensor, storage: UntypedStorage) -> bool:
    return tensor.dim() == 1 and tensor.nbytes == storage.nbytes()
