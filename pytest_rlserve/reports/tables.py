"""The tables and lines that reports for people are made of, before any format's own spelling.

A cell is prose, a `Name`, or several of these in a row. Formats decide how each is printed: Markdown puts
names into code spans, a terminal cuts them to a width. Nothing here is escaped yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

from pytest_rlserve import units
from pytest_rlserve.reports import wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Row = Mapping[str, Any]


class Name(str):
    """An identifier that must be shown as it is spelt: a metric, a path, an id."""

    __slots__ = ()


Cell = str | tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells; `align` has one letter a column: l or r."""

    title: str
    headers: tuple[str, ...]
    align: str
    rows: list[tuple[Cell, ...]] = field(default_factory=list)

    def dense(self) -> Table:
        """Return the table without the columns in which no row says anything."""
        told = [any(column) for column in zip(*self.rows, strict=True)]
        rows = [tuple(compress(row, told)) for row in self.rows]
        return Table(self.title, tuple(compress(self.headers, told)), "".join(compress(self.align, told)), rows)


def ids(values: Sequence[object], count: int | None) -> tuple[str, ...]:
    """Return a cell of at most five ids and "+N more"."""
    shown, more = wording.few(values, count)
    parts = [part for value in shown for part in (", ", Name(value))][1:]
    return (*parts, f" {more}") if more else tuple(parts)


