"""One rank of the groups of `ranks.py`: `member.py TASK RANK SIZE ADDRESS ...`."""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import weft
from tools.emulated_cuda import TO_HOST, Emulated, EmulatedArray, library
from weft.device.driver import driver

TIMEOUT_S = 60.0


def sums(rank: int, size: int, *addresses: str) -> None:
    """Sums over RDMA with one device and two, with the bits that TCP gives."""
    rng = np.random.default_rng(rank)
    inputs = [rng.standard_normal(count).astype(np.float32) for count in (1, 1000, 300_000)]
    found = []
    ways = ({"transport": "tcp"}, {"transport": "rdma"}, {"transport": "rdma", "rdma_devices": "all"})
    for address, settings in zip(addresses, ways, strict=True):
        with weft.init(rank, size, address=address, timeout=TIMEOUT_S, **settings) as group:
            outputs = [group.all_reduce(values.copy(), op="avg") for values in inputs]
            found.append([bytes(output.tobytes()) for output in outputs])
    if not found[0] == found[1] == found[2]:
        raise RuntimeError("sums over RDMA have other bits than over TCP")
    print(f"rank {rank}: the same bits over TCP, one device and two")


def registered(rank: int, size: int, *addresses: str) -> None:
    """Sums from the pool, by handles and pipelined: the same bits, copied from the pool only."""
    values = np.random.default_rng(rank).standard_normal(2_000_003).astype(np.float32)
    found = []
    for address, registration in zip(addresses, ("pool", "pipelined"), strict=True):
        settings = {"transport": "rdma", "registration": registration}
        with weft.init(rank, size, address=address, timeout=TIMEOUT_S, **settings) as group:
            array = values.copy()
            group.all_reduce(array, op="avg")
            found.append(array.tobytes())
            copied = group.staged_bytes
            if (copied > array.nbytes / 4) != (registration == "pool"):
                raise RuntimeError(f"{registration}: {copied} bytes were copied ({group.describe()})")
            with group.register(array) as handle:
                if handle.transports != ["rdma"]:
                    raise RuntimeError(f"{handle} does not know the transport")
                child = forked_reader(handle, array)
                array[:] = values  # the child has pages of its own, and adapters go on with these
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                if status != 0:
                    raise RuntimeError(f"a forked child does not see the registered array: it ended with {status}")
                group.all_reduce(array, op="avg")
            found.append(array.tobytes())
            if group.staged_bytes != copied:
                raise RuntimeError(f"{group.staged_bytes - copied} bytes of a registered array were copied")
    if len(set(found)) != 1:
        raise RuntimeError("registered arrays give other bits than the pool")
    print(f"rank {rank}: the same bits from the pool, by handles and pipelined")


def forked_reader(handle: weft.Registration, array: np.ndarray) -> int:
    """A forked child reads a registered array and ends the handle, which is the parent's to end."""
    before = array.copy()
    child = os.fork()
    if child == 0:
        handle.deregister()
        os._exit(int(not np.array_equal(array, before)))
    return child


def lost(rank: int, size: int, address: str) -> None:
    """The last rank dies in the middle of a run of sums; the others must get an error that names
    it.
    """
    group = weft.init(rank, size, address=address, timeout=TIMEOUT_S, transport="rdma")
    values = np.ones(200_000, np.float32)
    group.all_reduce(values)
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            group.all_reduce(values)
    except weft.PeerLost as error:
        if error.rank != size - 1:
            raise
        print(f"rank {rank}: {error}")


def devices_refused(rank: int, size: int, *addresses: str) -> None:
    """Arrays of GPUs whose memory the adapters refuse: a handle says so, and they are staged."""
    _devices(rank, size, addresses[0], "rdma", taken=False)
    _devices(rank, size, addresses[1], "tcp", taken=False)


def devices_taken(rank: int, size: int, *addresses: str) -> None:
    """Arrays of GPUs whose memory the adapters take: read in place, which no processor can.

    Between ranks that use no adapter they are staged.
    """
    _devices(rank, size, addresses[0], "rdma", taken=True)
    _devices(rank, size, addresses[1], "tcp", taken=False)


