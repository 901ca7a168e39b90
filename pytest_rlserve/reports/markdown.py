"""The Markdown report: a pull-request comment or job summary whose first line decides.

GitHub refuses a comment above 65,536 characters and drops a whole job summary above 1 MiB, so the report
counts its own bytes and gives up rows, the least telling first, saying how many; never half a row or a fence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_rlserve.reports import breakdown, remarks, tables, wording
from pytest_rlserve.reports import report as report_format
from pytest_rlserve.reports.escape import block, cell, code, marker
from pytest_rlserve.reports.left_out import left_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COMMENT_BYTES = 60_000
SUMMARY_BYTES = 1_000_000
_LONGEST_PROSE = 300
_LONGEST_NOTE = 60  # bytes of "… N more rows in the full report" and the lines around it
# What is given up first when the report is too long.
_UNCHANGED, _DETAILS, _EVIDENCE, _PROBLEMS, _VERDICTS = range(5)


@dataclass
class Section:
    """Rows between a title and a tail; `kept` of them fit. A row is whole lines and is never cut."""

    rank: int
    title: str
    rows: Sequence[str]
    head: str = ""
    tail: str = ""
    kept: int = field(init=False)

    def __post_init__(self) -> None:
        """Keep all rows at first."""
        self.kept = len(self.rows)

    def text(self) -> str:
        """Return the section with what was given up named in its place."""
        rows = "\n".join(filter(None, [self.head, *self.rows[: self.kept]])).rstrip() if self.kept else ""
        left_out = len(self.rows) - self.kept
        note = f"… {left_out:,} more rows in the full report" if left_out else ""
        return "\n\n".join(filter(None, [self.title, rows, note, self.tail]))


@report_format("markdown")
def markdown(report: Mapping[str, Any], *, limit: int = COMMENT_BYTES) -> str:
    """Return the report as GitHub's Markdown in at most `limit` bytes of UTF-8.

    The frame of headings alone takes about 2,000 bytes; a lower limit gets just that frame.
    """
    messages = [f"{block(text)}\n" for text in remarks.messages(report)]
    facts = " · ".join(map(_inline, remarks.provenance(report)))
    sections = [
        _table(_VERDICTS, "#### This changes the baseline", tables.baseline_changes(report)),
        _table(_VERDICTS, "#### Compared with the baseline", tables.comparisons(report, quiet=False)),
        _list(_VERDICTS, "", remarks.notes(report)),
        _table(_PROBLEMS, "#### Limits", tables.limits(report, quiet=False)),
        _table(_PROBLEMS, "#### Checks", tables.checks(report, quiet=False)),
        _list(_PROBLEMS, "", remarks.reasons(report)),
        _list(_PROBLEMS, "#### Tests", remarks.failed_tests(report)),
        _list(_PROBLEMS, "#### Not run", [(tables.Name(name),) for name in report.get("not_run", ())]),
        _table(_PROBLEMS, "#### Why", tables.why(report)),
        _folded(_DETAILS, "In full, with what to type", messages),
        _table(_EVIDENCE, "#### Attempts and requests", tables.counts(report)),
        _list(_EVIDENCE, "", remarks.residuals(report)),
        _table(_UNCHANGED, "Unchanged", tables.comparisons(report, quiet=True), fold=True),
        _table(_UNCHANGED, "Limits kept", tables.limits(report, quiet=True), fold=True),
        _table(_UNCHANGED, "Checks passed", tables.checks(report, quiet=True), fold=True),
        *(_table(_DETAILS, table.title, table, fold=True) for table in breakdown.breakdowns(report)),
        _table(_DETAILS, "Measured", tables.metrics(report), fold=True),
        _list(_DETAILS, "Left out", left_out(report), fold=True),
        _list(_DETAILS, "Not observable", remarks.not_observable(report), fold=True),
        _list(_DETAILS, "Evidence", remarks.evidence(report), fold=True),
        Section(_EVIDENCE, "", list(filter(None, [facts]))),
    ]
    return _fit(_top(report), [section for section in sections if section.rows], limit)


@report_format("summary")
def summary(report: Mapping[str, Any]) -> str:
    """Return the Markdown report at the length that a GitHub job summary allows."""
    return markdown(report, limit=SUMMARY_BYTES)


def _top(report: Mapping[str, Any]) -> str:
    """Return the hidden line by which the comment is found again, and the line that decides."""
    series = report.get("series") or ""
    heading = f"### {cell(wording.headline(report), 400)}" + (f" — {code(series)}" if series else "")
    return f"<!-- pytest-rlserve:sticky v1 series={marker(series)} -->\n{heading}"


def _inline(content: tables.Cell) -> str:
    if isinstance(content, tuple):
        return "".join(map(_inline, content)).strip()
    return code(content) if isinstance(content, tables.Name) else cell(content, _LONGEST_PROSE)


def _table(rank: int, title: str, table: tables.Table, *, fold: bool = False) -> Section:
    table = table.dense()
    marks = ("--:" if side == "r" else "---" for side in table.align)
    head = f"| {' | '.join(table.headers)} |\n|{'|'.join(marks)}|"
    rows = [f"| {' | '.join(map(_inline, row))} |" for row in table.rows]
    return _folded(rank, title, rows, head) if fold else Section(rank, title, rows, head)


def _list(rank: int, title: str, content: Iterable[tables.Cell], *, fold: bool = False) -> Section:
    rows = [f"- {_inline(item)}" for item in content]
    return _folded(rank, title, rows) if fold else Section(rank, title, rows)


def _folded(rank: int, title: str, rows: Sequence[str], head: str = "") -> Section:
    opening = f"<details><summary>{title} ({len(rows):,})</summary>"
    return Section(rank, opening, rows, head, tail="</details>")


def _fit(top: str, sections: Sequence[Section], limit: int) -> str:
    """Give up rows from the end of the least telling sections until the text fits."""

    def text() -> str:
        return "\n\n".join([top, *(section.text() for section in sections)]) + "\n"

    excess = _bytes(text()) - limit
    for section in sorted(sections, key=lambda section: section.rank):
        if excess > 0:
            excess += _LONGEST_NOTE
        while excess > 0 and section.kept:
            section.kept -= 1
            excess -= _bytes(section.rows[section.kept]) + 1
    return text()


def _bytes(text: str) -> int:
    return len(text.encode("utf-8"))
