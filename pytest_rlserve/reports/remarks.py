"""What reports for people say beside their tables, of sources, checks and comparisons, one remark a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.joins.residuals import OF_ROWS, OUTSIDE
from pytest_rlserve.reports import wording
from pytest_rlserve.reports.tables import Name, capture_column, ids, in_brackets, measured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.reports.tables import Cell, Row


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
                found = in_brackets(ids(rest.get("ids") or (), rest["count"]))
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


def reasons(report: Row) -> Iterator[Cell]:
    """Say of each check to look at, and that has findings besides, how it came to its status."""
    several = capture_column(report)
    for capture, check in wording.checks_of(report):
        if check["status"] not in wording.QUIET and check.get("why") and check.get("findings"):
            where = (" (", Name(capture["name"]), ")") if several else ()
            yield (Name(check["name"]), *where, f": {check['why']}")


def failed_tests(report: Row) -> Iterator[Cell]:
    """Name each test of the project's own that failed or erred."""
    for test in report.get("failed_tests", ()):
        yield (Name(test["id"]), f" {wording.word(test['status'])}")


def not_observable(report: Row) -> Iterator[Cell]:
    """Say why metrics could not be measured, once for all captures that say the same."""
    captures: dict[tuple[str, str], list[str]] = {}
    for capture, metric in measured(report):
        if metric.get("value") is None:
            captures.setdefault((metric["name"], metric.get("why") or ""), []).append(capture["name"])
    for (name, reason), names in captures.items():
        where = in_brackets(ids(names, None)) if capture_column(report) else ()
        yield (Name(name), " not observable", *where, f": {reason}" if reason else "")


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
    facts = {"policy": report.get("policy"), **dict(sorted((report.get("provenance") or {}).items()))}
    for name, value in facts.items():
        for place, part in sorted(value.items()) if isinstance(value, dict) else [("", value)]:
            if part not in (None, "", [], {}):
                text = ", ".join(map(str, part)) if isinstance(part, list) else part
                yield (f"{name} {place}".strip().replace("_", " ") + " ", Name(text))
