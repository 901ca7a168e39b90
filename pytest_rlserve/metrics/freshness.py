"""How far behind the trainer the weights were that generated an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins.versions import number, versions
from pytest_rlserve.ledger import Account, ledger
from pytest_rlserve.metrics.restarts import restarts

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import Scope


def lags(capture: Capture, scope: Scope) -> list[tuple[Account, float]]:
    """Return the lag of every accepted attempt: trained version minus generating version.

    The generating version is the attempt's own `policy`, else the one that was loaded where it began; never the
    version that was merely asked for. The trained version is the acceptance's own, else that of the step it was
    trained in, else the newest that the workers had been given when it was accepted. So the time that a finished
    attempt waits to be trained on makes it older. What a restart undid is left out.

    Raises:
        NotMeasurable: a version is unknown for some accepted attempt.
    """
    accepted = [
        account
        for account in capture.derive(ledger).attempts
        if account.acceptance == "accepted"
        if not any(account.decided_at in undone for undone in capture.derive(restarts))
    ]
    if not accepted:
        raise NotMeasurable("no attempt was accepted")
    known = capture.derive(versions)
    found = []
    for account in accepted:
        trained = known.trained_on(account)
        generating = _generating(account, scope)
        if generating is None:
            generating = known.loaded_for(account)
        if trained is None or generating is None:
            which = "trained" if trained is None else "generating"
            raise NotMeasurable(f"the {which} policy version of attempt {account.attempt_id} is not recorded")
        found.append((account, _number(trained) - _number(generating)))
    return found


def _number(version: str | float) -> float:
    value = number(version)
    if value is None:
        raise NotMeasurable("policy versions are not numbers, so a lag cannot be counted")
    return value


def _generating(account: Account, scope: Scope) -> str | float | None:
    first: str | None = account.get("policy")
    last: str | None = account.get("policy_end")
    shares = dict(account.get("tokens_by_version") or ())
    match scope.freshness:
        case "start":
            return first
        case "end":
            return last or first
        case "worst":
            known = [version for version in (first, last, *shares) if version is not None]
            return min(known, key=_number) if known else None
        case "token_mean":
            total = sum(shares.values())
            if not total and last not in (None, first):
                raise NotMeasurable(f"the tokens by version of attempt {account.attempt_id} are not recorded")
            return sum(_number(v) * n for v, n in shares.items()) / total if total else first
