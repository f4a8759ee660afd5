"""The section of the page for the flight records of a job: findings and a timeline."""

from __future__ import annotations

from weft.drawing.markup import Markup, element, joined
from weft.drawing.svg import Canvas
from weft.tracing import Job, findings
from weft.tracing.findings import show_ns, show_ranks

__all__ = ["OPERATIONS_MAX", "section"]

OPERATIONS_MAX = 4000
"""The number of operations in the timeline, the last ones. With more, browsers become slow."""
_WIDTH, _LEFT, _RIGHT = 1120.0, 130.0, 12.0
_LANE, _ROW, _TOP = 14.0, 10.0, 24.0
_COLOURS = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31")
_FINDINGS = 12


def section(job: Job) -> tuple[str, list[Markup]]:
    """A title, and the content below it."""
    found = findings(job, _FINDINGS)
    texts = [one.text for one in found] or ["No rank has waited for another one."]
    hosts = ", ".join(dict.fromkeys(record.host for record in job.records.values()))
    errors = {failure.error for record in job.records.values() for failure in record.failures}
    failed = (element("p", {}, element("b", {}, "Failed:"), f" {error}") for error in sorted(errors))
    about = f"{len(job.records)} ranks on {hosts}, {show_ns(job.end - job.begin)} on record."
    items = element("ul", {}, *(element("li", {}, text) for text in texts))
    return "Trace: which ranks waited for which", [element("p", {}, about), *failed, items, _timeline(job)]


def _timeline(job: Job) -> Markup:
    """A lane for every rank, a box for every operation, red until all ranks had called it."""
    shown = [(rank, operation) for rank, record in job.records.items() for operation in record.operations]
    shown = sorted(shown, key=lambda pair: pair[1].issued)
    left_out, shown = max(0, len(shown) - OPERATIONS_MAX), shown[-OPERATIONS_MAX:]
    if not shown:
        return element("p", {}, "No operation is on record.")
    begin = shown[0][1].issued
    scale = (_WIDTH - _LEFT - _RIGHT) / max(1, job.end - begin)
    names = list(dict.fromkeys(operation.name for _, operation in shown))
    style = {f"o{place}": f"fill:{_COLOURS[place % len(_COLOURS)]}" for place in range(len(names))}
    style |= {"wait": "fill:#d62728", "label": "font:11px system-ui,sans-serif;fill:#1c2733", "grid": "stroke:#dde3e9"}
    ranks = list(job.records)
    canvas = Canvas(_WIDTH, _TOP + _LANE * len(ranks) + 22, style)
    last_call = {
        (rank, part.group, part.sequence): max(other.issued for other in collective.parts.values())
        for collective in job.collectives
        for rank, part in collective.parts.items()
    }
    for place, rank in enumerate(ranks):
        y = _TOP + _LANE * place
        canvas.text("label", 4, y + 9, f"rank {rank} {job.records[rank].host}"[:22])
        canvas.line("grid", _LEFT, y + _LANE - 2, _WIDTH - _RIGHT, y + _LANE - 2)
    for rank, operation in shown:
        y = _TOP + _LANE * ranks.index(rank)
        end = operation.ended if operation.ended is not None else job.records[rank].written
        x, width = _LEFT + (operation.issued - begin) * scale, max(0.7, (end - operation.issued) * scale)
        tip = f"{show_ranks([rank])}: {operation.text}, {show_ns(end - operation.issued)}"
        canvas.rect(f"o{names.index(operation.name)}", x, y, width, _ROW, tip)
        until = min(end, last_call.get((rank, operation.group, operation.sequence), operation.issued))
        if (until - operation.issued) * scale >= 1:
            waited = f"{tip}; of that {show_ns(until - operation.issued)} for the last rank to call it"
            canvas.rect("wait", x, y, (until - operation.issued) * scale, _ROW, waited)
    canvas.text("label", _LEFT, 12, f"0, at the first operation shown; {show_ns(job.end - begin)} to the right end")
    x = _LEFT
    for place, name in enumerate(names):
        canvas.rect(f"o{place}", x, _TOP + _LANE * len(ranks) + 6, 9, 9)
        canvas.text("label", x + 13, _TOP + _LANE * len(ranks) + 14, name)
        x += 34 + 6.4 * len(name)
    canvas.rect("wait", x, _TOP + _LANE * len(ranks) + 6, 9, 9)
    canvas.text("label", x + 13, _TOP + _LANE * len(ranks) + 14, "until all ranks had called it")
    rest = [element("p", {"class": "about"}, f"{left_out} earlier operations are left out.")] if left_out else []
    return joined([element("div", {"class": "scroll"}, canvas.finish()), *rest])
