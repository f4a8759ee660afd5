"""User-defined all-reduce algorithm: definition, verification, simulation and execution.

torchrun --nproc-per-node 4 examples/user_algorithm.py
"""

import numpy as np

import weft
from weft.schedule import Builder, Schedule
from weft.simulation import Machine, simulate


def chain(ranks: int) -> Schedule:
    """Partial sums travel up the line of ranks, the result travels down again."""
    builder = Builder("all-reduce", ranks)
    inbox = builder.add_receive_buffer(width=1)
    for me in builder.programs:
        below, above = me.after(-1), me.after(1)
        first, last, mine = me.rank == 0, me.rank == ranks - 1, me.output[0]
        if not first:
            me.wait(below)
            me.reduce(mine, [me.receive_buffer(inbox, below)[0], mine], final=last)
        if not last:
            me.copy(above.receive_buffer(inbox, me)[0], mine)
            me.signal(above)
            me.wait(above)
            me.copy(mine, me.receive_buffer(inbox, above)[0])
        if not first:
            me.copy(below.receive_buffer(inbox, me)[0], mine)
            me.signal(below)
    return builder.build()


def main() -> None:
    group = weft.init()
    schedule = chain(group.size)
    report = schedule.verify()
    group.use_schedule("chain", schedule)
    x = np.full(1000, group.rank + 1, np.float32)
    group.all_reduce(x, algorithm="chain")
    assert (x == sum(range(1, group.size + 1))).all()
    if group.rank == 0:
        print(f"verified: {report.latency_steps} steps, {report.trees[0]}; all ranks have {x[0]:g}")
        machine = Machine(ranks=group.size, hosts=group.size, gbps=10, latency_us=20)
        for row in simulate(machine, [4096, 1 << 20], algorithms=["ring"], schedules={"chain": schedule}):
            print(f"{row.algorithm:>6}:", *(f"{time * 1e6:8.0f} us" for time in row.times_s))
    group.close()


if __name__ == "__main__":
    main()
