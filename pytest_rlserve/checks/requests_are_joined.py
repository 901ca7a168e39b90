"""Question 2: does every served request belong to an attempt, and every completed request to a row?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.joins import Joined, join
from pytest_rlserve.joins.residuals import DUE, RESIDUALS, STRAYS, UNEXPLAINED
from pytest_rlserve.ledger import ledger
from pytest_rlserve.units import percent

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_NAME = "requests_are_joined"


@check(question=2, kinds=("rollout",))
def requests_are_joined(capture: Capture, evidence: Evidence) -> Outcome:
    """Rows are joined with attempts, by response id, else x-request-id, else session.

    Two shares are judged: rows that have an attempt, of all rows (policy: `rows_joined`), and completed
    requests that have a row, of those that should (`traceable_served`). Equal counts are never taken for a
    join. Requests without a row are named by the reason. A third share is of all completed requests, those included
    that Dynamo never traces (`completed_served`): below it, latency and reuse of the rows are not those of the run.
    Where rows and records share no id it is inconclusive, and says what the framework would have to send.
    """
    accounts = capture.derive(ledger)
    rows = capture.scalars.num_rows
    if not rows or not (accounts.attempts or accounts.requests):
        missing = "no served requests" if not rows else "no attempt records"
        text = f"there are {missing} to join{_send(capture) if rows else ''}"
        return Outcome(observed=0, of=0, noun="rows", inconclusive=text)
    joined = capture.derive(join)
    if not joined.possible:
        keys = zip(capture.scalars["x_request_id"].to_pylist(), capture.scalars["session_id"].to_pylist(), strict=True)
        named = sum(bool(one or other) for one, other in keys)
        why = (
            f"joined 0 of {rows:,} rows, and equal counts are no join: {named:,} of them carry an x-request-id or a "
            f"session, none an id that the attempts know{_send(capture)}"
        )
        return Outcome(observed=0, of=rows, noun="rows", inconclusive=why)
    findings = [
        *_orphans(capture, joined, evidence),
        *_without_row(capture, joined, evidence),
        *_unseen(joined, evidence),
    ]
    if joined.joined == rows and joined.traceable_served < joined.traceable:
        served, traceable = joined.traceable_served, joined.traceable
        return Outcome(observed=served, of=traceable, noun="traceable requests", findings=findings)
    return Outcome(observed=joined.joined, of=rows, noun="rows", findings=findings)


def _send(capture: Capture) -> str:
    """Say which header or id would have to be sent or recorded."""
    told = [source.joins for source in capture.sources if source.joins]
    known = "send the header X-Dynamo-Session-ID (Dynamo then records x-request-id and session), or record each"
    return f". {'; '.join(dict.fromkeys(told))}" if told else f". To join them, {known} response's id"


def _apart(share: float, needed: float, what: str) -> str:
    """Print a share beside the one that is needed, with as many digits as it takes to tell them apart."""
    digits = next((n for n in range(1, 6) if share == needed or round(share * 100, n) != round(needed * 100, n)), 6)
    return f"{share * 100:.{digits}f} % {what}, {needed * 100:.{digits}f} % needed"


def _orphans(capture: Capture, joined: Joined, evidence: Evidence) -> list[Finding]:
    orphans = sorted(number for numbers in joined.strays.values() for number in numbers)
    if not orphans:
        return []
    share = joined.joined / joined.rows
    first = capture.scalars.slice(orphans[0], 1).to_pylist()[0]
    why = "; ".join(f"{name} ({len(numbers):,}: {STRAYS[name]})" for name, numbers in sorted(joined.strays.items()))
    return [
        Finding(
            message=(
                f"{len(orphans):,} of {joined.rows:,} rows belong to no attempt: {why} "
                f"({_apart(share, evidence.rows_joined, 'joined')})"
            ),
            severity="failure" if share < evidence.rows_joined else "warning",
            check=_NAME,
            path=first["source"],
            line=first["line"],
            ids=tuple(capture.scalars["request_id"].take(orphans).to_pylist()),
            count=len(orphans),
        )
    ]


def _unseen(joined: Joined, evidence: Evidence) -> list[Finding]:
    """Find a run that the rows show too little of, though each absence has its reason."""
    reasons = {
        why: [account for account in some if account.outcome == "completed"]
        for why, some in joined.without_row.items()
        if why != "lost turn"
    }
    unseen = [account for some in reasons.values() for account in some]
    seen = int(joined.ledger.all.some(joined.served).are("completed").sum())
    if not unseen or seen >= evidence.completed_served * (seen + len(unseen)):
        return []
    why = ", ".join(f"{name} ({len(some):,})" for name, some in sorted(reasons.items()) if some)
    text = f"{len(unseen):,} of {seen + len(unseen):,} completed {joined.level}s have no serving row: {why}"
    return [
        Finding(
            message=(
                f"{text}; they completed, but what the rows say of latency and reuse is not the run's "
                f"({_apart(seen / (seen + len(unseen)), evidence.completed_served, 'have a row')})"
            ),
            severity="failure",
            check=_NAME,
            path=unseen[0].source,
            line=unseen[0].line,
            ids=tuple(account.name for account in unseen),
            count=len(unseen),
        )
    ]


def _without_row(capture: Capture, joined: Joined, evidence: Evidence) -> list[Finding]:
    share = joined.traceable_served / joined.traceable if joined.traceable else 1.0
    short = share < evidence.traceable_served
    findings = []
    for name in RESIDUALS:
        accounts = joined.without_row.get(name, [])
        if not accounts:
            continue
        one = joined.level if len(accounts) == 1 else f"{joined.level}s"
        lack = "all of its rows" if name == "lost turn" else "a row"
        text = f"{len(accounts):,} {one} without {lack}: {name} ({RESIDUALS[name]})"
        if name in UNEXPLAINED:
            text += (
                f"; {joined.traceable_served:,} of {joined.traceable:,} traceable ones have a row "
                f"({percent(evidence.traceable_served, signed=False)} needed)"
            )
            cut = [source.path for source in capture.sources if not source.whole]
            if cut:
                text += f"; they may lie in the truncated {cut[0]}"
        findings.append(
            Finding(
                message=text,
                severity="failure" if short and name in UNEXPLAINED else "warning" if name in DUE else "note",
                check=_NAME,
                path=accounts[0].source,
                line=accounts[0].line,
                ids=tuple(account.name for account in accounts),
                count=len(accounts),
            )
        )
    return findings
