"""Question 2: does the policy version only ever go up?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import given, known
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins.versions import loaded_for, number, trained_on
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.fleet import Fleet
    from pytest_rlserve.ledger import Account, Accounts

_NAME = "versions_advance"
_OF_A_WORKER = "version"
_OF_THE_TRAINER = ("step_started", "step_finished", "step_trained")
_RESTORED = "checkpoint_restored"
_NAMED = 20


@check(question=2, kinds=("rollout",))
def versions_advance(capture: Capture, evidence: Evidence) -> Outcome:
    """Policy versions do not go backwards, on any worker or in the trainer, and no lag is negative.

    A counter that starts anew after a fail-over makes the stalest samples look freshest: their lag is negative and
    never exceeds a limit. A worker that restarted under another id is the same worker. A fall right after a
    `checkpoint_restored`, or with a new run, is what resuming does and only a warning; an attempt accepted by an older
    version than generated it fails either way. Versions that are names ("initial") have no order and are left out.
    """
    columns = ["event", "t", "run", "worker_id", "policy_version", "source", "line"]
    control = capture.control_events.select(columns)
    looked_at = pa.array([_OF_A_WORKER, *_OF_THE_TRAINER, _RESTORED])
    events = control.filter(pc.and_(pc.is_valid(control["t"]), pc.is_in(control["event"], looked_at))).to_pylist()
    events.sort(key=lambda row: float(row["t"]))
    seen, findings = _falls(events, capture.derive(fleet))
    accepted = capture.derive(ledger).attempts.that("accepted")
    lags = _lags(capture, accepted)
    negative = [(account, lag) for account, lag in zip(accepted, lags, strict=True) if lag is not None and lag < 0]
    findings += [_negative(*one) for one in negative[:_NAMED]]
    if more := [account for account, _ in negative[_NAMED:]]:
        text = f"{len(more):,} more accepted attempts have a negative lag"
        findings.append(_finding(text, "failure", more[0].source, more[0].line, *(a.attempt_id for a in more)))
    looked = seen + len(lags) - lags.count(None)
    noun = "policy versions and lags of accepted attempts"
    if not looked:
        why = "no control record or attempt gives policy versions that are numbers"
        return Outcome(observed=0, of=0, noun=noun, inconclusive=why)
    bad = sum(finding.count for finding in findings if finding.severity == "failure")
    return Outcome(observed=looked - bad, of=looked, noun=noun, findings=findings)


def _falls(events: list[dict[str, Any]], known: Fleet) -> tuple[int, list[Finding]]:
    """Return how many versions there were to look at, and each that is lower than the one before it."""
    last: dict[str, tuple[float, dict[str, Any]]] = {}
    restored = -1.0
    findings, looked = list[Finding](), 0
    for row in events:
        if row["event"] == _RESTORED:
            restored = row["t"]
        value = None if row["policy_version"] is None else number(row["policy_version"])
        if value is None or row["event"] == _RESTORED:
            continue
        looked += 1
        where, who = _where(row), _who(row, known)
        before, earlier = last.get(who, (value, row))
        if value < before:
            resumed = restored >= earlier["t"] or len({row["run"], earlier["run"]} - {None}) == 2
            text = f"policy_version went from {before:g} to {value:g} {where}"
            text += f" ({earlier['worker_id']} before it restarted)" if row["worker_id"] != earlier["worker_id"] else ""
            text += ", as the run was resumed" if resumed else f", {row['t'] - earlier['t']:.1f} s after it had risen"
            findings.append(_finding(text, "warning" if resumed else "failure", row["source"], row["line"]))
        last[who] = value, row
    return looked, findings


def _where(row: dict[str, Any]) -> str:
    if row["event"] in _OF_THE_TRAINER:
        return "in the trainer"
    return f"on worker {row['worker_id']}" if row["worker_id"] else "on the fleet"


def _who(row: dict[str, Any], known: Fleet) -> str:
    """Say whose version it is: a worker's by the first id it had."""
    return known.origin(row["worker_id"]) if row["event"] == _OF_A_WORKER and row["worker_id"] else _where(row)


def _lags(capture: Capture, accepted: Accounts) -> list[float | None]:
    untold = ~known(given(accepted.column("policy")))
    columns = accepted.values("policy"), loaded_for(capture, accepted, untold), trained_on(capture, accepted)
    return [_lag(policy or loaded, trained) for policy, loaded, trained in zip(*columns, strict=True)]


def _lag(generating: str | None, trained: str | None) -> float | None:
    if generating is None or trained is None:
        return None
    first, last = number(generating), number(trained)
    return None if first is None or last is None else last - first


def _negative(account: Account, lag: float) -> Finding:
    text = f"{account.attempt_id}: lag {lag:g}: the version that accepted it is older than the one that generated it"
    return _finding(text, "failure", account.source, account.line)


def _finding(message: str, severity: Any, path: str, line: int, *ids: str) -> Finding:
    return Finding(
        message=message, severity=severity, check=_NAME, path=path, line=line, ids=ids, count=max(len(ids), 1)
    )
