"""The terminal report: what pytest prints at the end of a run and `rlserve` prints on its own."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pytest_rlserve.reports import breakdown, remarks, tables, wording
from pytest_rlserve.reports import report as report_format
from pytest_rlserve.reports.escape import clamp, terminal_safe
from pytest_rlserve.reports.left_out import left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

FEW_METRICS = 30  # fewer than these are listed without being asked for
FEW_FINDINGS = 5
_LONGEST_NAME, _LONGEST_PROSE = 80, 400
_LONGEST_CELLS = (64, 48, 40, 32, 24, 16, 12, 8)
_COMFORTABLE_LAST_COLUMN, _NARROWEST_LAST_COLUMN = 32, 16
_INDENTED = {name: f"    {name}" for name in ("accepted", "rejected", "pending")} | {
    name: f"  {name}" for name in ("completed", "canceled", "failed", "open", "joined")
}  # the parts of a count stand below it


@report_format("terminal")
def terminal(report: Row, *, verbose: bool = False, columns: int = 100) -> str:
    """Return the report for a terminal of so many columns: the verdict first, then what led to it.

    Passed checks, sources and full messages appear where `verbose`; so do metrics when there are many, and tables by
    worker and step that no verdict asks for.
    """
    sections = [
        _verdict(report, columns),
        _counts(report, columns),
        _lines((remarks.residuals if verbose else remarks.leftovers)(report), columns),
        _lines(remarks.evidence(report), columns) if verbose else "",
        _checks(report, columns, verbose),
        _lines(remarks.reasons(report), columns),
        _comparisons(report, columns),
        _lines(remarks.notes(report), columns),
        *(_message(message) for message in remarks.messages(report) if verbose),
        _grid(_both(tables.limits(report, quiet=False), tables.limits(report, quiet=True)), columns),
        _lines(left_out(report, judged=not verbose), columns),
        *_breakdowns(report, columns, verbose),
        _metrics(report, columns, verbose),
        _not_run(report, columns, verbose),
        _grid(tables.baseline_changes(report), columns, (1,)),
        _grid(tables.why(report), columns) if verbose or _moved(report) else "",
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _moved(report: Row) -> bool:
    """Tell whether any metric is worth explaining."""
    return any(row["verdict"] not in ("unchanged", "no_baseline") for row in report.get("comparisons", ()))


def _text(cell: tables.Cell) -> str:
    if isinstance(cell, tuple):
        return terminal_safe("".join(map(_text, cell)))  # a part may begin where another ends with ":"
    return clamp(terminal_safe(cell), _LONGEST_NAME if isinstance(cell, tables.Name) else _LONGEST_PROSE)


def _wrap(text: str, width: int) -> str:
    folded = textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False)
    return folded.replace("\n  ::", "\n \\::")  # no command to a CI runner, and no wider for it


def _lines(cells: Iterable[tables.Cell], columns: int) -> str:
    return "\n".join(_wrap(_text(cell), columns) for cell in cells)


def _both(first: tables.Table, second: tables.Table) -> tables.Table:
    return tables.Table(first.title, first.headers, first.align, first.rows + second.rows)


def _grid(table: tables.Table, columns: int, *stacks: Sequence[int]) -> str:
    """Lay out a table under its title, on a narrow terminal with some columns below their left neighbours.

    Each of `stacks` names left columns, from right to left; they are stacked only as far as it takes to fit.
    """
    if not table.rows:
        return ""
    lines, align = _cells(table.dense()), table.dense().align
    if _needed(lines, _COMFORTABLE_LAST_COLUMN) > columns and stacks:
        lines, align = _cells(table), table.align
    for pairs in stacks:
        if _needed(lines, _COMFORTABLE_LAST_COLUMN) > columns:
            for at in pairs:
                lines = [[*row[:at], f"{row[at]}\n{row[at + 1]}", *row[at + 2 :]] for row in lines]
                align = align[: at + 1] + align[at + 2 :]
    return _fit(lines, align, columns)


def _cells(table: tables.Table) -> list[list[str]]:
    return [[table.title, *table.headers[1:]], *([_text(cell) for cell in row] for row in table.rows)]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(_width, column)) for column in zip(*lines, strict=True)]


def _needed(lines: Sequence[Sequence[str]], last_column: int) -> int:
    """Return the columns that a table takes when its last one is folded to at most so many."""
    *fixed, last = _widths(lines)
    return sum(fixed) + len("  ") * len(fixed) + min(last, last_column)


def _fit(lines: Sequence[Sequence[str]], align: str, columns: int) -> str:
    """Cut cells until the table fits, and fold its last column into the room that the others leave."""
    for longest in _LONGEST_CELLS:
        cut = partial(_per_line, partial(clamp, limit=longest))
        shown = [lines[0], *([*map(cut, row[:-1]), row[-1]] for row in lines[1:])]
        if _needed(shown, _NARROWEST_LAST_COLUMN) <= columns:
            break
    room = max(columns - _needed(shown, 0), _NARROWEST_LAST_COLUMN)
    fold = partial(_per_line, partial(_wrap, width=room))
    return _tabulate(shown[0], [[*row[:-1], fold(row[-1])] for row in shown[1:]], align)


def _per_line(change: Callable[[str], str], text: str) -> str:
    return "\n".join(map(change, text.split("\n")))


def _tabulate(headers: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    """Lay out columns. Headers go in as rows: tabulate would make each column two wider for them."""
    deepest = max(header.count("\n") for header in headers)
    above = [("\n" * (deepest - header.count("\n")) + header).split("\n") for header in headers]
    rules = ["-" * width for width in _widths([headers, *rows])]
    sides = ["right" if side == "r" else "left" for side in align]
    lines = [*zip(*above, strict=True), rules, *rows]
    text = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=sides)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _verdict(report: Row, columns: int) -> str:
    policy = report.get("policy") or {}
    facts = {"series": report.get("series"), "policy": policy.get("path") or policy.get("origin")}
    known = [clamp(f"{label}  {terminal_safe(value)}", columns) for label, value in facts.items() if value]
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
    table = _tabulate(headers, list(zip(*columns, strict=True)), "r" * len(headers)).split("\n")
    labels = [_INDENTED.get(name, name) for name in wording.REQUEST_COUNTS]  # tabulate would strip the indent
    labels = ["counts", "", "-" * 12, *labels]
    return "\n".join(f"{label:<12}  {line}".rstrip() for label, line in zip(labels, table, strict=True))


def _checks(report: Row, columns: int, verbose: bool) -> str:
    """Print a line for each check to look at, and below it what it found; a warning is looked at if it passed, too."""
    most = None if verbose else FEW_FINDINGS
    rows = tables.checks(report, quiet=False, most=most).rows
    rows = [*rows, *(tables.checks(report, quiet=True) if verbose else tables.warned(report, most=most)).rows]
    lines: list[str] = []
    above: tuple[tables.Cell, ...] = ()
    for *start, found in rows:
        if tuple(start) != above:
            lines.append(clamp("  ".join(map(_text, start)), columns))
            above = tuple(start)
        if found:
            lines.append(textwrap.indent(_wrap(_text(found), columns - 4), "    "))
    return "\n".join(lines)


def _comparisons(report: Row, columns: int) -> str:
    table = _both(tables.comparisons(report, quiet=False), tables.comparisons(report, quiet=True))
    return _grid(table, columns, (6, 4, 2), (0,))


def _message(message: str) -> str:
    return "\n".join(terminal_safe(line) for line in message.split("\n"))


def _metrics(report: Row, columns: int, verbose: bool) -> str:
    table, absent = tables.metrics(report), list(remarks.not_observable(report))
    if verbose or len(table.rows) + len(absent) < FEW_METRICS:
        return "\n\n".join(filter(None, [_grid(table, columns), _lines(absent, columns)]))
    return f"measured: {len(table.rows):,} values, {len(absent):,} not observable (-v lists them)"


def _breakdowns(report: Row, columns: int, verbose: bool) -> list[str]:
    """Print KV reuse and load by worker and step where a verdict on them has to be looked into."""
    found = breakdown.breakdowns(report) if verbose else breakdown.breakdowns(report, breakdown.asked(report), most=8)
    return [_grid(breakdown.narrow(table), columns) for table in found]


def _not_run(report: Row, columns: int, verbose: bool) -> str:
    missing = report.get("not_run", ())
    if not missing:
        return ""
    shown, more = (missing, "") if verbose else wording.few(missing, None)
    listed = [clamp(terminal_safe(name), columns - 2) for name in shown]
    return "\n  ".join([f"not run: {len(missing):,}", *listed, *filter(None, [more])])
