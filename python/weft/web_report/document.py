"""The page: its head, its sections, and the HTML that they are made of."""

from __future__ import annotations

from html import escape

import weft
from weft.web_report import bench_section, trace_section, training_section
from weft.web_report.inputs import ReportInputs

__all__ = ["page"]

_STYLE = """\
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
"""


def page(title: str, inputs: ReportInputs) -> str:
    """A web page that refers to nothing outside itself."""
    sections = [
        *(bench_section.section(name, rows) for name, rows in inputs.benches),
        *(trace_section.section(job) for job in inputs.jobs),
        *(training_section.section(name, report) for name, report in inputs.trainings),
    ]
    links = "".join(f'<a href="#part{place}">{escape(name)}</a>' for place, (name, _) in enumerate(sections))
    body = "".join(
        f'<section id="part{place}"><h2>{escape(name)}</h2>{"".join(parts)}</section>'
        for place, (name, parts) in enumerate(sections)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>"
        f'<p class="about">weft {escape(weft.__version__)}</p><nav>{links}</nav>\n{body}</body></html>\n'
    )
