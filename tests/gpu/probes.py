"""Questions about a machine that the cases leave open; each function is run by every rank."""

from __future__ import annotations

import math
import mmap
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

import weft
from tools.gpu.rank import note, result
from weft.api.group import Group
from weft.device.driver import Driver, driver
from weft.device.memory import address_of
from weft.device.placement import node_of
from weft.errors import DeviceError, UnsupportedError
from weft.torch import DataParallel
from weft.torch.lookup import backend_of

_MIB = 1 << 20
_LATE_S = 1.0
_ATTRIBUTES = {
    "copy engines": 40,
    "unified addresses": 41,
    "pageable access": 88,
    "preemption": 90,
    "host pointers": 91,
    "host registration": 99,
    "dma-buf": 124,
}
_kept: list[object] = []


def driver_alone(rank: int, size: int) -> None:
    """Registration, waits for words and copies, and what they cost, without torch's help."""
    del rank, size
    found, device = driver(), torch.cuda.current_device()
    place = f"{found.pci_address(device)}, node {node_of(found, device)}"
    note(f"{found.name(device)}, CUDA {found.version}, {place}")
    row: dict[str, object] = {"attributes": _attributes(found, device)}
    note(f"attributes: {row['attributes']}")
    with found.on(device):
        stream, there = found.new_stream(), found.allocate(256 * _MIB)
        for nbytes in (4096, 32 * _MIB, 256 * _MIB, 1024 * _MIB):
            row[f"register {nbytes} bytes"] = seconds = _registration(found, nbytes)
            note(f"registering {nbytes / _MIB:g} MiB takes {seconds[0] * 1e3:.2f} ms")
        memory = np.frombuffer(mmap.mmap(-1, 256 * _MIB), np.uint8)
        memory[:] = 1
        address = address_of(memory)
        found.register(address, memory.nbytes)
        row["seconds from a word to a thread"] = waited = _words(found, memory, stream)
        note(f"from a word to a thread that wakes: {waited * 1e6:.0f} us")
        for direction, call in (
            ("to host", lambda: found.copy_to_host(address, there, 256 * _MIB, stream)),
            ("to device", lambda: found.copy_to_device(there, address, 256 * _MIB, stream)),
        ):
            rate = 256 * _MIB / statistics.median(_timed(found, call, stream) for _ in range(5))
            row[direction] = rate
            note(f"registered memory, {direction}: {rate / 1e9:.1f} GB/s")
        small = [_timed(found, lambda: found.copy_to_host(address, there, 4096, stream), stream) for _ in range(100)]
        row["seconds of a small copy"] = statistics.median(small)
        found.unregister(address)
        found.free(there)
        found.destroy_stream(stream)
    result(probe="driver", figures=row)


def _attributes(found: Driver, device: int) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, number in _ATTRIBUTES.items():
        try:
            values[name] = found.attribute(device, number)
        except DeviceError as error:
            values[name] = str(error)
    return values


def _registration(found: Driver, nbytes: int) -> list[float]:
    memory = np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    memory[::4096] = 1
    address, times = address_of(memory), [time.perf_counter()]
    found.register(address, nbytes)
    times.append(time.perf_counter())
    assert found.device_address(address) == address, "host memory has another address on the device"
    found.unregister(address)
    times.append(time.perf_counter())
    return [times[1] - times[0], times[2] - times[1]]


def _words(found: Driver, memory: np.ndarray, stream: int) -> float:
    """A stream waits for words, and writes them; returns the time until a thread wakes."""
    address, words = address_of(memory), memory[:64].view(np.uint32)
    words[:] = 0
    waited = 0.0
    for value in (1, 2**31, 2**32 - 1, 2**32 + 5):  # in steps of less than 2**31, as the driver compares
        event = found.new_event()
        found.wait_for_value(stream, address, value % 2**32)
        found.write_value(stream, address + 4, value % 2**32)
        found.record(event, stream)
        time.sleep(0.02)
        assert not found.has_happened(event), f"the wait for {value} did not wait"
        words[0] = value % 2**32
        began = time.perf_counter()
        found.synchronize_event(event)
        waited = time.perf_counter() - began
        assert words[1] == value % 2**32, "the stream has not written its word"
        found.destroy_event(event)
    return waited


