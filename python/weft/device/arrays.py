"""Arrays on devices, such as CuPy's and torch's, by DLPack: their all-reduce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft import _weft, config
from weft.device.driver import driver
from weft.device.operation import DeviceOperation
from weft.device.pipeline import DeviceMemory, Pipeline
from weft.dtypes import of_dlpack
from weft.errors import ArgumentError, Error, UnsupportedError
from weft.ops import Op, PremulSum

if TYPE_CHECKING:
    from weft.group import Group

__all__ = ["DeviceArrays"]


class DeviceArrays:
    """What a group does with arrays on devices, in a child that nobody else uses."""

    def __init__(self, child: Group) -> None:
        """`child` has the same ranks; it is closed with this."""
        self._child = child
        self._pipeline: Pipeline | None = None
        self._refusal: Error | None = None

    def all_reduce(self, x: Any, op: Op | PremulSum, out: Any | None, how: Mapping[str, Any]) -> DeviceOperation:
        """Starts an all-reduce in place, which begins after what `x` waits for.

        Raises:
            weft.ArgumentError: `x` is read-only.
            weft.UnsupportedError: `x` is not contiguous, there is an `out`, or there is no driver.
        """
        if out is not None:
            raise UnsupportedError("out= is not supported for arrays on a device: they are reduced in place")
        device = int(x.__dlpack_device__()[1])
        pipeline = self._pipeline_for(device)
        stream = pipeline.queues_of(device).to_host
        tensor = _weft.DlpackTensor(_capsule(x, stream))
        dtype = of_dlpack(*tensor.dtype)
        if tensor.read_only:
            raise ArgumentError("x is read-only: expected an array that can be written")
        elements = _elements(tensor)
        keywords = dict(how)
        return pipeline.all_reduce(
            DeviceMemory(tensor.pointer, elements * dtype.itemsize),
            dtype,
            op,
            device=device,
            stream=stream,
            timeout=keywords.pop("timeout", None),
            how=keywords,
            hold=(x, tensor),
        )

    def abort(self, reason: str) -> None:
        """Ends every operation under way, on all ranks."""
        self._child.abort(reason)

    def close(self) -> None:
        """Ends what is under way, and leaves the child."""
        if self._pipeline is not None:
            self._pipeline.close()
        else:
            self._child.close()

    def _pipeline_for(self, device: int) -> Pipeline:
        """The pipeline, which all ranks make at their first such operation."""
        if self._refusal is not None:
            raise self._refusal
        if self._pipeline is None:
            loaded = driver()
            try:
                self._pipeline = Pipeline(self._child.native, loaded, device, config.load().device_tile)
            except Error as error:
                self._refusal = error
                raise
        return self._pipeline


def _capsule(x: Any, stream: int) -> Any:
    """What `x` says of its memory, which `stream` may use from then on."""
    try:
        try:
            return x.__dlpack__(stream=stream, max_version=(1, 0))
        except TypeError:
            return x.__dlpack__(stream=stream)
    except (BufferError, RuntimeError) as error:
        raise UnsupportedError(f"x ({type(x).__name__}) does not give its memory away: {error}") from error


def _elements(tensor: _weft.DlpackTensor) -> int:
    expected = 1
    for length, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if 0 not in tensor.shape and length != 1 and stride != expected:
            raise UnsupportedError(
                f"x, on a device, has shape {tensor.shape} with strides {tensor.strides}: expected a contiguous array"
            )
        expected *= length
    return expected
