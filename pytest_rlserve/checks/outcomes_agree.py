"""Question 2: did what the framework calls completed really complete?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.joins import join
from pytest_rlserve.units import percent

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.ledger import Account

_NAME = "outcomes_agree"
_ENOUGH = 0.95
"""Share of the completed that must have a finish reason, or the others could be any."""
_NAMED = 20


@check(question=2, kinds=("rollout",))
def outcomes_agree(capture: Capture, evidence: Evidence) -> Outcome:
    """No request that the framework recorded as completed was cut short by the engine.

    An engine that aborts a request (for weights, a shutdown, want of memory) still ends the stream with HTTP 200
    and an ordinary finish reason, and a framework takes the stump for an answer. The backend's own finish reason in
    the row tells: `cancelled`, `abort` or an error. Of an attempt with several rows the last one counts. Dynamo
    writes finish reasons only for requests with a session. It is inconclusive where fewer than 95 % of the
    completed have one; where more do, a row with a session but without a reason is a warning: a stream that broke off
    leaves it, as when a worker dies or the client closes.
    """
    joined = capture.derive(join)
    rows = capture.scalars.select(
        ["finish_reason", "backend_finish_reason", "session_id", "source", "line"]
    ).to_pylist()
    accounts = {id(owner): owner for owner in joined.owners.values()}
    served = [(accounts[key], rows[numbers[-1]]) for key, numbers in joined.served.items()]
    completed = [(account, row) for account, row in served if account.outcome == "completed"]
    told = [(account, row) for account, row in completed if _told(row)]
    cut = [(account, row, why) for account, row in told if (why := _cut_short(row))]
    findings = [_contradiction(*one) for one in cut[:_NAMED]]
    if more := cut[_NAMED:]:
        text = f"{len(more):,} more completed {joined.level}s have a backend finish reason of cancelled or error"
        findings.append(_finding(text, "failure", more[0][1], [account for account, _, _ in more]))
    unused = [(a, row) for a, row in served if a.outcome in ("canceled", "failed") and _finished(row)]
    if unused:
        text = f"{len(unused):,} {joined.level}s were finished by the engine although the framework had given them up"
        findings.append(_finding(text, "note", unused[0][1], [account for account, _ in unused]))
    broken = [(a, row) for a, row in completed if row["session_id"] and not _told(row)]
    if broken and len(told) >= _ENOUGH * len(completed):
        what = f"{joined.level} was" if len(broken) == 1 else f"{joined.level}s were"
        text = (
            f"{len(broken):,} completed {what} served by a row without a finish reason, as a worker's death or a "
            "client that closes leaves it; look whether the answers are whole"
        )
        findings.append(_finding(text, "warning", broken[0][1], [account for account, _ in broken]))
    noun = f"completed {joined.level}s with a row"
    why = None
    if not completed:
        why = "no completed request is joined with a row that could say how the engine ended it"
    elif len(told) < _ENOUGH * len(completed):
        share = percent(len(told) / len(completed), signed=False)
        why = (
            f"{len(told):,} of {len(completed):,} {noun} have a finish reason ({share}): Dynamo writes it for "
            "requests with a session, so send X-Dynamo-Session-ID"
        )
    return Outcome(observed=len(told) - len(cut), of=len(completed), noun=noun, findings=findings, inconclusive=why)


def _told(row: dict[str, Any]) -> bool:
    return bool(row["finish_reason"] or row["backend_finish_reason"])


def _cut_short(row: dict[str, Any]) -> str | None:
    """Return the backend's reason if it is none to have completed for, without what an engine adds to "error"."""
    reason = str(row["backend_finish_reason"] or row["finish_reason"]).partition(":")[0].strip()
    return reason if reason.lower() in ("cancelled", "canceled", "abort", "aborted", "error") else None


def _finished(row: dict[str, Any]) -> bool:
    return bool(row["backend_finish_reason"]) and _cut_short(row) is None


def _contradiction(account: Account, row: dict[str, Any], reason: str) -> Finding:
    taken = " and the trainer accepted it" if account.acceptance == "accepted" else ""
    text = f"{account.name}: backend finish reason {reason}, although the framework recorded it completed{taken}"
    return _finding(text, "failure", row, [account], listed=False)


def _finding(
    message: str, severity: Any, row: dict[str, Any], accounts: list[Account], *, listed: bool = True
) -> Finding:
    ids = tuple(account.name for account in accounts) if listed else ()
    return Finding(
        message=message,
        severity=severity,
        check=_NAME,
        path=row["source"],
        line=row["line"],
        ids=ids,
        count=len(accounts),
    )
