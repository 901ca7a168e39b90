"""Words, order and tallies that the reports for people share, so that all of them tell the same story."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_rlserve import units

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    Row = Mapping[str, Any]

ORDER = (
    *("regressed", "invalid", "error", "failed", "fail", "not_comparable", "incomplete", "inconclusive"),
    *("no_baseline", "waived", "improved", "unchanged", "passed", "pass"),
)
QUIET = frozenset({"unchanged", "passed", "pass"})
_WORDS = {"pass": "passed", "fail": "failed", "error": "in error", "invalid": "invalid evidence"}
ATTEMPT_COUNTS = (
    *("dispatched", "completed", "accepted", "rejected", "pending"),
    *("canceled", "failed", "open", "retried"),
)
REQUEST_COUNTS = (*ATTEMPT_COUNTS, "rows", "joined")


def word(status: str) -> str:
    """Return a verdict or status in words: "no baseline"."""
    return _WORDS.get(status, status.replace("_", " "))


def severity(status: str) -> int:
    """Return the place of a status, the worst first; a status this version does not know is the worst."""
    return ORDER.index(status) if status in ORDER else -1


def tally(statuses: Iterable[str]) -> str:
    """Count statuses, the worst first: "1 failed, 13 passed"."""
    counts = Counter(statuses)
    return ", ".join(f"{counts[status]:,} {word(status)}" for status in sorted(counts, key=severity))


def headline(report: Row) -> str:
    """Return the verdict and the counts behind it in one line."""
    checks = _worst((check["name"], check["status"]) for _, check in checks_of(report))
    limits = _worst(((row["metric"], row["limit"]), row["status"]) for row in report.get("limits", ()))
    parts = [tally(row["verdict"] for row in report.get("comparisons", ()))]
    parts += [f"limits: {tally(limits)}"] if limits else []
    parts += [f"checks: {tally(checks)}"] if checks else []
    parts += [f"tests: {tally(test['status'] for test in tests)}"] if (tests := report.get("failed_tests")) else []
    parts += [f"{len(report['not_run']):,} not run"] if report.get("not_run") else []
    found = "; ".join(filter(None, parts))
    return f"{word(report['verdict']).upper()}: {found or 'nothing was judged'}"


def _worst(pairs: Iterable[tuple[Hashable, str]]) -> list[str]:
    """Keep the worst status of each key, so that three captures of one check count once."""
    worst: dict[Hashable, str] = {}
    for key, status in pairs:
        worst[key] = min(status, worst.get(key, status), key=severity)
    return list(worst.values())


def checks_of(report: Row) -> Iterator[tuple[Row, Row]]:
    """Go through (capture, check) of all captures."""
    for capture in report.get("captures", ()):
        for check in capture.get("checks", ()):
            yield capture, check


def select(rows: Iterable[Row], status: str, *, quiet: bool) -> list[Row]:
    """Return the rows to look at by their field `status`, the worst first, or else the `quiet` ones."""
    chosen = (row for row in rows if (row[status] in QUIET) == quiet)
    return sorted(chosen, key=lambda row: severity(row[status]))


def few(ids: Sequence[object], count: int | None, most: int = 5) -> tuple[Sequence[object], str]:
    """Return the first `most` ids and how many more there are: "+7 more" or an empty string."""
    more = max(count or 0, len(ids)) - len(ids[:most])
    return ids[:most], f"+{more:,} more" if more > 0 and ids else ""


def place(finding: Row) -> str:
    """Return where a finding lies: "attempts.jsonl:12", or an empty string."""
    path, line = finding.get("path"), finding.get("line")
    return "" if path is None else f"{path}" if line is None else f"{path}:{line}"


def count(number: float | None) -> str:
    """Print a count; an absent one is "n/a", never 0."""
    return units.show(number, "count")


def seen(check: Row) -> str:
    """Return how much of the evidence a check saw: "780 of 784"."""
    observed, of = check.get("observed"), check.get("of")
    if of is None:
        return "" if observed is None else count(observed)
    return f"{count(observed)} of {count(of)}"


def change(row: Row, field: str = "delta", *, signed: bool = True) -> str:
    """Print one of a comparison's changes in its own scale: "-6.2 %", or "-2.1 points" for fractions."""
    return "n/a" if row.get(field) is None else units.change(row[field], row["unit"], signed=signed)


def direction(row: Row) -> str:
    """Say whether a comparison's change is "better" or "worse"; an empty string where there is none."""
    if row["verdict"] == "unchanged" or not row.get("delta") or row.get("better") not in ("higher", "lower"):
        return ""
    return "better" if (row["delta"] > 0) == (row["better"] == "higher") else "worse"


def alike(sources: Sequence[Row]) -> list[list[Row]]:
    """Put together the files of one format that tell the same, such as the shards of a trace."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for source in sources:
        key = source["format"], source.get("whole", True), tuple(source.get("covers") or ())
        found.setdefault(key, []).append(source)
    return list(found.values())
