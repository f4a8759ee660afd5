"""Tests of the interface to torch's CUDA streams, with stand-ins for what needs a GPU."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch

from weft.torch.device import accelerator
from weft.torch.device.accelerator import CudaAccelerator


class FutureOfNoDevice(torch.futures.Future):
    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __init__(self, *, devices: object = None) -> None:  # noqa: ARG002
        super().__init__()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The streams that were made current, in order; torch's streams are their handles."""
    current: list[object] = []

    @contextlib.contextmanager
    def stream(one: object):
        current.append(one)
        yield

    accelerator._as_torch_has_it.cache_clear()
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda handle, device: (handle, device))
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.futures, "Future", FutureOfNoDevice)
    monkeypatch.setattr(accelerator, "driver", lambda: None)
    monkeypatch.setattr(accelerator, "_readers", SimpleNamespace(after=lambda *_: 77))
    yield current
    accelerator._as_torch_has_it.cache_clear()


def operation(**others: object) -> SimpleNamespace:
    queues = SimpleNamespace(to_host=5, to_device=6)
    return SimpleNamespace(device=1, queues=queues, late=False, **others)


def test_memory_is_kept_for_both_streams(streams: list[object]) -> None:
    kept: list[object] = []
    CudaAccelerator().keep(SimpleNamespace(record_stream=kept.append), operation())
    assert kept == [(5, 1), (6, 1)]
    assert not streams


def test_memory_is_kept_until_a_late_operation_ends(streams: list[object]) -> None:
    owners: list[object] = []
    tensor, late = SimpleNamespace(record_stream=lambda _: None), operation(keep=owners.append)
    late.late = True
    CudaAccelerator().keep(tensor, late)
    assert owners == [tensor]
    assert not streams


def test_a_future_records_a_stream_of_readers(streams: list[object]) -> None:
    assert CudaAccelerator().future("result", operation(), in_python=False).value() == "result"
    assert streams == [(77, 1)]


def test_a_late_future_is_complete_after_its_operation(streams: list[object]) -> None:
    callbacks: list[object] = []
    late = operation(when_ended=callbacks.append, wait=lambda: True)
    late.late = True
    future = CudaAccelerator().future("result", late, in_python=False)
    assert not future.done()
    (callback,) = callbacks
    callback()
    assert future.value() == "result"
    assert CudaAccelerator().future("result", late, in_python=True).done()
    assert not streams
