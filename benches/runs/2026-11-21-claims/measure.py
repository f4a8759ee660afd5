"""Slice-reduce as it is built in, and with steps that others may take over, in turns, on symmetric memory.

python measure.py OUT RANKS MIB,... WAY,... SECONDS [pinned] [busy]

A way is `built-in`, `claimed-K` or `plain-K`: each rank's slice in K chunks, which others may take over or not. `pinned` ties rank r
to core r, `busy` runs a process on core 1 that computes all the time. Rows go to OUT, one per size and way.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import weft
from weft.bench.launch import free_ports
from weft.schedule import Builder, Schedule

ROUNDS = 7


def slices(ranks: int, chunks: int, claimed: bool) -> Schedule:
    """Every rank adds its slice, chunk by chunk, then helps with the others' while it would wait."""
    builder = Builder("all-reduce", ranks, chunks=ranks * chunks)
    for me in builder.programs:
        circle = [me.after(distance) for distance in range(ranks)]
        for other in circle[1:]:
            me.signal(other)
        for other in circle[1:]:
            me.wait(other)
        for owner in circle if claimed else [me]:
            by = [owner.after(distance) for distance in range(ranks)] if claimed else ()
            for chunk in range(owner.rank * chunks, (owner.rank + 1) * chunks):
                everybody = [program.output[chunk] for program in builder.programs]
                me.reduce(everybody, everybody, last=True, claim=by)
            if owner is me:
                for other in circle[1:]:
                    me.signal(other)
        for other in circle[1:]:
            me.wait(other)
    return builder.build()


def rank(ranks: int, sizes: list[float], ways: list[str], seconds: float) -> list[dict]:
    """One rank's part; the rows."""
    group = weft.init()
    names = {way: "slice-reduce" if way == "built-in" else way for way in ways}
    for way in ways:
        if way != "built-in":
            kind, chunks = way.split("-")
            group.use_schedule(way, slices(ranks, int(chunks), kind == "claimed"))
    rows = []
    for mib in sizes:
        array = group.symmetric(int(mib * 2**20 / 4), np.float32)
        array[:] = 0
        begin = time.perf_counter()
        for _ in range(4):
            group.all_reduce(array)
        one = np.array([(time.perf_counter() - begin) / 4])
        group.all_reduce(one, op="max")
        calls = max(4, int(seconds / len(ways) / ROUNDS / one[0]))
        of_way = {way: {"ranks": ranks, "mib": mib, "way": way, "calls": calls, "rounds_us": []} for way in ways}
        helped = dict.fromkeys(ways, 0)
        for _ in range(ROUNDS):
            for way, name in names.items():
                before, times = group.native.steps_helped, np.empty(calls)
                for call in range(calls):
                    group.barrier()
                    begin = time.perf_counter()
                    group.all_reduce(array, algorithm=name)
                    times[call] = time.perf_counter() - begin
                helped[way] += group.native.steps_helped - before
                group.all_reduce(times, op="max")
                of_way[way]["rounds_us"].append(round(float(times.mean()) * 1e6, 1))
        rows += [row | {"rank_0_helped": helped[way]} for way, row in of_way.items()]
        del array
    group.close()
    return rows


def main() -> None:
    out, ranks, sizes, ways, seconds = sys.argv[1:6]
    if "RANK" in os.environ:
        own = int(os.environ["RANK"])
        if "pinned" in sys.argv:
            os.sched_setaffinity(0, {own % (os.cpu_count() or 1)})
        rows = rank(int(ranks), [float(size) for size in sizes.split(",")], ways.split(","), float(seconds))
        if own == 0:
            report(Path(out), rows)
        return
    meeting = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1"}
    meeting["MASTER_PORT"] = str(free_ports(1)[0])
    competitor = ["taskset", "-c", "1", "timeout", "60", sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(competitor)] if "busy" in sys.argv else []
    of_rank = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(int(ranks))]
    command = [sys.executable, *sys.argv]
    processes = [subprocess.Popen(command, env=os.environ | meeting | own) for own in of_rank]
    for process in processes:
        process.wait()
    for process in busy:
        process.terminate()


def report(out: Path, rows: list[dict]) -> None:
    """Adds the rows to the file, and shows them."""
    conditions = [word for word in sys.argv[6:]]
    known = json.loads(out.read_text()) if out.exists() else []
    out.write_text(json.dumps(known + [row | {"conditions": conditions} for row in rows], indent=1) + "\n")
    for row in rows:
        base = next(r for r in rows if r["way"] == "built-in" and r["mib"] == row["mib"])
        times = row["rounds_us"]
        gain = statistics.median(b / t for b, t in zip(base["rounds_us"], times, strict=True))
        spread = f"{min(times):9.0f} - {max(times):.0f}"
        print(f"{row['ranks']} {row['mib']:6} MiB {row['way']:10} {statistics.median(times):9.0f} us {spread:20} "
              f"{gain:.2f}x helped {row['rank_0_helped'] / row['calls'] / ROUNDS:.2f} per call", conditions, flush=True)


if __name__ == "__main__":
    main()
