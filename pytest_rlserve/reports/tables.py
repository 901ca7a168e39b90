"""The tables and lines that reports for people are made of, before any format's own spelling.

A cell is prose, a `Name`, or several of these in a row. Formats decide how each is printed: Markdown puts
names into code spans, a terminal cuts them to a width. Nothing here is escaped yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

from pytest_rlserve import units
from pytest_rlserve.joins.residuals import OF_ROWS, OUTSIDE
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


def leftovers(report: Row) -> Iterator[Cell]:
    """Sum up in a line each what the counts leave over and which files were not read."""
    for capture in report.get("captures", ()):
        where = (Name(capture["name"]), ": ") if capture_column(report) else ()
        rest = {name: some["count"] for name, some in capture.get("counts", {}).get("residuals", {}).items()}
        rows = {name.removeprefix(OF_ROWS): count for name, count in rest.items() if name.startswith(OF_ROWS)}
        requests = {name: count for name, count in rest.items() if not name.startswith(OF_ROWS) and name not in OUTSIDE}
        for title, some in (("requests without a row: ", requests), ("rows of no request of their own: ", rows)):
            if any(some.values()):
                parts = (part for name, count in some.items() if count for part in (", ", Name(name), f" ({count:,})"))
                yield (*where, title, *tuple(parts)[1:])
        if files := capture.get("not_read", ()):
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            yield (*where, "not read: ", Name(files[0]["path"]), more, f" ({files[0]['why']})")


def residuals(report: Row) -> Iterator[Cell]:
    """Name, with their ids, what the counts leave over, and each file that was not read."""
    for capture in report.get("captures", ()):
        where = (Name(capture["name"]), ": ") if capture_column(report) else ()
        for name, rest in capture.get("counts", {}).get("residuals", {}).items():
            if rest["count"]:
                found = _in_brackets(ids(rest.get("ids") or (), rest["count"]))
                yield (*where, Name(name), f": {wording.count(rest['count'])}", *found)
        for file in capture.get("not_read", ()):
            yield (*where, "not read: ", Name(file["path"]), f": {file['why']}")


def evidence(report: Row) -> Iterator[Cell]:
    """Name every source that was read and which questions it can answer for how much of the capture."""
    for capture in report.get("captures", ()):
        where = (Name(capture["name"]), ": ") if capture_column(report) else ()
        for same in wording.alike(capture.get("sources", ())):
            first, count = same[0], sum(source.get("rows") or 0 for source in same)
            rows = "1 row" if count == 1 else f"{wording.count(count)} rows"
            whole = "" if first.get("whole", True) else ", not whole"
            more = f" and {len(same) - 1:,} more" if len(same) > 1 else ""
            tells = f"; tells {', '.join(first['covers'])}" if first.get("covers") else ""
            yield (*where, "read ", Name(first["path"]), more, f": {rows} of {first['format']}{whole}{tells}")
        for axis in capture.get("coverage", ()):
            share = f"{wording.count(axis.get('observed'))} of {wording.count(axis.get('total'))}"
            yield (*where, f"{axis['question']}: {share} {axis['of']}")
        if capture.get("digest"):
            yield (*where, "digest ", Name(capture["digest"]))


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


def _findings(check: Row, most: int | None) -> Iterator[Cell]:
    findings = _telling(check)
    if check.get("why") and not findings:
        yield check["why"]
    for finding in findings[:most]:
        found, place = ids(finding.get("ids") or (), finding.get("count")), wording.place(finding)
        times = f", {finding['count']:,} times" if not found and (finding.get("count") or 0) > 1 else ""
        where = (" in ", Name(place)) if place else ()
        yield (f"{finding['message']}{times}", *_in_brackets(found), *where)
    if most is not None and len(findings) > most:
        yield f"+{len(findings) - most:,} more findings"


def _telling(check: Row) -> list[Row]:
    """Return the findings that explain a check's status: where it is bad, the notes beside it explain nothing."""
    findings = list(check.get("findings", ()))
    telling = [finding for finding in findings if finding.get("severity") != "note"]
    return telling if check["status"] not in wording.QUIET and telling else findings


