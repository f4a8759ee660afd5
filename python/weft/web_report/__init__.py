"""One self-contained web page of your runs: benchmarks, flight records, training reports."""

from weft.web_report.inputs import ReportInputs, gather
from weft.web_report.page import page

__all__ = ["ReportInputs", "gather", "page"]