def _timed(found: Driver, call: Callable[[], None], stream: int) -> float:
    began = time.perf_counter()
    call()
    found.synchronize_stream(stream)
    return time.perf_counter() - began


def smoke(rank: int, size: int) -> None:
    """A sum, a large one in many tiles, an asynchronous one, an array, a step of training."""
    total = float(sum(range(1, size + 1)))
    for elements in (1000, 16 * _MIB):
        x = _full(elements, rank + 1.0)
        dist.all_reduce(x)
        assert (x == total).all()
    work = dist.all_reduce(y := _full(3_000_001, rank + 1.0), async_op=True)
    assert work is not None and work.wait() and (y == total).all()
    print("sums are right", flush=True)
    assert (Group(backend_of(None).weft_group).all_reduce(_full(70_001, rank + 1.0)) == total).all()
    print("arrays are right", flush=True)
    torch.manual_seed(0)
    model = DataParallel(torch.nn.Linear(300, 300).cuda())
    model(torch.ones(4, 300, device="cuda") * (rank + 1)).sum().backward()
    gradient = next(model.parameters()).grad
    assert gradient is not None and torch.allclose(gradient, _full(1, 4 * total / size)), gradient
    if rank == 0:
        versions = f"weft {weft.__version__}, torch {torch.__version__} ({type(backend_of(None)).__name__})"
        note(f"{versions}, {torch.cuda.get_device_name(0)}: {size} ranks agree")


def frees(rank: int, size: int) -> None:
    """Calls by which a driver may wait for the device while the device waits for weft's threads.

    If it hangs, the locks of the driver stop it; the last line says in which call.
    """
    del size
    found, device = driver(), torch.cuda.current_device()
    tensor, small = _full(32 * _MIB, 0.0), _full(32, 0.0)  # more tiles than there are slots
    dist.all_reduce(tensor)
    memory = np.frombuffer(mmap.mmap(-1, 64 * _MIB), np.uint8)

    def on_device(call: Callable[..., object], *arguments: object) -> object:
        with found.on(device):
            return call(*arguments)

    def empty_cache() -> None:
        torch.empty(512 * _MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    calls: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "a new stream": lambda: _kept.append(torch.cuda.Stream()),
        "cuMemGetInfo": torch.cuda.mem_get_info,
        "synchronizing another stream": lambda: torch.cuda.Stream().synchronize(),
        "cuMemHostRegister": lambda: on_device(found.register, address_of(memory), memory.nbytes),
        "cuMemHostUnregister": lambda: on_device(found.unregister, address_of(memory)),
        "pinned memory of torch": lambda: _kept.append(torch.empty(96 * _MIB, dtype=torch.uint8, pin_memory=True)),
        "cuMemAlloc": lambda: _kept.append(on_device(found.allocate, 512 * _MIB)),
        "a kernel's first launch": lambda: small.cumsum(0),
        "another kernel's": lambda: small.sort(),
        "cuMemFree": lambda: on_device(found.free, _kept.pop()),
        "torch.cuda.empty_cache": empty_cache,
    }
    rows = {}
    for name, call in calls.items():
        if rank == 0:
            print(f"calling: {name}", flush=True)
        rows[name] = took, whole = _while_under_way(rank, tensor, call)
        if rank == 0:
            waits = "WAITS for what is under way" if took > 0.6 * _LATE_S else "does not wait"
            note(f"{name}: {took:.3f} s, {waits}; the operation ended after {whole:.2f} s")
    took, freed = _beside_frees(rank, tensor, lambda: on_device(found.free, on_device(found.allocate, 8 * _MIB)))
    if rank == 0:
        note(f"30 sums of 128 MiB took {took:.2f} s beside {freed} frees of another thread")
        result(probe="frees", seconds=rows, beside_frees=[took, freed])


