"""Tests of the backend and of data parallelism on tensors of an emulated device."""

from __future__ import annotations

import copy
import os
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from deaths import let_others_come
from emulated_accelerator import EmulatedTensor, emulated_accelerator
from torch import nn

import weft
from weft.torch import DataParallel, Overlapped
from weft.torch.lookup import backend_of


def close_devices():
    """Frees the resources of operations on devices, as `destroy_process_group` does."""
    backend_of(None).weft_operations.device_operations.close()


def collectives(rank, size, generic):
    """Every collective against itself on the CPU."""
    with emulated_accelerator(waits_for_results=True, generic=generic) as accelerator:
        put = accelerator.put

        def check(operation, *tensors):
            host = copy.deepcopy(tensors)
            there = [[put(t) for t in one] if isinstance(one, list) else put(one) for one in tensors]
            operation(*host)
            operation(*there)
            for expected, found in zip(host, there, strict=True):
                one, other = (x if isinstance(x, list) else [x] for x in (expected, found))
                for a, b in zip(one, other, strict=True):
                    assert torch.equal(a, torch.Tensor(b).as_subclass(torch.Tensor)), operation
                    assert isinstance(b, EmulatedTensor)

        vector = torch.arange(1000.0) + rank
        blocks = [torch.zeros(7) for _ in range(size)]
        filled = [torch.full((7,), float(10 * rank + i)) for i in range(size)]
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            check(lambda t, op=op: dist.all_reduce(t, op), vector)
        check(dist.all_reduce, torch.full((3, 5), rank + 1j))
        check(dist.all_reduce, torch.zeros(0))
        check(lambda t: dist.all_reduce(t.t()[1:3]), torch.arange(35.0).view(5, 7) * (rank + 1))
        check(lambda t: dist.broadcast(t, 1), vector)
        check(lambda t: dist.broadcast(t, 0), torch.full((3,), rank, dtype=torch.int64))
        check(lambda o, i: dist.all_gather(o, i), blocks, filled[0])
        check(lambda o, i: dist.all_gather_into_tensor(o, i), torch.zeros(7 * size), filled[1])
        check(lambda o, i: dist.reduce_scatter(o, i), torch.zeros(7), filled)
        check(lambda o, i: dist.reduce_scatter_tensor(o, i), torch.zeros(7), torch.cat(filled))
        check(lambda o, i: dist.all_to_all_single(o, i), torch.zeros(7 * size), torch.cat(filled))
        check(lambda o, i: dist.all_to_all(o, i), blocks, filled)
        check(lambda o, i: dist.gather(i, o if rank == 1 else None, 1), blocks, filled[0])
        check(lambda o, i: dist.scatter(o, i if rank == 0 else None, 0), torch.zeros(7), filled)
        check(lambda t: dist.reduce(t, 0, dist.ReduceOp.MAX) or t, torch.full((9,), 5.0))
        messages(rank, size, accelerator)
        assert accelerator.kept, "memory is kept until copies are done"
        close_devices()
        assert accelerator.emulated.registered_bytes == 0


def messages(rank, size, accelerator):
    """Messages around a ring, and from any rank."""
    out, into = accelerator.put(torch.full((200_000,), float(rank))), accelerator.put(torch.zeros(200_000))
    sending = dist.isend(out, (rank + 1) % size, tag=3)
    dist.irecv(into, (rank - 1) % size, tag=3).wait()
    sending.wait()
    assert (into == (rank - 1) % size).all()
    sending = dist.isend(out[:5], (rank + 1) % size, tag=4)
    assert dist.recv(into[:5], tag=4) == (rank - 1) % size
    sending.wait()


def messages_around_collectives(rank, size, generic):
    """Messages that are posted before a collective, and that the peer needs its result for."""
    with emulated_accelerator(waits_for_results=True, generic=generic) as accelerator:

        def put(value, elements=300_000):
            return accelerator.put(torch.full((elements,), float(value)))

        def summed():
            dist.all_reduce(tensor := put(1.0))
            accelerator.synchronize()
            return tensor[0].item()

        early, late = put(0.0), put(0.0)
        if rank == 0:
            receives = [dist.irecv(early, 1), dist.irecv(late, 2)]  # the second ends first
            sending = dist.isend(put(7.0), 1)
            total = summed()
            receives[1].wait()
            assert (late == size).all()
            dist.send(late, 1, tag=1)
            receives[0].wait()
            sending.wait()
            assert (early == 2 * size).all()
        elif rank == 1:
            total = summed()
            dist.recv(received := put(0.0), 0)
            assert (received == 7.0).all()
            dist.recv(received, 0, tag=1)
            dist.send(put(2 * total), 0)
        else:
            total = summed()
            dist.send(put(total), 0)
        assert total == size
        dist.barrier()
        unmatched = dist.irecv(put(0.0), (rank + 1) % size, tag=9)
        close_devices()
        with pytest.raises(weft.Error):
            unmatched.wait()
        assert accelerator.emulated.registered_bytes == 0


