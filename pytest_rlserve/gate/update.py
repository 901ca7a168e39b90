"""Taking runs into a baseline: only trusted ones, silently only when nothing changed, and never by accident."""

from __future__ import annotations

import copy
import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import BaselineError
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate import statistics
from pytest_rlserve.gate.compare import is_linear, job_of
from pytest_rlserve.gate.identity import identity_of
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.gate.workload import workload_of
from pytest_rlserve.metrics import measuring

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.compare import Comparison
    from pytest_rlserve.metrics import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What became of a baseline update."""

    written: bool
    summary: str
    changes: tuple[dict[str, Any], ...] = ()
    """The report's `baseline_changes`: what the new baseline gives up or gains."""


def update(
    path: Path,
    captures: Sequence[Capture],
    comparisons: Mapping[str, Comparison],
    *,
    series: str,
    scope: Scope,
    keys: Iterable[str],
    reason: str | None,
    new_only: bool,
    replace_unreadable: bool,
) -> Update:
    """Add captures to the baseline of a series, and write it.

    Args:
        path: the baseline file.
        captures: runs whose evidence checks have passed.
        comparisons: the verdicts of the gated metrics; they decide whether a reason is needed.
        series: name of the series.
        scope: how metrics are taken.
        keys: the measurements to store.
        reason: why a changed level is accepted.
        new_only: add only what the baseline lacks.
        replace_unreadable: start anew where the file cannot be read.

    Raises:
        BaselineError: the file cannot be read (and must not be replaced), or cannot be written.
    """
    replaced = ""
    try:
        found = store.read(path)
    except BaselineError as error:
        if not replace_unreadable:
            raise
        found, replaced = (
            None,
            f"; the old baseline could not be read and was replaced ({str(error).splitlines()[0]})",
        )
    runs = [_run(capture, keys, scope) for capture in captures]
    if found is None:
        document = _fresh(captures, series, runs, keys, scope)
        store.write(path, document)
        return Update(written=True, summary=f"baseline {path.name} created with {_runs(len(runs))}{replaced}")
    document = copy.deepcopy(dict(found.document))
    document["definitions"] |= {
        key: value
        for key, value in _definitions(captures[0], keys, scope).items()
        if key not in document["definitions"]
    }
    if new_only:
        added = _complete(document, runs)
        written = store.write(path, document)
        return Update(written=written, summary=f"baseline {path.name}: {added} new measurements added, none changed")
    moved = {key: c for key, c in comparisons.items() if c.verdict in ("regressed", "improved")}
    undecided = [key for key, c in comparisons.items() if c.verdict == "inconclusive" and c.result is not None]
    if (moved or undecided) and not reason and not _known(document, runs):
        which = ", ".join(sorted([*moved, *undecided]))
        text = (
            f'baseline {path.name} left as it is: give --rl-baseline-reason="…", since {which} did not stay unchanged'
        )
        return Update(written=False, summary=text)
    changes = tuple(_change(key, c, reason or "") for key, c in sorted(moved.items()))
    if moved and not _known(document, runs):
        document["factors"] = dict(captures[0].manifest.factors)
        _open_level(document, moved, runs, reason or "")
        what = f"new level with {_runs(len(runs))}, accepted because: {reason}"
    else:
        what = f"{_runs(_append(document, runs))} added"
    written = store.write(path, document)
    return Update(
        written=written,
        summary=f"baseline {path.name}: {what if written else 'nothing changed'}",
        changes=changes if written else (),
    )


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _run(capture: Capture, keys: Iterable[str], scope: Scope) -> dict[str, Any]:
    measured = [measuring.measure(capture, key, scope) for key in keys]
    manifest = capture.manifest
    return {
        "capture": capture.digest,
        "name": capture.name,
        "job": job_of(capture),
        **({"pair": manifest.pair} if manifest.pair else {}),
        "commit": manifest.commit,
        "captured_at": manifest.captured_at,
        "measurements": {m.name: {"value": rounded(m.value), "n": m.n} for m in measured if m.value is not None},
    }


def _definitions(capture: Capture, keys: Iterable[str], scope: Scope) -> dict[str, Any]:
    measured = [measuring.measure(capture, key, scope) for key in keys]
    return {m.name: dict(m.definition) for m in measured}