def _beside_frees(rank: int, tensor: torch.Tensor, free: Callable[[], object]) -> tuple[float, int]:
    """Seconds of 30 sums while another thread of rank 0 frees memory, and how often it did."""
    ends, freed = threading.Event(), [0]

    def again_and_again() -> None:
        while not ends.is_set():
            free()
            freed[0] += 1

    thread = threading.Thread(target=again_and_again)
    if rank == 0:
        print("calling: cuMemAlloc and cuMemFree, again and again, by another thread", flush=True)
        thread.start()
    began = time.monotonic()
    for _ in range(30):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    took = time.monotonic() - began
    ends.set()
    if rank == 0:
        thread.join()
    return took, freed[0]


def aliasing(rank: int, size: int) -> None:
    """How many of a program's streams stand still while an operation waits for a late rank."""
    del size
    tensor = _full(_MIB, 0.0)
    dist.all_reduce(tensor)
    kinds = {"normal": [torch.cuda.Stream() for _ in range(32)]}
    kinds["high"] = [torch.cuda.Stream(priority=-1) for _ in range(32)]
    kinds["default"] = [torch.cuda.current_stream()]
    streams = [(kind, stream, _full(1000, 0.0)) for kind, those in kinds.items() for stream in those]
    torch.cuda.synchronize()
    for _, stream, tick in streams:
        with torch.cuda.stream(stream):
            tick.add_(1)
    torch.cuda.synchronize()
    blocked = dict.fromkeys(kinds, 0)

    def tick_all() -> None:
        events = []
        for kind, stream, tick in streams:
            with torch.cuda.stream(stream):
                tick.add_(1)
                events.append((kind, stream.record_event()))
        time.sleep(0.4 * _LATE_S)
        for kind, event in events:
            blocked[kind] += not event.query()

    _while_under_way(rank, tensor, tick_all)
    if rank == 0:
        connections = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "default")
        note(f"streams that stand still, CUDA_DEVICE_MAX_CONNECTIONS={connections}: {blocked} of 32, 32, 1")
        result(probe="aliasing", connections=connections, blocked=blocked)


def captures(rank: int, size: int) -> None:
    """A graph is captured in another stream while weft's threads work for an operation."""
    del size
    tensor, other = _full(32 * _MIB, 0.0), _full(1000, 1.0)
    dist.all_reduce(tensor)
    outcomes = {}
    for mode in ("thread_local", "global"):

        def captured(mode: str = mode) -> None:
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode=mode)
                twice = other * 2
                time.sleep(1.5 * _LATE_S)  # the others come meanwhile, and weft's threads go on
                graph.capture_end()
            graph.replay()
            torch.cuda.synchronize()
            assert (twice == 2).all()

        try:
            _while_under_way(rank, tensor, captured)
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
            outcomes[mode] = "captured"
        except Exception as error:
            outcomes[mode] = f"{type(error).__name__}: {error}"[:300]
            break
    note(f"rank {rank}, a capture beside an operation: {outcomes}")
    if rank == 0:
        result(probe="captures", outcomes=outcomes)
    assert set(outcomes.values()) == {"captured"}


def allocator(rank: int, size: int) -> None:
    """The allocator that the environment asks for: sums, and what is exported of tensors."""
    tensors = [_full(elements, rank + 1.0) for elements in (5, 300_001, 16 * _MIB)]
    for tensor in tensors:
        dist.all_reduce(tensor)
        assert (tensor == sum(range(1, size + 1))).all()
    for tensor in tensors:
        try:
            with driver().exported(tensor.data_ptr(), tensor.nbytes, tensor.get_device()) as (file, offset):
                whole = os.lseek(file, 0, os.SEEK_END)
                enough = "enough" if whole >= offset + tensor.nbytes else "TOO LITTLE"
                text = f"{tensor.nbytes} bytes at {offset} of a file of {whole}: {enough}"
        except UnsupportedError as error:
            text = str(error)
        if rank == 0:
            asked = os.environ.get("PYTORCH_ALLOC_CONF", "torch's own")
            note(f"allocator {asked}: exported {text}")
            result(probe="allocator", allocator=asked, exported=text)


