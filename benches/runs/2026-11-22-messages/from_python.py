"""Round trips of messages by blocking calls from Python: medians in microseconds of turns of calls in a row."""

import multiprocessing
import statistics
import sys
import time

import numpy as np

import weft


def play(rank: int, port: int, sizes: list[int], turns: int, calls: int) -> None:
    group = weft.init(rank, 2, address=f"127.0.0.1:{port}")
    for size in sizes:
        x = np.zeros(size, np.uint8)
        times = []
        for _ in range(turns):
            group.barrier()
            began = time.perf_counter()
            for _ in range(calls):
                if rank == 0:
                    group.send(x, 1)
                    group.recv(x, 1)
                else:
                    group.recv(x, 0)
                    group.send(x, 0)
            times.append((time.perf_counter() - began) / calls * 1e6)
        if rank == 0:
            print(f"{size} bytes: {statistics.median(times):.2f} us ({min(times):.2f} to {max(times):.2f})", flush=True)
    group.barrier()
    group.close()


if __name__ == "__main__":
    port = int(sys.argv[1])
    ranks = [multiprocessing.Process(target=play, args=(r, port, [4, 4096, 65536], 10, 2000)) for r in (0, 1)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
