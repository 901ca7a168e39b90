"""How far behind the trainer the weights were that generated an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.columns import known
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins.versions import loaded_for, number, trained_on
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics.restarts import undone

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Reals
    from pytest_rlserve.ledger import Accounts
    from pytest_rlserve.metrics import Scope


def lags(capture: Capture, scope: Scope) -> tuple[Accounts, Reals]:
    """Return the accepted attempts and the lag of each: trained version minus generating version.

    The generating version is the attempt's own `policy`, else the one that was loaded where it began; never the
    version that was merely asked for. The trained version is the acceptance's own, else that of the step it was
    trained in, else the newest that the workers had been given when it was accepted. So the time that a finished
    attempt waits to be trained on makes it older. What a restart undid is left out.

    Raises:
        NotMeasurable: a version is unknown for some accepted attempt.
    """
    return capture.derive(_lags, scope.freshness)


def _lags(capture: Capture, freshness: str) -> tuple[Accounts, Reals]:
    accepted = capture.derive(ledger).attempts.that("accepted")
    accepted = accepted.some(~undone(capture, accepted.reals("decided_at")))
    if not accepted:
        raise NotMeasurable("no attempt was accepted")
    found = []
    columns = [accepted.values(name) for name in ("attempt_id", "policy", "policy_end", "tokens_by_version")]
    loaded = loaded_for(capture, accepted, ~known(accepted.column("policy")))
    told = zip(trained_on(capture, accepted), loaded, *columns, strict=True)
    for trained, began_with, name, *said in told:
        own = _generating(freshness, name, *said)
        generating = began_with if own is None else own
        if trained is None or generating is None:
            which = "trained" if trained is None else "generating"
            raise NotMeasurable(f"the {which} policy version of attempt {name} is not recorded")
        found.append(_number(trained) - _number(generating))
    return accepted, np.array(found)


def _number(version: str | float) -> float:
    value = number(version)
    if value is None:
        raise NotMeasurable("policy versions are not numbers, so a lag cannot be counted")
    return value


def _generating(
    freshness: str, attempt: str, first: str | None, last: str | None, tokens: list[tuple[str, int]] | None
) -> str | float | None:
    shares = dict(tokens or ())
    match freshness:
        case "end":
            return last or first
        case "worst":
            known = [version for version in (first, last, *shares) if version is not None]
            return min(known, key=_number) if known else None
        case "token_mean":
            total = sum(shares.values())
            if not total and last not in (None, first):
                raise NotMeasurable(f"the tokens by version of attempt {attempt} are not recorded")
            return sum(_number(v) * n for v, n in shares.items()) / total if total else first
    return first