def reasons(report: Row) -> Iterator[Cell]:
    """Say of each check to look at, and that has findings besides, how it came to its status."""
    several = capture_column(report)
    for capture, check in wording.checks_of(report):
        if check["status"] not in wording.QUIET and check.get("why") and check.get("findings"):
            where = (" (", Name(capture["name"]), ")") if several else ()
            yield (Name(check["name"]), *where, f": {check['why']}")


def _in_brackets(parts: tuple[str, ...]) -> tuple[str, ...]:
    return (" (", *parts, ")") if parts else ()


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


def _measured(report: Row) -> list[tuple[Row, Row]]:
    """Return (capture, metric), all captures of one metric together."""
    captures = report.get("captures", ())
    pairs = [(capture, metric) for capture in captures for metric in capture.get("metrics", ())]
    first = {metric["name"]: place for place, (_, metric) in reversed(list(enumerate(pairs)))}
    return sorted(pairs, key=lambda pair: first[pair[1]["name"]])


def metrics(report: Row) -> Table:
    """Return every value that was measured."""
    column = capture_column(report)
    table = Table("measured", ("metric", *column, "value", "n"), "l" + "l" * len(column) + "rr")
    for capture, metric in _measured(report):
        if metric.get("value") is not None:
            where = (Name(capture["name"]),) if column else ()
            value = units.show(metric["value"], metric["unit"])
            table.rows.append((Name(metric["name"]), *where, value, wording.count(metric.get("n"))))
    return table


def not_observable(report: Row) -> Iterator[Cell]:
    """Say why metrics could not be measured, once for all captures that say the same."""
    captures: dict[tuple[str, str], list[str]] = {}
    for capture, metric in _measured(report):
        if metric.get("value") is None:
            captures.setdefault((metric["name"], metric.get("why") or ""), []).append(capture["name"])
    for (name, reason), names in captures.items():
        where = _in_brackets(ids(names, None)) if capture_column(report) else ()
        yield (Name(name), " not observable", *where, f": {reason}" if reason else "")


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
        delta, share = row.get("delta"), row.get("share")
        change = "n/a" if delta is None else units.percent(delta)
        part = "n/a" if share is None else units.percent(share, signed=False)
        table.rows.append((row["factor"], change, part))
    return table


def notes(report: Row) -> Iterator[Cell]:
    """Say of each comparison that is no plain verdict why not, or what would decide it."""
    for row in wording.select(report.get("comparisons", ()), "verdict", quiet=False):
        if row.get("why"):
            yield (Name(row["metric"]), f": {row['why']}")
    quiet = wording.select(report.get("comparisons", ()), "verdict", quiet=True)
    for caution in dict.fromkeys(row["caution"] for row in quiet if row.get("caution")):
        metrics = [Name(row["metric"]) for row in quiet if row.get("caution") == caution]
        yield (metrics[0], f" +{len(metrics) - 1:,} more" if len(metrics) > 1 else "", f": {caution}")


def messages(report: Row) -> list[str]:
    """Return the full messages of the comparisons to look at; each has several lines."""
    rows = wording.select(report.get("comparisons", ()), "verdict", quiet=False)
    return [row["message"] for row in rows if row.get("message")]


def provenance(report: Row) -> Iterator[Cell]:
    """Return what the report was made from and by, one fact a cell."""
    facts = {"policy": report.get("policy"), **(report.get("provenance") or {})}
    for name, value in facts.items():
        for place, part in value.items() if isinstance(value, dict) else [("", value)]:
            if part not in (None, "", [], {}):
                text = ", ".join(map(str, part)) if isinstance(part, list) else part
                yield (f"{name} {place}".strip().replace("_", " ") + " ", Name(text))
