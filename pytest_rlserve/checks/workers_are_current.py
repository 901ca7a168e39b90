"""Question 3: did every worker that served have the weights that its last update brought?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve import units
from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.checks.told_elsewhere import told_elsewhere
from pytest_rlserve.columns import reals
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.missed import missed, served_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers
    from pytest_rlserve.missed import Missed, Served

_NAME = "workers_are_current"
_NOUN = "requests of workers whose version is known"


@check(question=3, kinds=("rollout",))
def workers_are_current(capture: Capture, evidence: Evidence) -> Outcome:
    """No request was served by a worker that a weight update had missed.

    Such a worker answers under an older policy than everyone believes. Its requests are counted, and the accepted
    attempts they went into: those that begin with one (lag at `start`), end with one (`end`), are as old as one
    (`worst`), and those whose mean age over tokens it changes (`token_mean`).
    """
    known, served = capture.derive(fleet), capture.derive(served_by)
    if not known.finished or not served:
        what = "served request with a worker" if known.finished else "weight update"
        more = "" if known.finished else told_elsewhere(capture)
        why = f"the capture has no {what} to judge workers by{more}"
        return Outcome(observed=0, of=0, noun=_NOUN, inconclusive=why)
    behind = [one for one in capture.derive(missed) if one.rows]
    findings = [_behind(capture, one) for one in behind]
    told = {worker: some for worker, some in served.items() if known.versions(worker)}
    findings += [_unknown(capture, worker, some) for worker, some in served.items() if worker not in told]
    total = sum(map(len, told.values()))
    late = sum(len(one.rows) for one in behind if one.worker in told)
    return Outcome(observed=total - late, of=total, noun=_NOUN, findings=findings)


def _finding(capture: Capture, message: str, rows: list[int], severity: Any) -> Finding:
    some = capture.scalars.select(["request_id", "source", "line"]).take(rows).to_pylist()
    ids = tuple(row["request_id"] for row in some)
    place = some[0]
    return Finding(
        message=message,
        severity=severity,
        check=_NAME,
        path=place["source"],
        line=place["line"],
        ids=ids,
        count=len(rows),
    )


def _behind(capture: Capture, one: Missed) -> Finding:
    had = f"version {one.version}" if one.version is not None else "an unknown version"
    said = (
        f"worker {one.worker} was missed by {one.update} and served {units.many(len(one.rows), 'request')} with {had} "
        f"instead of {one.update.version}"
    )
    counts = _accepted(capture, one)
    if counts:
        kinds = ", ".join(f"{kind.replace('_', ' ')} {count:,}" for kind, count in counts.items() if kind != "any")
        said += f"; they went into {counts['any']:,} accepted attempts, older by that at {kinds}"
    return _finding(capture, said, list(one.rows), "failure")


def _accepted(capture: Capture, one: Missed) -> Mapping[str, int]:
    """Count the accepted attempts that these requests went into, and those that they make older, by kind of lag."""
    joined, ends = capture.derive(join), capture.derive(_ends)
    if not ends.accepted.any():
        return {}
    late = np.array(one.rows, dtype=np.int64)
    late = late[joined.owner[late] >= 0]
    attempts = joined.ledger.all.attempts[joined.owner[late]]
    some = int(ends.accepted[np.unique(attempts)].sum())
    told = reals(capture.scalars["output_tokens"].take(pa.array(late))) > 0
    return {
        "any": some,
        "start": int(ends.accepted[attempts[ends.first[attempts] == late]].sum()),
        "end": int(ends.accepted[attempts[ends.last[attempts] == late]].sum()),
        "worst": some,
        "token_mean": int(ends.accepted[np.unique(attempts[told])].sum()),
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """Of each attempt, by its number: how often it was accepted, and its first and last row."""

    accepted: Numbers
    first: Numbers
    last: Numbers


def _ends(capture: Capture) -> _Ends:
    joined = capture.derive(join)
    attempts = joined.ledger.all.attempts
    size = int(attempts.max(initial=-1)) + 1
    rows = np.array(joined.order, dtype=np.int64)
    rows = rows[np.argsort(reals(pc.fill_null(capture.scalars["received_at"], 0.0))[rows], kind="stable")]
    owners = attempts[joined.owner[rows]]
    first, last = np.full(size, -1), np.full(size, -1)
    last[owners] = rows  # of several rows of one attempt the last one stays
    first[owners[::-1]] = rows[::-1]
    accepted = joined.ledger.attempts.that("accepted").attempts
    return _Ends(np.bincount(accepted, minlength=size), first, last)


def _unknown(capture: Capture, worker: str, served: Served) -> Finding:
    """Name a worker of which no record says what it had loaded."""
    said = f"no record says which version worker {worker} had loaded; it served {units.many(len(served), 'request')}"
    return _finding(capture, said, served.rows.tolist(), "warning")
