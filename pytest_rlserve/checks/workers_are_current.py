"""Question 3: did every worker that served have the weights that its last update brought?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve import units
from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.checks.told_elsewhere import told_elsewhere
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.missed import missed, served_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.missed import Missed, Served

_NAME = "workers_are_current"
_NOUN = "requests of workers whose version is known"
_KINDS = ("start", "end", "worst", "token_mean")


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
    rows = capture.scalars.select(["received_at", "output_tokens"]).to_pylist()
    served: dict[tuple[str | None, str], list[int]] = {}
    for number, owner in capture.derive(join).owners.items():
        served.setdefault(owner.attempt, []).append(number)
    attempts = [owner for owner in capture.derive(ledger).attempts if owner.acceptance == "accepted"]
    counts = dict.fromkeys(("any", *_KINDS), 0)
    late = set(one.rows)
    for account in attempts:
        numbers = sorted(served.get(account.attempt, ()), key=lambda number: rows[number]["received_at"] or 0.0)
        old = [number in late for number in numbers]
        if not any(old):
            continue
        counts["any"] += 1
        counts["start"] += old[0]
        counts["end"] += old[-1]
        counts["worst"] += 1
        counts["token_mean"] += any(rows[n]["output_tokens"] for n in numbers if n in late)
    return counts if attempts else {}


def _unknown(capture: Capture, worker: str, served: Served) -> Finding:
    """Name a worker of which no record says what it had loaded."""
    said = f"no record says which version worker {worker} had loaded; it served {units.many(len(served), 'request')}"
    return _finding(capture, said, served.rows.tolist(), "warning")
