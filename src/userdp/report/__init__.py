"""One self-contained HTML page per release, for the people who have to answer for it."""

from userdp.report.content import CurvePoint, ErrorCurve, Released, ReportContent
from userdp.report.page import render, write_report

__all__ = ["CurvePoint", "ErrorCurve", "Released", "ReportContent", "render", "write_report"]
