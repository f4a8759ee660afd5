"""User schedules: definition in Python or text form, verification, execution, simulation, drawing.

    from weft.schedule import Builder

    builder = Builder("all-reduce", ranks=2, chunks=1)
    inbox = builder.add_receive_buffer(width=1)
    for me in builder.programs:
        peer = me.after(1)
        me.copy(peer.receive_buffer(inbox, me)[0], me.output[0])
        me.signal(peer)
        me.wait(peer)
        inputs = [
            rank.output[0] if rank is me else me.receive_buffer(inbox, rank)[0]
            for rank in builder.programs
        ]
        me.reduce(me.output[0], inputs, final=True)
    schedule = builder.build()
    print(schedule.verify())

Verifier and simulator are those of the native core: this package only writes the text form.
"""

from weft.call_shape import CallShape
from weft.schedule.builder import Area, Buffer, Builder, RankProgram, Slice
from weft.schedule.family import About, Algorithm, Formula, Planned, algorithms, plan
from weft.schedule.schedule import Report, Schedule

__all__ = [
    "About",
    "Algorithm",
    "Area",
    "Buffer",
    "Builder",
    "CallShape",
    "Formula",
    "Planned",
    "RankProgram",
    "Report",
    "Schedule",
    "Slice",
    "algorithms",
    "plan",
]