def handles(_, size):
    """Handles do not wait for the device, and report its state."""
    with emulated_accelerator() as accelerator:
        tensor = accelerator.put(torch.ones(300_000))
        dist.all_reduce(tensor)  # makes what is needed, with the other ranks
        with accelerator.emulated.held_up(accelerator.stream) as let_go_on:
            work = dist.all_reduce(tensor, async_op=True)
            assert not work.is_completed()
            with pytest.raises(weft.StillRunning):
                work.wait(timedelta(milliseconds=1))
            assert work.wait()
            assert work.get_future().done()
            let_go_on()
            accelerator.synchronize()
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert work.result() == [tensor]
        assert (tensor == size**2).all()
        close_devices()


def queued_handles(rank, size):
    """Without a driver, handles wait for the host's part, and report its state."""
    with emulated_accelerator(generic=True) as accelerator:
        tensor, other = accelerator.put(torch.ones(300_000)), torch.zeros(1)
        dist.all_reduce(tensor)  # makes what is needed, with the other ranks
        if rank:
            dist.recv(other, 0)
        work = dist.all_reduce(tensor, async_op=True)
        work.in_python = False  # as DDP's C++ asks, which waits for all buckets in the end
        future = work.get_future()
        if not rank:
            assert not work.is_completed() and not future.done()
            with pytest.raises(weft.StillRunning):
                work.wait(timedelta(milliseconds=1))
            for peer in range(1, size):
                dist.send(other, peer)
        assert work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert future.wait() == work.result()
        assert (tensor == size**2).all()

        def once_more(future):  # a callback may wait for an operation, as PowerSGD's do
            (reduced,) = future.value()
            return dist.all_reduce(reduced, async_op=True).get_future().wait()

        dist.all_reduce(tensor, async_op=True).get_future().then(once_more).wait()
        assert (tensor == size**4).all()
        works = [dist.all_reduce(accelerator.put(torch.full((5,), float(i))), async_op=True) for i in range(100)]
        for i, one in enumerate(works):
            one.wait()
            assert (one.result()[0] == i * size).all()
        close_devices()


def refusals(_, size):
    """Unsupported calls are refused before anything has started."""
    with emulated_accelerator() as accelerator:
        tensor = accelerator.put(torch.ones(6))
        work = dist.all_reduce(accelerator.put(torch.ones(6)), async_op=True)
        texts = []
        with accelerator.emulated.capturing(accelerator.stream) as end:
            for call in (
                lambda: dist.all_reduce(tensor),
                lambda: dist.all_reduce(tensor[::2]),
                lambda: dist.broadcast(tensor, 0),
                lambda: dist.isend(tensor, 0),
                lambda: dist.irecv(tensor, 0),
                work.wait,
                work.get_future,
                lambda: dist.all_gather([torch.zeros(6) for _ in range(size)], tensor),
            ):
                try:
                    call()
                except Exception as error:
                    texts.append(str(error))
            assert end(), "the capture has not been disturbed"
        dist.all_reduce(tensor)
        accelerator.synchronize()
        assert (tensor == size).all()
        close_devices()
        return texts


def wrong_arguments(rank, size, generic):
    """A mistake that the host detects is reported to all ranks, and breaks operations on
    devices.
    """
    with emulated_accelerator(generic=generic) as accelerator:
        dist.all_reduce(accelerator.put(torch.ones(3)))
        message = ""
        try:
            outputs = [accelerator.put(torch.ones(3 + (rank == 0))) for _ in range(size)]
            dist.all_gather(outputs, accelerator.put(torch.ones(3)), async_op=True).wait(timedelta(seconds=20))
            dist.all_reduce(accelerator.put(torch.ones(3)), async_op=True).wait(timedelta(seconds=20))
        except weft.Error as error:
            message = f"{type(error).__name__}: {error}"
        close_devices()
        assert accelerator.emulated.registered_bytes == 0
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert (tensor == size).all()
        return message


