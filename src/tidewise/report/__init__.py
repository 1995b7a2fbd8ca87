"""Turns the folders of finished runs into one self-contained page."""

from tidewise.report.headlines import headlines, warnings
from tidewise.report.page import DEFAULT_TITLE, build_report, write_report
from tidewise.report.table import markdown_table, terminal_table

__all__ = ["DEFAULT_TITLE", "build_report", "headlines", "markdown_table", "terminal_table", "warnings", "write_report"]
