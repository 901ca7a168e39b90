"""The primary metric taken apart by Little's law, so that the parts multiply and add up exactly.

    accepted ÷ gate-open second = in flight ÷ residence × completion × acceptance

All four are taken over the throughput window. Residence is split into the stages an attempt passes through.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.window import window, within

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture, Window
    from pytest_rlserve.ledger import Account
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
_Attempt = tuple[str | None, str]
"""Run and id."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The attempts of a window."""

    window: Window
    open_seconds: float
    """Attempt-seconds open inside the window."""
    ended: list[Account]
    completed: int
    accepted: int


def flow(capture: Capture, scope: Scope) -> Flow:
    """Return the flow of attempts through the window.

    Raises:
        NotMeasurable: there is no window, or no attempt ended in it.
    """
    span = window(capture, scope.skip_steps, scope.span)
    attempts = capture.derive(ledger).attempts
    ended = [a for a in attempts if within(span, a.ended_at)]
    if not ended:
        raise NotMeasurable("no attempt ended in the window")
    if any(a.dispatched_at is None for a in attempts):
        raise NotMeasurable("the source does not record when attempts were dispatched")
    seconds = sum(
        span.overlap(a.dispatched_at or 0.0, span.end if a.ended_at is None else a.ended_at) for a in attempts
    )
    completed = sum(a.outcome == "completed" for a in ended)
    accepted = sum(a.acceptance == "accepted" and within(span, a.decided_at) for a in attempts)
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


def stage_seconds(capture: Capture, ended: list[Account]) -> dict[_Attempt, dict[str, float]]:
    """Return attempt → stage → seconds, for the stages that served rows and tool records show."""
    wanted = dict.fromkeys(account.attempt for account in ended)
    seconds: dict[_Attempt, dict[str, float]] = {one: dict.fromkeys(STAGES, 0.0) for one in wanted}
    names = ["prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms"]
    rows = capture.scalars.select(names).to_pylist()
    for number, owner in capture.derive(join).owners.items():
        if owner.attempt not in wanted:
            continue
        row, stages = rows[number], seconds[owner.attempt]
        total = row["total_time_ms"] or 0.0
        if owner.level == "request" and owner.outcome != "completed":
            stages["retries"] += total / 1e3
            continue
        stages["queue"] += (row["prefill_wait_time_ms"] or 0.0) / 1e3
        stages["prefill"] += (row["prefill_time_ms"] or 0.0) / 1e3
        stages["decode"] += max(total - (row["ttft_ms"] or 0.0), 0.0) / 1e3
    _add_tools(capture, ended, seconds)
    return seconds


def _add_tools(capture: Capture, ended: list[Account], seconds: dict[_Attempt, dict[str, float]]) -> None:
    spent: dict[str, float] = defaultdict(float)
    for row in capture.tools.select(["session_id", "duration_ms"]).to_pylist():
        if row["session_id"] and row["duration_ms"] is not None:
            spent[row["session_id"]] += row["duration_ms"] / 1e3
    for account in ended:
        seconds[account.attempt]["tools"] += spent.get(account.get("session_id") or "", 0.0)


def _stage(name: str, meaning: str) -> MetricFunction:
    def measured(capture: Capture, scope: Scope) -> Value:
        found = flow(capture, scope)
        if not capture.derive(join).owners:
            raise NotMeasurable("no served row belongs to an attempt, so its time cannot be split")
        by_attempt = stage_seconds(capture, found.ended)
        if name == "rest":
            known = sum(sum(stages.values()) for stages in by_attempt.values())
            return Value((found.open_seconds - known) / len(found.ended), len(found.ended))
        return Value(sum(stages[name] for stages in by_attempt.values()) / len(found.ended), len(found.ended))

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
