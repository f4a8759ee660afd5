"""The forms of operations that tests/gpu tries on GPUs, on an emulated device."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from emulated_accelerator import EmulatedTensor, emulated_accelerator
from test_device_tensors import close_devices

from weft.device.driver import driver

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

import forms


class EmulatedDevice:
    """An emulated device, whose kernels work on words of 32 bits."""

    def __init__(self, accelerator):
        self.accelerator = accelerator
        self._sources = []

    def late(self, tensor):
        source = self.accelerator.put(tensor)
        with driver().on(0):
            self.accelerator.emulated.delay(self.accelerator.stream, 2e-3)
        return self._copied(source)

    def seen(self, tensor):
        return self._copied(tensor)

    def overwrite(self, tensor):
        with driver().on(0):
            self.accelerator.emulated.fill_words(self.accelerator.stream, tensor.data_ptr(), 0, tensor.nbytes // 4)

    def on_host(self, tensor):
        self.accelerator.synchronize()
        return torch.Tensor(tensor).as_subclass(torch.Tensor).clone()

    def _copied(self, source):
        copy = self.accelerator.empty(tuple(source.shape), source.dtype)
        assert source.nbytes % 4 == 0
        with driver().on(0):
            where = copy.data_ptr(), source.data_ptr(), source.nbytes // 4
            self.accelerator.emulated.add_words(self.accelerator.stream, *where)
        self._sources.append(source)
        return copy


def every_form(rank, size):
    with emulated_accelerator() as accelerator:
        failed = forms.failed(rank, size, EmulatedDevice(accelerator))
        close_devices()
        assert accelerator.emulated.registered_bytes == 0
        return failed


def two_groups_on_two_threads(rank, size):
    """Each thread has a stream of its own: on one, the groups' orders would contradict."""
    with emulated_accelerator() as accelerator:
        groups = [None, dist.new_group()]
        tensors = [accelerator.put(torch.full((300_001,), rank + 1.0)) for _ in groups]
        streams, errors = threading.local(), []
        accelerator.current_stream = lambda _: streams.own

        def repeat(which):
            try:
                with driver().on(0):
                    streams.own = driver().new_stream()
                for _ in range(20):
                    dist.all_reduce(tensors[which], dist.ReduceOp.AVG, group=groups[which])
                with driver().on(0):
                    driver().synchronize_stream(streams.own)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=repeat, args=(which,)) for which in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for tensor in tensors:
            assert (tensor == (size + 1) / 2).all()
            assert isinstance(tensor, EmulatedTensor)
        dist.destroy_process_group(groups[1])
        close_devices()


def test_every_form(workers):
    assert workers.run(3, every_form) == [[], [], []]


def test_two_groups_on_two_threads(workers):
    workers.run(3, two_groups_on_two_threads)