def in_brackets(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a cell's parts in brackets, or nothing of nothing."""
    return (" (", *parts, ")") if parts else ()


def capture_column(report: Row) -> tuple[str, ...]:
    """Return the header of a capture's name: none where there is only one."""
    return ("capture",) if len(report.get("captures", ())) > 1 else ()


def counts(report: Row) -> Table:
    """Return attempt and request counts, two rows a capture."""
    names = wording.REQUEST_COUNTS
    table = Table("counts", ("capture", "", *names), "ll" + "r" * len(names))
    for capture in report.get("captures", ()):
        for level, meant in (("attempts", wording.ATTEMPT_COUNTS), ("requests", names)):
            found = capture.get("counts", {}).get(level) or {}
            figures = (wording.count(found.get(name)) if name in meant else "" for name in names)
            table.rows.append((Name(capture["name"]), level, *figures))
    return table


def checks(report: Row, *, quiet: bool, most: int | None = None) -> Table:
    """Return the checks with one row a finding: those to look at, or the `quiet` ones."""
    column = capture_column(report)
    table = Table("checks", ("status", "check", *column, "seen", "found"), "ll" + "l" * len(column) + "ll")
    pairs = [{"capture": capture["name"], **check} for capture, check in wording.checks_of(report)]
    for check in wording.select(pairs, "status", quiet=quiet):
        start = (wording.word(check["status"]).upper(), Name(check["name"]))
        where = (Name(check["capture"]),) if column else ()
        for found in list(_findings(check, most)) or [""]:
            table.rows.append((*start, *where, wording.seen(check), found))
    return table


def warned(report: Row, *, most: int | None = None) -> Table:
    """Return the checks that passed with warnings, and nothing else of what they found."""
    captures = []
    for capture in report.get("captures", ()):
        some = [{**check, "findings": _warnings(check)} for check in capture.get("checks", ()) if _warnings(check)]
        captures.append({**capture, "checks": some})
    return checks({**report, "captures": captures}, quiet=True, most=most)


def _warnings(check: Row) -> list[Row]:
    if check["status"] not in wording.QUIET:
        return []
    found = (finding for finding in check.get("findings", ()) if finding.get("severity") == "warning")
    return [{**finding, "message": f"warning: {finding['message']}"} for finding in found]


def _findings(check: Row, most: int | None) -> Iterator[Cell]:
    findings = _telling(check)
    if check.get("why") and not findings:
        yield check["why"]
    for finding in findings[:most]:
        found, place = ids(finding.get("ids") or (), finding.get("count")), wording.place(finding)
        times = f", {finding['count']:,} times" if not found and (finding.get("count") or 0) > 1 else ""
        where = (" in ", Name(place)) if place else ()
        yield (f"{finding['message']}{times}", *in_brackets(found), *where)
    if most is not None and len(findings) > most:
        yield f"+{len(findings) - most:,} more findings"


def _telling(check: Row) -> list[Row]:
    """Return the findings that explain a check's status: where it is bad, the notes beside it explain nothing."""
    findings = list(check.get("findings", ()))
    telling = [finding for finding in findings if finding.get("severity") != "note"]
    return telling if check["status"] not in wording.QUIET and telling else findings


def comparisons(report: Row, *, quiet: bool) -> Table:
    """Return the comparisons to look at, or the `quiet` ones."""
    headers = ("verdict", "metric", "baseline", "current", "change", "", "allowed", "could see")
    table = Table("comparisons", headers, "llrrrlrr")
    for row in wording.select(report.get("comparisons", ()), "verdict", quiet=quiet):
        levels = (units.show(row.get(side), row["unit"]) for side in ("baseline", "current"))
        bounds = (wording.change(row, bound, signed=False) for bound in ("allowed", "detectable"))
        name = (wording.word(row["verdict"]).upper(), Name(row["metric"]))
        direction = "" if quiet else wording.direction(row)
        table.rows.append((*name, *levels, wording.change(row), direction, *bounds))
    return table


def limits(report: Row, *, quiet: bool) -> Table:
    """Return the limits to look at, or the `quiet` ones."""
    column = capture_column(report)
    headers = ("status", "metric", *column, "limit", "value", "why")
    table = Table("limits", headers, "ll" + "l" * len(column) + "rrl")
    for row in wording.select(report.get("limits", ()), "status", quiet=quiet):
        start = (wording.word(row["status"]).upper(), Name(row["metric"]))
        where = (Name(row.get("capture") or "all"),) if column else ()
        figures = (row["limit"], units.show(row.get("value"), row["unit"]))
        table.rows.append((*start, *where, *figures, row.get("why") or ""))
    return table


def measured(report: Row) -> list[tuple[Row, Row]]:
    """Return (capture, metric), all captures of one metric together."""
    captures = report.get("captures", ())
    pairs = [(capture, metric) for capture in captures for metric in capture.get("metrics", ())]
    first = {metric["name"]: place for place, (_, metric) in reversed(list(enumerate(pairs)))}
    return sorted(pairs, key=lambda pair: first[pair[1]["name"]])


def metrics(report: Row) -> Table:
    """Return every value that was measured."""
    column = capture_column(report)
    table = Table("measured", ("metric", *column, "value", "n"), "l" + "l" * len(column) + "rr")
    for capture, metric in measured(report):
        if metric.get("value") is not None:
            where = (Name(capture["name"]),) if column else ()
            value = units.show(metric["value"], metric["unit"])
            table.rows.append((Name(metric["name"]), *where, value, wording.count(metric.get("n"))))
    return table


def baseline_changes(report: Row) -> Table:
    """Return what a new baseline gives up or gains, with the reason that was given for it."""
    headers = ("metric", "baseline", "current", "change", "reason")
    table = Table("baseline changes", headers, "lrrrl")
    known = {row["metric"]: row["unit"] for row in report.get("comparisons", ())}
    known |= {m["name"]: m["unit"] for c in report.get("captures", ()) for m in c.get("metrics", ())}
    for row in report.get("baseline_changes", ()):
        unit = row.get("unit") or known.get(row["metric"], "")
        levels = (units.show(row.get(side), unit).strip() for side in ("baseline", "current"))
        change = wording.change({**row, "unit": unit})
        table.rows.append((Name(row["metric"]), *levels, change, row.get("reason") or ""))
    return table


def why(report: Row) -> Table:
    """Return the factors behind the change of the primary metric."""
    table = Table("why", ("factor", "change", "share of it"), "lrr")
    for row in report.get("why", ()):
        delta, share, unit = row.get("delta"), row.get("share"), row.get("unit", "ratio")
        change = "n/a" if delta is None else units.change(delta, unit)
        unknown = "" if unit == "fraction" else "n/a"
        part = unknown if share is None else units.percent(share, signed=False)
        table.rows.append((row["factor"], change, part))
    return table
