"""Question 2: is every attempt accounted for?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import codes, groups, known
from pytest_rlserve.joins import join
from pytest_rlserve.joins.reconciliation import reconcile
from pytest_rlserve.joins.repeats import served_again
from pytest_rlserve.joins.residuals import STRAYS
from pytest_rlserve.ledger import DECISIONS, OUTCOMES, Accounts, Ledger, ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_rlserve.capture import Capture

_NAME = "attempts_reconcile"
_STEP = ("step_started", "step_finished")
_TOLD = {"dispatched", *OUTCOMES, *DECISIONS}


@check(question=2, kinds=("rollout",))
def attempts_reconcile(capture: Capture, evidence: Evidence) -> Outcome:
    """dispatched = completed + canceled + failed + open, for attempts and for single requests.

    It fails on attempts that were dispatched and never ended (more than the policy's `open_attempts`), on
    events that contradict each other or belong to no dispatched attempt, on a sample accepted twice, and on a
    request that was served twice: a client that retried by itself. `rlserve reconcile` prints the sums, part by part.
    """
    accounts = capture.derive(ledger)
    own = accounts.all
    noun = "dispatched attempts and requests" if accounts.requests else "dispatched attempts"
    if not own and not accounts.findings:
        groups = (
            "the sources tell of whole groups only" if capture.has("attempt_events") else "no source records attempts"
        )
        why = f"{groups}: write rlserve.attempt.v1 (pytest_rlserve.AttemptRecorder) beside the trace"
        return Outcome(observed=0, of=0, noun=noun, inconclusive=why)
    findings = list(accounts.findings)
    missing = [axis for axis in ("dispatched", *OUTCOMES) if axis not in accounts.covers]
    if missing:
        formats = sorted({one.format for one in capture.sources if _TOLD.intersection(one.covers)})
        untold = " or ".join(missing)
        why = f"{', '.join(formats)} cannot tell which attempts were {untold}; pytest_rlserve.AttemptRecorder can"
        return Outcome(observed=0, of=len(own), noun=noun, findings=findings, inconclusive=why)
    for level, some in (("attempt", accounts.attempts), ("request", accounts.requests)):
        findings += _open(level, some.that("open"), len(some), evidence)
    findings += [*_served_twice(capture), *_unaccounted(capture), *_untold_retries(accounts)]
    findings += _half_told_steps(capture, accounts)
    ended = len(own) - len(own.that("open"))
    return Outcome(observed=ended, of=len(own), noun=noun, findings=findings)


def _open(level: str, accounts: Accounts, dispatched: int, evidence: Evidence) -> list[Finding]:
    if not accounts:
        return []
    limit = evidence.open_attempts
    allowed = limit * dispatched if 0 < limit < 1 else limit
    first = accounts[0]
    one = len(accounts) == 1
    text = (
        f"{first.name} was dispatched and never ended"
        if one
        else f"{len(accounts):,} {level}s were dispatched and never ended ({int(allowed):,} may be open)"
    )
    too_many = len(accounts) > allowed
    text += "; it was running when the records stop, or its end was lost" * one
    text += "; a run that ends with work in flight says how much under [evidence] open_attempts" * too_many
    return [
        Finding(
            message=text,
            severity="failure" if too_many else "note",
            check=_NAME,
            path=first.source,
            line=first.line,
            ids=() if one else tuple(accounts.values("name")),
            count=len(accounts),
        )
    ]


def _unaccounted(capture: Capture) -> Iterator[Finding]:
    """Note requests of attempts that nobody recorded, and rows of requests that nobody recorded."""
    orphans = [id_ for one in capture.derive(reconcile) for id_ in one.outside.get("of no attempt", ())]
    if orphans:
        text = f"{_many(orphans, 'request')} of no attempt: nothing else is recorded of the attempts that they name"
        yield Finding(message=text, severity="note", check=_NAME, ids=tuple(orphans), count=len(orphans))
    rows = [id_ for one in capture.derive(reconcile) for id_ in one.strays.get("unrecorded request", ())]
    if rows:
        text = f"{_many(rows, 'row')} of an unrecorded request: {STRAYS['unrecorded request']}"
        yield Finding(message=text, severity="warning", check=_NAME, ids=tuple(rows), count=len(rows))


def _untold_retries(accounts: Ledger) -> Iterator[Finding]:
    """Warn of samples with more attempts than are told as retries: retries are counted, never guessed."""
    if "retried" not in accounts.covers:
        return
    tried = accounts.attempts.some(known(accounts.attempts.column("sample_id")))
    samples, retried = codes(*map(tried.column, ("run", "group_id", "sample_id"))), tried.retried
    several = groups(samples, least=2)
    untold = [tried[some[-1]] for some in several if len(some) - 1 > np.count_nonzero(retried[some])]
    if untold:
        ids = tuple(account.attempt_id for account in untold)
        text = f"{_many(ids, 'sample')} with an attempt beyond the first that no event calls a retry"
        place = untold[0]
        yield Finding(
            message=text,
            severity="warning",
            check=_NAME,
            path=place.source,
            line=place.line,
            ids=ids,
            count=len(ids),
        )


def _half_told_steps(capture: Capture, accounts: Ledger) -> Iterator[Finding]:
    """Warn of trained steps that lost a record of theirs: no window holds them, and a rate over the others differs.

    A step that had only begun when the run was stopped accepted nothing, and lacks nothing.
    """
    told: dict[int, dict[str, tuple[str, int]]] = {}
    control = capture.control_events.select(["event", "step", "source", "line"])
    for row in control.filter(pc.is_in(control["event"], pa.array(_STEP))).to_pylist():
        if row["step"] is not None:
            told.setdefault(row["step"], {})[row["event"]] = row["source"], row["line"]
    if not any(len(records) == len(_STEP) for records in told.values()):
        return  # the source tells only of one end of its steps
    trained = Counter(accounts.attempts.that("accepted").values("trained_in"))
    for step, records in sorted(told.items()):
        lost = [name for name in _STEP if name not in records]
        if lost and trained[step]:
            (path, line), *_ = records.values()
            text = (
                f"step {step} accepted {trained[step]:,} attempts, but has no {lost[0]} record: "
                "it is left out of the window of the throughput metrics"
            )
            yield Finding(message=text, severity="warning", check=_NAME, path=path, line=line)


def _many(ids: Sequence[str], noun: str) -> str:
    return f"{len(ids):,} {noun}{'s' * (len(ids) != 1)}"


def _served_twice(capture: Capture) -> list[Finding]:
    """Find accounts with more rows than they asked for: the same prompt again, or while the first still ran."""
    again = capture.derive(served_again)
    if not again:
        return []
    joined = capture.derive(join)
    ids, names = (capture.scalars[name].to_pylist() for name in ("request_id", "x_request_id"))
    findings = []
    for number, extra in again.items():
        account = joined.ledger.all[number]
        served = joined.rows_of(account)
        shared = {names[row] for row in served}
        one_id = shared.pop() if len(shared) == 1 else None
        named = f"x_request_id {one_id}" if one_id else f"attempt {account.attempt_id}"
        findings.append(
            Finding(
                message=(
                    f"{named} has {'two' if len(served) == 2 else len(served)} serving rows "
                    f"for one {account.level}: the client sent it again by itself"
                ),
                severity="failure",
                check=_NAME,
                path=account.source,
                line=account.line,
                ids=tuple(ids[row] for row in served),
                count=len(extra),
            )
        )
    return findings