def exits(rank: int, size: int) -> None:
    """A process ends as programs do that forget `destroy_process_group`."""
    del rank, size
    dist.all_reduce(_full(16 * _MIB, 1.0))
    torch.cuda.synchronize()
    print(f"ENDS {time.time()}", flush=True)
    sys.exit(0)


def exits_under_way(rank: int, size: int) -> None:
    """The same, in the middle of an operation that the other rank never begins."""
    del size
    tensor = _full(16 * _MIB, 1.0)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        _kept.append(work)
        work.wait()
    else:
        time.sleep(0.5)
    print(f"ENDS {time.time()}", flush=True)
    sys.exit(0)


def failing_kernel(rank: int, size: int) -> None:
    """A kernel of one rank fails, and with it its device: all ranks are notified."""
    tensor = _full(3_000_001, 1.0)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    began, failure = time.monotonic(), None
    try:
        if rank == size - 1:
            broken = torch.zeros(3, device="cuda")[torch.full((1,), 7, device="cuda", dtype=torch.int64)]
            dist.all_reduce(broken, async_op=True)
        while time.monotonic() - began < 20:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
    except Exception as error:
        failure = error
    took = time.monotonic() - began
    note(f"rank {rank} was notified after {took:.1f} s: {type(failure).__name__}: {str(failure)[:200]}")
    assert failure is not None and took < 15
    assert rank == size - 1 or isinstance(failure, weft.Error)
    sys.stdout.flush()
    os._exit(0)  # the device of one rank is broken


def cupy_arrays(rank: int, size: int) -> None:
    """Arrays of CuPy by DLPack, made on a stream of CuPy's."""
    import cupy

    group, total = Group(backend_of(None).weft_group), sum(range(1, size + 1))
    cupy.cuda.Device(torch.cuda.current_device()).use()
    with cupy.cuda.Stream(non_blocking=True):
        for elements in (5, 3_000_001):
            x = cupy.full(elements, rank + 1, dtype=cupy.float32)
            for _ in range(20):
                x = x * 2 / 2  # work that is still under way
            assert group.all_reduce(x) is x
            assert bool((x == total).all()), x
        out = cupy.zeros(1000, dtype=cupy.float32)
        group.all_reduce(cupy.full(1000, rank + 1, dtype=cupy.float32), out=out)
        assert bool((out == total).all())
        gathered = group.all_gather(cupy.full(3, rank, dtype=cupy.int32))
        assert gathered[:, 0].tolist() == list(range(size)), gathered
        group.broadcast(out, 1)
    note(f"CuPy {cupy.__version__}: right")


def jax_arrays(rank: int, size: int) -> None:
    """Arrays of JAX, which are read-only: read, and refused where they would be written."""
    import jax
    import jax.numpy

    group, total = Group(backend_of(None).weft_group), sum(range(1, size + 1))
    x = jax.numpy.full((70_001,), float(rank + 1), dtype=jax.numpy.float32)
    out = torch.zeros(70_001, device="cuda")
    group.all_reduce(x, out=out)
    assert (out == total).all()
    outcomes = []
    for call in (lambda: group.all_reduce(x), lambda: group.all_gather(x)):
        try:
            call()
            outcomes.append("done")
        except weft.Error as error:
            outcomes.append(f"{type(error).__name__}: {error}"[:120])
    note(f"JAX {jax.__version__} on {jax.devices()}: read; in place and gathered: {outcomes}")


def _full(elements: int, value: float) -> torch.Tensor:
    return torch.full((elements,), value, device="cuda")


def _while_under_way(rank: int, tensor: torch.Tensor, call: Callable[[], object]) -> tuple[float, float]:
    """Rank 0 calls something while its all-reduce waits for the others, who come late.

    Returns the seconds of the call, and until the operation had ended.
    """
    dist.barrier()
    began, took = time.monotonic(), math.nan
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        issued = time.monotonic()
        call()
        took = time.monotonic() - issued
        work.wait()
    else:
        time.sleep(_LATE_S)
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return took, time.monotonic() - began
