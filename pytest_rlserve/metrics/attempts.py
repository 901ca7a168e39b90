"""What became of the attempts, as shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import Counts, ledger
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.freshness import lags
from pytest_rlserve.metrics.restarts import undone
from pytest_rlserve.metrics.served import tokens_by_attempt

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

_ALL = "whole capture"
_ANY = "any policy version"


def _counts(capture: Capture) -> Counts:
    counts = capture.derive(ledger).counts("attempt")
    if counts is None:
        instead = "single requests" if capture.derive(ledger).requests else "whole groups"
        raise NotMeasurable(f"needs attempt records; the capture has only {instead}")
    return counts


def _share(part: int | None, whole: int | None, what: str) -> Value:
    if part is None or whole is None:
        raise NotMeasurable(f"no source records {what} attempts and what became of them")
    if not whole:
        raise NotMeasurable(f"there are no {what} attempts")
    return Value(part / whole, whole)


@metric(
    unit="fraction",
    better="higher",
    needs={"attempt_events"},
    numerator="completed attempts",
    denominator="dispatched attempts",
    freshness=_ANY,
    phase=_ALL,
)
def completion_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of dispatched attempts that completed."""
    counts = _counts(capture)
    return _share(counts.completed, counts.dispatched, "dispatched")


@metric(
    unit="fraction",
    better="higher",
    needs={"attempt_events"},
    numerator="accepted attempts",
    denominator="completed attempts",
    freshness=_ANY,
    phase=_ALL,
)
def acceptance_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of completed attempts that the trainer accepted. It is the trainer's and the policy's, not serving's."""
    counts = _counts(capture)
    return _share(counts.accepted, counts.completed, "completed")


@metric(
    unit="fraction",
    better="higher",
    needs={"attempt_events"},
    numerator="accepted attempts that are fresh",
    denominator="accepted attempts",
    freshness="{fresh}",
    phase=_ALL,
)
def fresh_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of accepted attempts whose lag is within the policy's `max_lag`; a negative lag is not fresh."""
    _, found = lags(capture, scope)
    return Value(int(((found >= 0) & (found <= scope.max_lag)).sum()) / len(found), len(found))


@metric(
    unit="fraction",
    better="lower",
    needs={"attempt_events"},
    numerator="attempts that retry an earlier one",
    denominator="dispatched attempts",
    freshness=_ANY,
    phase=_ALL,
)
def retry_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of dispatched attempts that retry an earlier one."""
    counts = _counts(capture)
    return _share(counts.retried, counts.dispatched, "dispatched")


@metric(
    unit="fraction",
    better="lower",
    needs={"attempt_events"},
    numerator="canceled attempts",
    denominator="dispatched attempts",
    freshness=_ANY,
    phase=_ALL,
)
def canceled_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of dispatched attempts that the framework gave up."""
    counts = _counts(capture)
    return _share(counts.canceled, counts.dispatched, "dispatched")


@metric(
    unit="fraction",
    better="lower",
    needs={"attempt_events"},
    numerator="failed attempts",
    denominator="dispatched attempts",
    freshness=_ANY,
    phase=_ALL,
)
def failed_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of dispatched attempts that failed."""
    counts = _counts(capture)
    return _share(counts.failed, counts.dispatched, "dispatched")


@metric(
    unit="fraction",
    better="lower",
    needs={"attempt_events", "requests"},
    numerator="output tokens of attempts that were not accepted",
    denominator="output tokens of all attempts",
    freshness=_ANY,
    phase=_ALL,
)
def wasted_token_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of output tokens of attempts that the trainer did not accept, or accepted in vain before a restart."""
    counts = _counts(capture)
    _share(counts.accepted, counts.completed, "completed")
    produced = tokens_by_attempt(capture)
    attempts = capture.derive(ledger).attempts
    whole = int(produced[attempts.attempts].sum())
    if not whole:
        raise NotMeasurable("no output token is known of any attempt")
    accepted = attempts.that("accepted")
    accepted = accepted.some(~undone(capture, accepted.reals("decided_at")))
    used = int(produced[accepted.attempts].sum())
    return Value((whole - used) / whole, len(attempts))
