"""One HTML file that opens without a network: `write_report(scores_directory, "report.html")`."""

from ustad.report.page import write_report
from ustad.report.source import ReportInput

__all__ = ["ReportInput", "write_report"]
