"""Flight records of all ranks: reading, alignment of clocks, matching, findings and pictures."""

from weft.tracing.clocks import Alignment, align
from weft.tracing.findings import TraceFinding, findings
from weft.tracing.job import Job, jobs
from weft.tracing.record import Operation, RankRecord, read

__all__ = ["Alignment", "TraceFinding", "Job", "Operation", "RankRecord", "align", "findings", "jobs", "read"]
