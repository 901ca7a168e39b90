"""Question 1: is every request there once?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.joins.repeats import told_twice
from pytest_rlserve.model import HASHES
from pytest_rlserve.scattered import lists_of

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_PLACE = ("source", "line")
_SHOWN = 5


@check(question=1)
def requests_are_unique(capture: Capture, evidence: Evidence) -> Outcome:
    """No request id stands in two rows: such rows are shards copied twice, or two runs in one capture.

    Two rows that agree are still counted once too often by everything downstream; two that differ cannot both
    be true, and neither is preferred.
    """
    distinct, twice = capture.derive(told_twice)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _whole(capture, twice) if twice else ():
        groups.setdefault(row["request_id"], []).append(row)
    findings = [_finding(same) for same in groups.values()]
    return Outcome(observed=distinct - len(findings), of=distinct, noun="request ids", findings=findings)


def _whole(capture: Capture, numbers: list[int]) -> list[dict[str, Any]]:
    """Return some rows with their hashes."""
    hashes = lists_of(capture.chains, numbers)
    rows = capture.scalars.take(numbers).to_pylist()
    return [{**row, HASHES: own} for row, own in zip(rows, hashes, strict=True)]


def _finding(same: list[dict[str, Any]]) -> Finding:
    first = same[0]
    names = [name for name in first if name not in _PLACE]
    second = next((row for row in same if any(row[name] != first[name] for name in names)), same[-1])
    places = " and ".join(f"{row['source']}:{row['line']}" for row in same[:_SHOWN])
    places += f" +{len(same) - _SHOWN} more" if len(same) > _SHOWN else ""
    differing = [name for name in names if first[name] != second[name]]
    times = "twice" if len(same) == 2 else f"{len(same)} times"
    text = f"request_id {first['request_id']} appears {times}, at {places}"
    if not differing:
        text += ", with the same values: was a shard copied or concatenated?"
    for name in differing[:3]:
        hashes = name == HASHES
        text += f", with other {name}" if hashes else f", with {name} {first[name]} and {second[name]}"
    return Finding(
        message=text,
        severity="error",
        check="requests_are_unique",
        path=second["source"],
        line=second["line"],
        count=len(same) - 1,
    )
