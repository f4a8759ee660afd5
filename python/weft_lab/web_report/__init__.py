"""One self-contained web page of your runs: benchmarks, flight records, training reports."""

from weft_lab.web_report.document import page
from weft_lab.web_report.inputs import ReportInputs, gather

__all__ = ["ReportInputs", "gather", "page"]
