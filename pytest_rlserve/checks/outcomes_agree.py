"""Question 2: did what the framework calls completed really complete?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import given, known, mask
from pytest_rlserve.joins import join
from pytest_rlserve.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture, Severity
    from pytest_rlserve.columns import Mask, Numbers
    from pytest_rlserve.ledger import Accounts

_NAME = "outcomes_agree"
_ENOUGH = 0.95
"""Share of the completed that must have a finish reason, or the others could be any."""
_NAMED = 20
_ABORTED = ("cancelled", "canceled", "abort", "aborted", "error")
_COLUMNS = ("finish_reason", "backend_finish_reason", "session_id", "source", "line")


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
    accounts = joined.ledger.all.some(joined.served)
    rows = capture.scalars.select(list(_COLUMNS)).take(pa.array(joined.arrived[joined.edges[1:] - 1]))
    backend = given(rows["backend_finish_reason"])
    reasons = pc.coalesce(backend, given(rows["finish_reason"]))
    told, aborted, completed = known(reasons), _aborted(reasons), accounts.are("completed")
    cut = np.flatnonzero(completed & aborted)
    findings = [_contradiction(accounts, rows, place, str(reasons[place])) for place in cut[:_NAMED].tolist()]
    if len(more := cut[_NAMED:]):
        text = f"{len(more):,} more completed {joined.level}s have a backend finish reason of cancelled or error"
        findings.append(_finding(text, "failure", rows, more, accounts.some(more)))
    unused = np.flatnonzero(accounts.are("canceled", "failed") & known(backend) & ~aborted)
    if len(unused):
        text = f"{len(unused):,} {joined.level}s were finished by the engine although the framework had given them up"
        findings.append(_finding(text, "note", rows, unused, accounts.some(unused)))
    broken = np.flatnonzero(completed & known(given(rows["session_id"])) & ~told)
    looked, answered = int(completed.sum()), int((completed & told).sum())
    if len(broken) and answered >= _ENOUGH * looked:
        what = f"{joined.level} was" if len(broken) == 1 else f"{joined.level}s were"
        text = (
            f"{len(broken):,} completed {what} served by a row without a finish reason, as a worker's death or a "
            "client that closes leaves it; look whether the answers are whole"
        )
        findings.append(_finding(text, "warning", rows, broken, accounts.some(broken)))
    noun = f"completed {joined.level}s with a row"
    why = None
    if not looked:
        why = "no completed request is joined with a row that could say how the engine ended it"
    elif answered < _ENOUGH * looked:
        share = percent(answered / looked, signed=False)
        why = (
            f"{answered:,} of {looked:,} {noun} have a finish reason ({share}): Dynamo writes it for "
            "requests with a session, so send X-Dynamo-Session-ID"
        )
    return Outcome(observed=answered - len(cut), of=looked, noun=noun, findings=findings, inconclusive=why)


def _aborted(reasons: pa.ChunkedArray) -> Mask:
    """Mark the reasons that are none to have completed for, whatever an engine adds to "error"."""
    some = [one for one in reasons.unique().to_pylist() if one is not None and _word(one).lower() in _ABORTED]
    return mask(pc.is_in(reasons, value_set=pa.array(some, pa.string())))


def _word(reason: str) -> str:
    return reason.partition(":")[0].strip()


def _contradiction(accounts: Accounts, rows: pa.Table, place: int, reason: str) -> Finding:
    account = accounts[place]
    taken = " and the trainer accepted it" if account.acceptance == "accepted" else ""
    text = f"{account.name}: backend finish reason {_word(reason)}, although the framework recorded it completed{taken}"
    return _finding(text, "failure", rows, [place])


def _finding(
    message: str, severity: Severity, rows: pa.Table, places: Sequence[int] | Numbers, listed: Accounts | None = None
) -> Finding:
    """Return a finding about the rows at some places, with the names of the accounts that are `listed`."""
    row = rows.slice(places[0], 1).to_pylist()[0]
    ids = tuple(listed.values("name")) if listed else ()
    return Finding(
        message=message,
        severity=severity,
        check=_NAME,
        path=row["source"],
        line=row["line"],
        ids=ids,
        count=len(places),
    )
