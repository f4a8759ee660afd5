"""The page: its head, its sections, and their HTML."""

from __future__ import annotations

import weft
from weft.drawing.markup import Markup, element, joined
from weft_lab.web_report import bench_section, trace_section, training_section
from weft_lab.web_report.inputs import ReportInputs

__all__ = ["page"]

_STYLE = Markup("""\
:root { color-scheme: light; --ink: #1c2733; --soft: #66727f; --line: #dde3e9; --accent: #0072b2; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); margin: 0 auto; max-width: 1180px;
padding: 0 24px 48px; }
h1 { font-size: 26px; margin: 28px 0 4px; } h2 { font-size: 20px; margin: 36px 0 8px; border-top: 1px solid var(--line);
padding-top: 20px; } h3 { font-size: 16px; margin: 20px 0 6px; }
p.about, td.soft, caption { color: var(--soft); }
nav a { margin-right: 16px; color: var(--accent); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 3px 12px 3px 0; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { font-weight: 600; position: sticky; top: 0; background: #fff; } td.left, th.left { text-align: left; }
tr.wrong td { color: #b00020; font-weight: 600; } tr.floor td { color: var(--soft); }
img { max-width: 100%; height: auto; } summary { cursor: pointer; color: var(--accent); margin: 8px 0; }
li { margin: 3px 0; } .bar { display: inline-block; height: 11px; vertical-align: middle; }
.hidden { background: #9ecae1; } .exposed { background: #d55e00; }
""")


def page(title: str, inputs: ReportInputs) -> str:
    """A web page that refers to nothing outside itself."""
    sections = [
        *(bench_section.section(name, rows) for name, rows in inputs.benches),
        *(trace_section.section(job) for job in inputs.jobs),
        *(training_section.section(name, report) for name, report in inputs.trainings),
    ]
    links = (element("a", {"href": f"#part{place}"}, name) for place, (name, _) in enumerate(sections))
    body = (
        element("section", {"id": f"part{place}"}, element("h2", {}, name), *parts)
        for place, (name, parts) in enumerate(sections)
    )
    policy = Markup("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    head = (
        element("meta", {"charset": "utf-8"}, empty=True),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}, empty=True),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}, empty=True),
        element("title", {}, title),
        element("style", {}, _STYLE),
    )
    begin = (
        element("h1", {}, title),
        element("p", {"class": "about"}, f"weft {weft.__version__}"),
        element("nav", {}, *links),
    )
    parts = joined([element("head", {}, *head), Markup("\n"), element("body", {}, *begin, Markup("\n"), *body)])
    return f"<!DOCTYPE html>\n{element('html', {'lang': 'en'}, parts)}\n"
