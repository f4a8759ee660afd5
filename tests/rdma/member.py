"""One rank of the groups of `ranks.py`: `member.py TASK RANK SIZE ADDRESS ...`."""

import os
import signal
import sys

import numpy as np

import weft

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
    """The last rank dies in the middle of a run of sums; the others must be told who is lost."""
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


TASKS = {"sums": sums, "registered": registered, "lost": lost, "torch": torch_run}

if __name__ == "__main__":
    task, rank, size, *addresses = sys.argv[1:]
    TASKS[task](int(rank), int(size), *addresses)