def _fresh(
    captures: Sequence[Capture], series: str, runs: list[dict[str, Any]], keys: Iterable[str], scope: Scope
) -> dict[str, Any]:
    first, workload = captures[0], workload_of(captures)
    return {
        "schema": store.FORMAT,
        "series": series,
        "kind": first.manifest.kind,
        "identity": identity_of(first),
        "factors": dict(first.manifest.factors),
        **({"workload": workload} if workload else {}),
        "definitions": _definitions(first, keys, scope),
        "levels": [{"reason": None, "accepted_at": None, "moved": {}, "runs": _sorted(runs)}],
        "carried": {},
    }


def _sorted(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Order runs by time, then content, and keep the first jobs, which anchor the series, and the newest runs."""
    ordered = sorted(runs, key=lambda run: (run["captured_at"] or 0.0, run["capture"]))
    if len(ordered) <= store.MOST_RUNS:
        return ordered
    jobs = list(dict.fromkeys(run["job"] for run in ordered))[: store.ANCHOR_JOBS]
    anchor = [run for run in ordered if run["job"] in jobs][: store.MOST_RUNS - 1]
    rest = [run for run in ordered if run["job"] not in jobs]
    return [*anchor, *rest[-(store.MOST_RUNS - len(anchor)) :]]


def _known(document: Mapping[str, Any], runs: list[dict[str, Any]]) -> bool:
    stored = {run["capture"] for run in document["levels"][-1]["runs"]}
    return all(run["capture"] in stored for run in runs)


def _append(document: dict[str, Any], runs: list[dict[str, Any]]) -> int:
    """Add runs to the newest level; one that is already there takes up measurements it lacks or that were renewed."""
    level = document["levels"][-1]
    by_capture = {run["capture"]: run for run in level["runs"]}
    added = 0
    for run in runs:
        stored = by_capture.get(run["capture"])
        if stored is None:
            level["runs"].append(run)
            added += 1
        else:
            stored["measurements"] |= run["measurements"]
    level["runs"] = _sorted(level["runs"])
    return added


def _complete(document: dict[str, Any], runs: list[dict[str, Any]]) -> int:
    """Add measurements that no run of the newest level has, to the runs that are known, else as new runs."""
    level = document["levels"][-1]
    have = {key for run in level["runs"] for key in run["measurements"]}
    by_capture = {run["capture"]: run for run in level["runs"]}
    added = set()
    for run in runs:
        new = {key: value for key, value in run["measurements"].items() if key not in have}
        if not new:
            continue
        added |= set(new)
        if run["capture"] in by_capture:
            by_capture[run["capture"]]["measurements"] |= new
        else:
            level["runs"].append({**run, "measurements": new})
    level["runs"] = _sorted(level["runs"])
    return len(added)


def _carry_over(document: dict[str, Any]) -> None:
    """Let the spread between jobs that the closing level has shown live on, pooled with what came before."""
    for key in document["definitions"]:
        linear = is_linear(document["definitions"][key]["unit"])
        jobs = store.values_of(document["levels"][-1]["runs"], key)
        if len(jobs) < 2 or (not linear and min(v for values in jobs.values() for v in values) <= 0):
            continue
        before = document["carried"].get(key, {"variance": 0.0, "df": 0.0})
        variance, df = statistics.pooled(
            [(before["variance"], before["df"]), statistics.job_spread(jobs, linear=linear)]
        )
        document["carried"][key] = {"variance": rounded(variance), "df": df}


def _open_level(
    document: dict[str, Any], moved: Mapping[str, Comparison], runs: list[dict[str, Any]], reason: str
) -> None:
    _carry_over(document)
    document["levels"].append(
        {
            "reason": reason,
            "accepted_at": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "moved": {
                key: {name: rounded(change[name]) for name in ("baseline", "current", "delta")}
                for key, comparison in moved.items()
                if (change := _change(key, comparison, reason))["delta"] is not None
            },
            "runs": _sorted(runs),
        }
    )


def _change(key: str, comparison: Comparison, reason: str) -> dict[str, Any]:
    record = comparison.record()
    return {
        "metric": key,
        **{name: record[name] for name in ("baseline", "current", "delta")},
        "reason": reason,
    }
