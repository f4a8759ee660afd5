"""Schedules of one's own: written in Python or in text form, verified, then run, simulated and drawn as built-in ones.

    from weft.schedule import Builder

    builder = Builder("all-reduce", ranks=2, chunks=1)
    inbox = builder.add_landing(width=1)
    for me in builder.programs:
        peer = me.after(1)
        me.copy(peer.landing(inbox, me)[0], me.output[0])
        me.signal(peer)
        me.wait(peer)
        both = [program.output[0] if program is me else me.landing(inbox, program)[0] for program in builder.programs]
        me.reduce(me.output[0], both, last=True)
    schedule = builder.build()
    print(schedule.verify())

There is one verifier and one simulator, those of the core: what is here only writes the text form.
"""

from weft.schedule.builder import Area, Buffer, Builder, Program, Slice
from weft.schedule.family import About, Algorithm, Call, Formula, Planned, algorithms, plan
from weft.schedule.schedule import Report, Schedule

__all__ = [
    "About",
    "Algorithm",
    "Area",
    "Buffer",
    "Builder",
    "Call",
    "Formula",
    "Planned",
    "Program",
    "Report",
    "Schedule",
    "Slice",
    "algorithms",
    "plan",
]
