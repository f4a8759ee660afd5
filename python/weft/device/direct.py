"""GPU memory that RDMA adapters read in place (dma-buf), and the memory that they do not take.

Adapters read the data that is sent: messages and puts. Received data, and data to be added, passes
through the host's memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import _weft
from weft.device.driver import Driver
from weft.errors import Error, UnsupportedError

__all__ = ["adapters", "in_words"]

_PROBE_BYTES = 64 << 10


def adapters(found: Driver) -> dict[str, str | None]:
    """The usable RDMA devices, each with the reason why it does not take GPU memory, or None.

    Each is tried with memory of every GPU of this host.

    Raises:
        weft.Error: There is no RDMA device.
    """
    names = sorted({name.partition(":")[0] for name, _, usable in _weft.rdma_ports() if usable})
    refusals: dict[str, str | None] = dict.fromkeys(names)
    if names:  # without devices, no GPU needs a context
        for device in range(found.devices):
            for name, refusal in _tried(found, device, names).items():
                refusals[name] = refusals[name] or refusal
    return refusals


def _tried(found: Driver, device: int, names: Sequence[str]) -> dict[str, str | None]:
    with found.on(device):
        address = found.allocate(_PROBE_BYTES)
    try:
        with found.exported(address, _PROBE_BYTES, device) as (file, offset):
            return {name: _weft.try_device_memory(name, address, _PROBE_BYTES, file, offset) for name in names}
    except UnsupportedError as error:
        return dict.fromkeys(names, str(error))
    finally:
        with found.on(device):
            found.free(address)


def in_words(found: Driver) -> str:
    """The adapters that take GPU memory, and why the others do not, for people."""
    try:
        tried = adapters(found)
    except Error as error:
        return str(error)
    shown = [f"{name} {f'refuses it: {refusal}' if refusal else 'takes it'}" for name, refusal in tried.items()]
    return "; ".join(shown) or "no RDMA port can be used"