def _devices(rank: int, size: int, address: str, transport: str, *, taken: bool) -> None:
    os.environ["WEFT_CUDA_DRIVER"] = str(library())
    emulated, device, other = Emulated(driver()), rank % 2, (rank + 1) % size
    with driver().on(device):
        stream = driver().new_stream()
    count = 300_007
    array = EmulatedArray(driver(), count, device=device, stream=stream)
    with weft.init(rank, size, address=address, timeout=TIMEOUT_S, transport=transport) as group:
        with group.register(array) as handle:
            expected = {"rdma": "Operation not supported", "tcp": "this process uses no RDMA adapter"}[transport]
            if (handle.transports, handle.refusal is None) != (["rdma"] if taken else [], taken):
                raise RuntimeError(f"{handle}: {handle.refusal}")
            if not taken and expected not in str(handle.refusal):
                raise RuntimeError(f"{handle.refusal!r} does not say {expected!r}")
            buffer, received = group.symmetric(count, np.int32, signals=1), np.empty(count, np.int32)
            for value in range(1, 6):
                with driver().on(device):
                    emulated.delay(stream, 0.05)  # the value is still to come when it is sent
                    emulated.fill(stream, array, 10 * value + rank)
                    if taken and value > 3:
                        driver().synchronize_stream(stream)
                with _out_of_reach(array) if taken and value > 3 else contextlib.nullcontext():
                    sending = group.send_async(array, other, value)
                    group.recv(received, other, value)
                    sending.wait()
                    buffer.put_signal(other, array, value=value, op="set")
                    buffer.wait_signal(value=value)
                if not ((received == 10 * value + other).all() and (buffer == 10 * value + other).all()):
                    raise RuntimeError(f"round {value}: {received} and {buffer} instead of {10 * value + other}")
                group.barrier()
            staged = group.staged_bytes
        sending = group.send_async(array, other, 9)
        group.recv(received, other, 9)
        sending.wait()
        if transport == "rdma" and (group.staged_bytes == staged or (staged == 0) != taken):
            raise RuntimeError(f"{staged} bytes were staged with a handle, {group.staged_bytes} in the end")
        group.barrier()
    array.free()
    print(f"rank {rank}: {transport}, memory of a GPU {'read where it lies' if taken else 'staged'}")


@contextlib.contextmanager
def _out_of_reach(array: EmulatedArray) -> Iterator[None]:
    """Lets every access of this process to an array's memory be a crash, as a GPU's would be."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = -(-array.view.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    if protect(array.address, size, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    try:
        yield
    finally:
        protect(array.address, size, mmap.PROT_READ | mmap.PROT_WRITE)


def torch_run(rank: int, size: int, address: str) -> None:
    """A step of data-parallel training over the backend, against the same in one process."""
    import torch
    import torch.distributed as dist

    import weft.torch  # noqa: F401 (registers the backend)

    os.environ["WEFT_TRANSPORT"] = "rdma"
    dist.init_process_group("weft", init_method=f"tcp://{address}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 8)
    data = torch.randn(4 * size, 64)
    alone = torch.nn.Linear(64, 8)
    alone.load_state_dict(model.state_dict())
    alone(data).square().mean().backward()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(data[4 * rank : 4 * rank + 4]).square().mean().backward()
    for own, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(own.grad, expected.grad)
    dist.destroy_process_group()
    print(f"rank {rank}: gradients as in one process")


def torch_devices(rank: int, size: int, address: str) -> None:
    """torch's messages from a tensor of a GPU that adapters read, in the order of its stream."""
    import torch
    import torch.distributed as dist

    sys.path.insert(0, str(Path(__file__).parents[1] / "torch"))
    from emulated_accelerator import EmulatedTensor, emulated_accelerator

    from weft.torch.lookup import backend_of

    os.environ["WEFT_TRANSPORT"] = "rdma"
    other, staged = (rank + 1) % size, []
    with emulated_accelerator() as accelerator:
        emulated, stream = accelerator.emulated, accelerator.stream
        emulated.configure(0, 0, 1e-6)  # so that engines count copies
        dist.init_process_group("weft", init_method=f"tcp://{address}", rank=rank, world_size=size)
        array = EmulatedArray(driver(), 300_007, np.float32, stream=stream)
        tensor = torch.from_numpy(array.view).as_subclass(EmulatedTensor)
        received = accelerator.put(torch.empty(300_007))
        handle = weft.Group(backend_of(None).weft_group).register(array)
        for value in range(5):
            if value == 4:
                handle.deregister()
            with driver().on(0):
                emulated.delay(stream, 0.02)
                emulated.fill(stream, array, int(np.float32(10 * value + rank).view(np.uint32)))
            before = emulated.engine_seconds(0, TO_HOST)
            sending = dist.isend(tensor, other)
            receiving = dist.irecv(received, other)
            sending.wait()
            with driver().on(0):
                emulated.fill(stream, array, 0)  # comes behind what the adapter reads
            receiving.wait()
            accelerator.synchronize()
            if not (np.asarray(received) == 10 * value + other).all():
                raise RuntimeError(f"message {value}: {received} instead of {10 * value + other}")
            staged.append(emulated.engine_seconds(0, TO_HOST) > before)
        backend_of(None).weft_operations.device_operations.close()
        dist.destroy_process_group()
    if staged[1:] != [False, False, False, True]:
        raise RuntimeError(f"messages that were staged: {staged}")
    print(f"rank {rank}: torch's messages from memory of a GPU, without copies to the host")


TASKS = {
    "sums": sums,
    "registered": registered,
    "lost": lost,
    "devices_refused": devices_refused,
    "devices_taken": devices_taken,
    "torch": torch_run,
    "torch_devices": torch_devices,
}

if __name__ == "__main__":
    task, rank, size, *addresses = sys.argv[1:]
    TASKS[task](int(rank), int(size), *addresses)
