"""The terminal report: what pytest prints at the end of a run and `rlserve` prints on its own."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pytest_rlserve.reports import report as report_format
from pytest_rlserve.reports import tables, wording
from pytest_rlserve.reports.escape import clamp, terminal_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

FEW_METRICS = 30  # fewer than these are listed without being asked for
FEW_FINDINGS = 5
_LONGEST_CELLS = (64, 48, 40, 32, 24, 16, 12)
_NARROWEST_LAST_COLUMN = 24
_INDENTED = {name: f"    {name}" for name in ("accepted", "rejected", "pending")} | {
    name: f"  {name}" for name in ("completed", "canceled", "failed", "open", "joined")
}  # the parts of a count stand below it


@report_format("terminal")
def terminal(report: Row, *, verbose: bool = False, columns: int = 100) -> str:
    """Return the report for a terminal of so many columns: the verdict first, then what led to it.

    Passed checks, sources and full messages appear where `verbose`; so do metrics when there are many.
    """
    sections = [
        _verdict(report, columns),
        _counts(report, columns),
        _lines(tables.residuals(report), columns),
        _lines(tables.evidence(report), columns) if verbose else "",
        _checks(report, columns, verbose),
        _comparisons(report, columns),
        _lines(tables.notes(report), columns),
        *(_message(message) for message in tables.messages(report) if verbose),
        _grid(_both(tables.limits(report, quiet=False), tables.limits(report, quiet=True)), columns),
        _metrics(report, columns, verbose),
        _not_run(report, columns, verbose),
        _grid(tables.baseline_changes(report), columns),
        _grid(tables.why(report), columns),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _text(cell: tables.Cell) -> str:
    return "".join(map(_text, cell)) if isinstance(cell, tuple) else terminal_safe(cell)


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _lines(cells: Iterable[tables.Cell], columns: int) -> str:
    return "\n".join(_wrap(_text(cell), columns) for cell in cells)


def _both(first: tables.Table, second: tables.Table) -> tables.Table:
    return tables.Table(first.title, first.headers, first.align, first.rows + second.rows)


def _grid(table: tables.Table, columns: int) -> str:
    """Lay out a table under its title."""
    headers = [table.title, *table.headers[1:]]
    return _fit(headers, [[_text(cell) for cell in row] for row in table.rows], table.align, columns)


def _fit(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str, columns: int) -> str:
    """Cut cells until the table fits, and fold its last column into the room that the others leave.

    No rows give an empty text, and a last column without any text is left out.
    """
    if not rows:
        return ""
    last = max(_width(row[-1]) for row in rows)
    for longest in _LONGEST_CELLS:
        fixed = [[_per_line(cell, lambda line: clamp(line, longest)) for cell in row[:-1]] for row in rows]  # noqa: B023
        text = _tabulate(headers[:-1], fixed, align[:-1])
        room = columns - _width(text) - 2
        if room >= min(last, _NARROWEST_LAST_COLUMN):
            break
    if not last:
        return text
    folded = [_per_line(row[-1], lambda line: _wrap(line, max(room, _NARROWEST_LAST_COLUMN))) for row in rows]
    return _tabulate(headers, [[*cells, end] for cells, end in zip(fixed, folded, strict=True)], align)


def _per_line(text: str, change: Callable[[str], str]) -> str:
    return "\n".join(map(change, text.split("\n")))


def _tabulate(headers: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """Lay out columns. Headers go in as rows: tabulate would make each column two wider for them."""
    rows = list(rows)
    deepest = max(header.count("\n") for header in headers)
    above = [("\n" * (deepest - header.count("\n")) + header).split("\n") for header in headers]
    rules = ["-" * max(map(_width, column)) for column in zip(headers, *rows, strict=True)]
    sides = ["right" if side == "r" else "left" for side in align]
    lines = [*zip(*above, strict=True), rules, *rows]
    text = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=sides)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _verdict(report: Row, columns: int) -> str:
    policy = report.get("policy") or {}
    facts = {"series": report.get("series"), "policy": policy.get("path") or policy.get("origin")}
    known = [f"{label}  {clamp(terminal_safe(value), 80)}" for label, value in facts.items() if value]
    return "\n".join([_wrap(terminal_safe(wording.headline(report)), columns), *known])


def _counts(report: Row, columns: int) -> str:
    """Print attempt and request counts side by side, as many captures in a row as fit."""
    captures = report.get("captures", ())
    longest = max((len(clamp(terminal_safe(capture["name"]), 24)) for capture in captures), default=0)
    at_once = max(1, (columns - 13) // (max(longest, len("attempts")) + len("  requests  ")))
    return "\n\n".join(_count_table(captures[i : i + at_once]) for i in range(0, len(captures), at_once))


def _count_table(captures: Sequence[Row]) -> str:
    columns = [row[2:] for row in tables.counts({"captures": captures}).rows]
    names = [clamp(terminal_safe(capture["name"]), 24) for capture in captures]
    headers = [part for name in names for part in (f"{name}\nattempts", "requests")]
    table = _tabulate(headers, zip(*columns, strict=True), "r" * len(headers)).split("\n")
    labels = [_INDENTED.get(name, name) for name in wording.REQUEST_COUNTS]  # tabulate would strip the indent
    labels = ["counts", "", "-" * 12, *labels]
    return "\n".join(f"{label:<12}  {line}".rstrip() for label, line in zip(labels, table, strict=True))


def _checks(report: Row, columns: int, verbose: bool) -> str:
    most = None if verbose else FEW_FINDINGS
    table = tables.checks(report, quiet=False, most=most)
    if verbose:
        table = _both(table, tables.checks(report, quiet=True))
    above: tuple[tables.Cell, ...] = ()
    rows = []
    for row in table.rows:
        same = row[:-1] == above[:-1]
        rows.append((*("" for _ in row[:-1]), row[-1]) if same else row)
        above = row
    return _grid(tables.Table(table.title, table.headers, table.align, rows), columns)


def _comparisons(report: Row, columns: int) -> str:
    """Lay out comparisons in a line each, or in two each where the terminal is too narrow for one."""
    table = _both(tables.comparisons(report, quiet=False), tables.comparisons(report, quiet=True))
    wide = _grid(table, sys.maxsize)
    if not wide or _width(wide) <= columns:
        return wide
    (_, *headers), *rows = [
        [verdict, metric, f"{baseline}\n{current}", f"{change}\n{direction}", f"{allowed}\n{detectable}"]
        for verdict, metric, baseline, current, change, direction, allowed, detectable in (
            map(_text, row) for row in [table.headers, *table.rows]
        )
    ]
    return _fit([table.title, *headers], rows, "llrrr", columns)


def _message(message: str) -> str:
    return "\n".join(terminal_safe(line) for line in message.split("\n"))


def _metrics(report: Row, columns: int, verbose: bool) -> str:
    table = tables.metrics(report)
    if verbose or len(table.rows) < FEW_METRICS:
        return _grid(table, columns)
    absent = sum(tables.NOT_OBSERVABLE in row for row in table.rows)
    present = len(table.rows) - absent
    return f"measured: {present:,} values, {absent:,} {tables.NOT_OBSERVABLE} (verbose lists them)"


def _not_run(report: Row, columns: int, verbose: bool) -> str:
    missing = report.get("not_run", ())
    if not missing:
        return ""
    shown, more = (missing, "") if verbose else wording.few(missing, None)
    listed = [clamp(terminal_safe(name), columns - 2) for name in shown]
    return "\n  ".join([f"not run: {len(missing):,}", *listed, *filter(None, [more])])