def dies(rank, size, generic):
    """The last rank's process ends: the others get an error from the next call, and streams end."""
    with emulated_accelerator(generic=generic) as accelerator:
        tensor = accelerator.put(torch.ones(500_000))
        dist.all_reduce(tensor)
        accelerator.synchronize()
        let_others_come(rank, size - 1, range(size))
        if rank == size - 1:
            os._exit(0)
        began = time.monotonic()
        with pytest.raises(weft.PeerLost):
            while time.monotonic() - began < 20:
                dist.all_reduce(tensor)
                accelerator.synchronize()
        assert time.monotonic() - began < 5
        close_devices()
        assert accelerator.emulated.registered_bytes == 0


def network():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 4))


def on_device(accelerator, module):
    """A module with its parameters on the device."""
    for one in module.modules():
        for name, parameter in list(one._parameters.items()):
            if parameter is not None:
                one._parameters[name] = nn.Parameter(accelerator.put(parameter.detach()))
    return module


def trains(rank, _, overlapped, gradients, generic):
    """Training on the device has the parameters of training on the CPU."""
    with emulated_accelerator(waits_for_results=True, generic=generic) as accelerator:
        plain, there = DataParallel(network(), fusion=100_000), on_device(accelerator, network())
        if rank:
            for parameter in there.parameters():
                parameter.data.zero_()  # rank 0's are sent
        model = DataParallel(there, fusion=100_000, gradients=gradients)
        for one, other in zip(plain.parameters(), model.parameters(), strict=True):
            assert torch.equal(one.data, other.data.as_subclass(torch.Tensor))
        made = []
        for net in (plain, model):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            if overlapped:
                optimizer = Overlapped(optimizer, net)
            generator = torch.Generator().manual_seed(rank)
            for _ in range(4):
                optimizer.zero_grad()
                net(torch.randn(8, 20, generator=generator)).square().mean().backward()
                optimizer.step()
            net.flush()
            made.append([torch.Tensor(p.data).as_subclass(torch.Tensor).clone() for p in net.parameters()])
        for one, other in zip(*made, strict=True):
            torch.testing.assert_close(one, other)
        with pytest.raises(weft.UnsupportedError, match=r"torch\.profiler"):
            model.report()
        with pytest.raises(weft.UnsupportedError, match="is not supported for a model on a GPU"):
            DataParallel(on_device(accelerator, network()), embeddings="rows")
        with pytest.raises(weft.UnsupportedError, match="is not supported for a model on a GPU"):
            DataParallel(on_device(accelerator, network()), virtual_ranks=4)
        assert len(DataParallel(on_device(accelerator, network())).plan.buckets) == 1
        close_devices()


BOTH_WAYS = pytest.mark.parametrize("generic", [False, True], ids=["driver", "generic"])


@BOTH_WAYS
def test_every_collective(workers, generic):
    workers.run(3, collectives, generic)


@BOTH_WAYS
def test_messages_around_collectives(workers, generic):
    workers.run(3, messages_around_collectives, generic)


def test_handles(workers):
    workers.run(2, handles)


def test_queued_handles(workers):
    workers.run(3, queued_handles)


@BOTH_WAYS
def test_a_dead_rank(workers, generic):
    workers.run(3, dies, generic, dying=[2])


@BOTH_WAYS
def test_wrong_arguments(workers, generic):
    own, other = workers.run(2, wrong_arguments, generic)
    assert own.startswith("ArgumentError: ")
    assert other.startswith("Aborted: ") and "rank 0 cannot continue" in other


def test_unsupported_tensors_are_refused(workers):
    for texts in workers.run(2, refusals):
        names = ("all_reduce", "all_reduce", "broadcast", "send", "recv", "wait", "get_future")
        for text, name in zip(texts[:-1], names, strict=True):
            assert f"is being captured into a CUDA graph: {name} of weft" in text
        assert "some tensors of the call are on the CPU and some on a device" in texts[-1]


@BOTH_WAYS
@pytest.mark.parametrize(("overlapped", "gradients"), [(False, "copy"), (False, "view"), (True, "copy")])
def test_data_parallel(workers, overlapped, gradients, generic):
    workers.run(2, trains, overlapped, gradients, generic)
