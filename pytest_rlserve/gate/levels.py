"""The levels of a baseline document: what a run adds, what a new level carries over, what is kept.

The functions here work on a document that is the caller's own copy.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate import statistics
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.gate.scales import is_linear, raised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.gate.compare import Comparison


def unique(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take each capture once, however often it was given."""
    return list({run["capture"]: run for run in runs}.values())


def first_level(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the level that a baseline begins with, the anchor of its series."""
    return {"reason": None, "accepted_at": None, "moved": {}, "runs": _kept(_by_time(runs))}


def _by_time(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order new runs by time, then content: the order of the command line must not show."""
    return sorted(runs, key=lambda run: (run["captured_at"] or 0.0, run["capture"]))


def _kept(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the first runs of the first jobs, which anchor the series, and the newest of the others.

    Runs stand in the order in which they were taken in, so that none can slip in before the anchor.
    """
    if len(runs) <= store.MOST_RUNS:
        return runs
    first = store.anchored(runs)
    jobs = list(dict.fromkeys(run["job"] for run in first))[: store.ANCHOR_JOBS]
    anchor = [run for run in runs if run in first and run["job"] in jobs][: store.MOST_RUNS // 2]
    rest = [run for run in runs if run not in anchor]
    return [*anchor, *rest[-(store.MOST_RUNS - len(anchor)) :]]


def known(document: Mapping[str, Any], runs: list[dict[str, Any]]) -> bool:
    """Tell whether the newest level holds all these runs already."""
    stored = {run["capture"] for run in document["levels"][-1]["runs"]}
    return all(run["capture"] in stored for run in runs)


def append(document: dict[str, Any], runs: list[dict[str, Any]]) -> int:
    """Add runs to the newest level; one that is already there takes up measurements it lacks or that were renewed."""
    level = document["levels"][-1]
    by_capture = {run["capture"]: run for run in level["runs"]}
    added = 0
    for run in _by_time(runs):
        stored = by_capture.get(run["capture"])
        if stored is None:
            level["runs"].append(run)
            by_capture[run["capture"]] = run
            added += 1
        else:
            stored["measurements"] |= run["measurements"]
    level["runs"] = _kept(level["runs"])
    return added


def complete(document: dict[str, Any], runs: list[dict[str, Any]]) -> int:
    """Add measurements that no run of the newest level has, to the runs that are known, else as new runs."""
    level = document["levels"][-1]
    have = {key for run in level["runs"] for key in run["measurements"]}
    by_capture = {run["capture"]: run for run in level["runs"]}
    added = set()
    for run in _by_time(runs):
        new = {key: value for key, value in run["measurements"].items() if key not in have}
        if not new:
            continue
        added |= set(new)
        if run["capture"] in by_capture:
            by_capture[run["capture"]]["measurements"] |= new
        else:
            level["runs"].append({**run, "measurements": new})
    level["runs"] = _kept(level["runs"])
    return len(added)


def _carry_over(document: dict[str, Any]) -> None:
    """Let the spread between jobs that the closing level has shown live on, pooled with what came before."""
    for key in document["definitions"]:
        unit = document["definitions"][key]["unit"]
        linear = is_linear(unit)
        jobs = raised(store.values_of(document["levels"][-1]["runs"], key), unit)
        if len(jobs) < 2 or (not linear and min(v for values in jobs.values() for v in values) <= 0):
            continue
        before = document["carried"].get(key, {"variance": 0.0, "df": 0.0})
        variance, df = statistics.pooled(
            [(before["variance"], before["df"]), statistics.job_spread(jobs, linear=linear)]
        )
        document["carried"][key] = {"variance": rounded(variance), "df": df}


def open_level(
    document: dict[str, Any], moved: Mapping[str, Comparison], runs: list[dict[str, Any]], reason: str
) -> None:
    """Close the newest level and open one with these runs, accepted for a reason."""
    _carry_over(document)
    document["levels"].append(
        {
            "reason": reason,
            "accepted_at": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "moved": {
                key: {
                    **{name: rounded(change[name]) for name in ("baseline", "current", "delta")},
                    "error": rounded(comparison.result.error if comparison.result else 0.0),
                }
                for key, comparison in moved.items()
                if (change := change_of(key, comparison, reason))["delta"] is not None
            },
            "runs": _kept(_by_time(runs)),
        }
    )


def change_of(key: str, comparison: Comparison, reason: str) -> dict[str, Any]:
    """Say how far a metric moved, and why that was accepted."""
    record = comparison.record()
    return {
        "metric": key,
        **{name: record[name] for name in ("baseline", "current", "delta")},
        "reason": reason,
    }
