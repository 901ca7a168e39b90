"""The primary metric taken apart by Little's law, so that the parts multiply and add up exactly.

    accepted ÷ gate-open second = in flight ÷ residence × completion × acceptance

All four are taken over the throughput window. Residence is split into the stages an attempt passes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.columns import codes, given, known, mask, reals, totals, whole
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.window import window, within

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture, Window
    from pytest_rlserve.columns import Mask, Reals
    from pytest_rlserve.ledger import Accounts
    from pytest_rlserve.metrics import MetricFunction

STAGES = {
    "queue": "waiting before prefill, the router's queue included",
    "prefill": "prefill",
    "decode": "decoding",
    "retries": "requests of the attempt that were canceled or failed",
    "tools": "tool calls that the trace records",
    "rest": "environment, framework, and whatever no record covers",
}
_ANY = "any policy version"


@dataclass(frozen=True, slots=True)
class Flow:
    """The attempts of a window."""

    window: Window
    open_seconds: float
    """Attempt-seconds open inside the window."""
    ended: Accounts
    completed: int
    accepted: int


def flow(capture: Capture, scope: Scope) -> Flow:
    """Return the flow of attempts through the window.

    Raises:
        NotMeasurable: there is no window, or no attempt ended in it.
    """
    return capture.derive(_flow, scope.skip_steps, scope.span)


def _flow(capture: Capture, skip_steps: int, span_given: tuple[float, float] | None) -> Flow:
    span = capture.derive(window, skip_steps, span_given)
    attempts = capture.derive(ledger).attempts
    ends, starts = attempts.reals("ended_at"), attempts.reals("dispatched_at")
    ended = attempts.some(within(span, ends))
    if not ended:
        raise NotMeasurable("no attempt ended in the window")
    if np.isnan(starts).any():
        raise NotMeasurable("the source does not record when attempts were dispatched")
    seconds = sum(span.overlap(starts, np.where(np.isnan(ends), span.end, ends)).tolist())
    completed = int(ended.are("completed").sum())
    accepted = int(within(span, attempts.that("accepted").reals("decided_at")).sum())
    if not completed or not accepted:
        raise NotMeasurable("no attempt was completed and accepted in the window")
    return Flow(span, seconds, ended, completed, accepted)


@metric(
    unit="attempts",
    better="higher",
    needs={"attempt_events"},
    numerator="attempt-seconds open in the window",
    denominator="seconds in which the update gate was open",
    freshness=_ANY,
    phase=WINDOW,
)
def attempts_in_flight(capture: Capture, scope: Scope) -> Value:
    """How many attempts were open at a time. It is the framework's to decide."""
    found = flow(capture, scope)
    return Value(found.open_seconds / found.window.open_seconds, len(found.ended))


@metric(
    unit="s",
    better="lower",
    needs={"attempt_events"},
    numerator="attempt-seconds open in the window",
    denominator="attempts that ended in the window",
    freshness=_ANY,
    phase=WINDOW,
)
def attempt_residence(capture: Capture, scope: Scope) -> Value:
    """How long an attempt stayed open, by Little's law."""
    found = flow(capture, scope)
    return Value(found.open_seconds / len(found.ended), len(found.ended))


@metric(
    unit="fraction",
    better="higher",
    needs={"attempt_events"},
    numerator="attempts completed in the window",
    denominator="attempts that ended in the window",
    freshness=_ANY,
    phase=WINDOW,
)
def window_completion_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of the attempts ended in the window that completed."""
    found = flow(capture, scope)
    return Value(found.completed / len(found.ended), len(found.ended))


@metric(
    unit="fraction",
    better="higher",
    needs={"attempt_events"},
    numerator="attempts accepted in the window",
    denominator="attempts completed in the window",
    freshness=_ANY,
    phase=WINDOW,
)
def window_acceptance_fraction(capture: Capture, scope: Scope) -> Value:
    """Attempts accepted in the window by those completed in it. It is the trainer's, not serving's."""
    found = flow(capture, scope)
    return Value(found.accepted / found.completed, found.completed)


def stage_seconds(capture: Capture, skip_steps: int, span: tuple[float, float] | None) -> dict[str, Reals]:
    """Return stage → the seconds of each attempt that ended in the window, as served rows and tool records show.

    Ask for it through ``capture.derive(stage_seconds, …)``.
    """
    joined, ended = capture.derive(join), capture.derive(_flow, skip_steps, span).ended
    every = joined.ledger.all
    own = codes(ended.attempts)  # an attempt id that was dispatched again is one attempt
    place = np.full(int(every.attempts.max()) + 1, -1)
    place[ended.attempts] = own
    rows = joined.order[place[every.attempts[joined.owner[joined.order]]] >= 0]
    owners = every.some(joined.owner[rows])
    mine = place[owners.attempts]
    names = ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms")
    wait, prefill, ttft, total = (reals(pc.fill_null(capture.scalars[name], 0.0))[rows] for name in names)
    in_vain = ~owners.are("completed") & mask(pc.equal(owners.column("level"), "request"))

    def spent(milliseconds: Reals, some: Mask) -> Reals:
        return totals(mine[some], milliseconds[some] / 1e3, int(own.max()) + 1)

    return {
        "queue": spent(wait, ~in_vain),
        "prefill": spent(prefill, ~in_vain),
        "decode": spent(np.maximum(total - ttft, 0.0), ~in_vain),
        "retries": spent(total, in_vain),
        "tools": totals(own, _in_tools(capture, ended)),
    }


def _in_tools(capture: Capture, ended: Accounts) -> Reals:
    """Return the seconds that the tool calls of each attempt's session took."""
    calls = capture.tools.select(["session_id", "duration_ms"]).drop_null()
    sessions = pc.dictionary_encode(whole(calls["session_id"]))
    seconds = totals(sessions.indices.to_numpy(), reals(calls["duration_ms"]) / 1e3, 1)
    place = pc.index_in(given(ended.column("session_id")), value_set=sessions.dictionary)
    return np.where(known(place), seconds[pc.fill_null(place, 0)], 0.0)


def _stage(name: str, meaning: str) -> MetricFunction:
    def measured(capture: Capture, scope: Scope) -> Value:
        found = flow(capture, scope)
        if not capture.derive(join).joined:
            raise NotMeasurable("no served row belongs to an attempt, so its time cannot be split")
        stages = capture.derive(stage_seconds, scope.skip_steps, scope.span)
        if name == "rest":
            spent = np.sum(list(stages.values()), axis=0)
            seconds = found.open_seconds - sum(spent.tolist())
        else:
            seconds = sum(stages[name].tolist())
        return Value(seconds / len(found.ended), len(found.ended))

    measured.__name__ = f"residence_{name}"
    measured.__doc__ = f"The part of an attempt's residence that went into {meaning}."
    return metric(
        unit="s",
        better="lower",
        needs={"attempt_events", "requests"},
        numerator=f"seconds that attempts ended in the window spent in {meaning}",
        denominator="attempts that ended in the window",
        freshness=_ANY,
        phase=WINDOW,
    )(measured)


for _name, _meaning in STAGES.items():
    _stage(_name, _meaning)
