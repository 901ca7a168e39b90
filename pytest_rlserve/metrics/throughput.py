"""Throughput: what came out per second of the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pytest_rlserve.columns import reals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.freshness import lags
from pytest_rlserve.metrics.served import column, completed_rows, tokens_by_attempt
from pytest_rlserve.metrics.window import step_spans, window, within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture, Window
    from pytest_rlserve.ledger import Accounts

_ANY = "any policy version"
_OPEN = "seconds in which the update gate was open"


def _accepted(capture: Capture, window: Window) -> Accounts:
    attempts = capture.derive(ledger).attempts
    if not attempts.decided.any():
        raise NotMeasurable("no attempt was accepted or rejected: the source does not record decisions")
    accepted = attempts.that("accepted")
    if np.isnan(accepted.reals("decided_at")).any():
        raise NotMeasurable("the source does not record when attempts were accepted")
    return accepted.some(within(window, accepted.reals("decided_at")))


def _left_out(window: Window) -> str:
    shut = window.seconds - window.open_seconds
    gate = f"{shut:.2f} s in which the update gate was shut" if shut else ""
    return "; ".join(filter(None, (gate, _restarted(window))))


def _restarted(window: Window) -> str:
    undone = sum(end - start for start, end in window.excluded)
    return f"{undone:.2f} s that a restart undid or in which no process ran" if undone else ""


@metric(
    unit="trajectories/s",
    better="higher",
    needs={"attempt_events"},
    numerator="attempts accepted in the window",
    denominator=_OPEN,
    freshness=_ANY,
    phase=WINDOW,
)
def accepted_trajectory_throughput(capture: Capture, scope: Scope) -> Value:
    """Trajectories the trainer accepted, per second in which requests could be sent. The primary metric."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    accepted = len(_accepted(capture, span))
    return Value(accepted / span.open_seconds, accepted, _left_out(span))


@metric(
    unit="trajectories/s",
    better="higher",
    needs={"attempt_events"},
    numerator="attempts accepted in the window",
    denominator="seconds of the window, weight updates included",
    freshness=_ANY,
    phase=WINDOW,
)
def accepted_trajectory_wall_throughput(capture: Capture, scope: Scope) -> Value:
    """Trajectories the trainer accepted, per second on the clock."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    accepted = len(_accepted(capture, span))
    return Value(accepted / span.seconds, accepted, _restarted(span))


@metric(
    unit="trajectories/s",
    better="higher",
    needs={"attempt_events"},
    numerator="attempts accepted in the window and fresh",
    denominator=_OPEN,
    freshness="{fresh}",
    phase=WINDOW,
)
def fresh_trajectory_throughput(capture: Capture, scope: Scope) -> Value:
    """Accepted trajectories whose lag is within the policy's `max_lag`, per second with the gate open."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    inside = _accepted(capture, span)
    accepted, found = lags(capture, scope)
    fresh = int((np.isin(accepted.numbers, inside.numbers) & (found >= 0) & (found <= scope.max_lag)).sum())
    return Value(fresh / span.open_seconds, fresh, _left_out(span))


@metric(
    unit="tokens/s",
    better="higher",
    needs={"attempt_events", "requests"},
    numerator="output tokens of attempts accepted in the window",
    denominator=_OPEN,
    freshness=_ANY,
    phase=WINDOW,
)
def accepted_token_throughput(capture: Capture, scope: Scope) -> Value:
    """Output tokens the trainer could use, per second with the gate open."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    accepted = _accepted(capture, span)
    tokens = int(tokens_by_attempt(capture)[accepted.attempts].sum())
    return Value(tokens / span.open_seconds, len(accepted), _left_out(span))


@metric(
    unit="tokens/s",
    better="higher",
    needs={"attempt_events", "requests"},
    numerator="output tokens of requests completed in the window",
    denominator=_OPEN,
    freshness=_ANY,
    phase=WINDOW,
)
def output_token_throughput(capture: Capture, scope: Scope) -> Value:
    """Output tokens of completed requests, accepted or not, per second with the gate open."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    rows = completed_rows(capture).select(["ended_at", "output_tokens"])
    inside = rows.filter(pa.array(within(span, reals(rows["ended_at"]))))
    tokens = column(inside, "output_tokens").sum()
    return Value(float(tokens) / span.open_seconds, inside.num_rows, _left_out(span))


@metric(
    unit="requests/s",
    better="higher",
    needs={"attempt_events", "requests"},
    numerator="requests completed in the window",
    denominator=_OPEN,
    freshness=_ANY,
    phase=WINDOW,
)
def request_throughput(capture: Capture, scope: Scope) -> Value:
    """Completed requests per second with the gate open."""
    span = capture.derive(window, scope.skip_steps, scope.span)
    inside = int(within(span, reals(completed_rows(capture)["ended_at"])).sum())
    return Value(inside / span.open_seconds, inside, _left_out(span))


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from step_started to step_finished",
    denominator="1",
    freshness=_ANY,
    phase="whole trainer steps",
    statistics=("mean",),
)
def step_makespan(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long a trainer step took, from start to finish."""
    spans = step_spans(capture)[scope.skip_steps :]
    if not spans:
        raise NotMeasurable("no step has both a step_started and a step_finished record")
    return np.array([finish - start for start, finish in spans])


@metric(
    unit="s",
    better="lower",
    needs={"control_events", "attempt_events"},
    numerator="makespan minus the 90th percentile of the step's attempt ends",
    denominator="1",
    freshness=_ANY,
    phase="whole trainer steps",
    statistics=("mean",),
)
def tail_bubble(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long a step waited for its last tenth of attempts."""
    ends = capture.derive(ledger).attempts.reals("ended_at")
    ends = np.sort(ends[~np.isnan(ends)])
    bubbles = []
    for start, finish in step_spans(capture)[scope.skip_steps :]:
        inside = ends[np.searchsorted(ends, start) : np.searchsorted(ends, finish, side="right")]
        if len(inside) >= 10:
            bubbles.append(finish - float(np.quantile(inside, 0.9)))
    if not bubbles:
        raise NotMeasurable("no step has ten attempts that ended in it")
    return np.array(bubbles)
