"""Latency over completed requests, and beside it the share of all dispatched requests that were served in time.

A failed request ends early and a timed-out one not at all, so a tail over completed requests improves when
serving gets worse; `served_within_budget_fraction` does not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.columns import reals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Scope, Value, Values, metric
from pytest_rlserve.metrics.served import column, completed_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

_ALL = "whole capture"
_ANY = "any policy version"
_SPREAD = ("p50", "p95", "p99")
_COLUMNS = {"ttft": "ttft_ms", "itl": "avg_itl_ms", "request_latency": "total_time_ms"}


def _seconds(capture: Capture, name: str, *, tokens: int = 0) -> Values:
    """Return a column of milliseconds over completed requests, in seconds, and say which joined rows are left out."""
    try:
        rows = completed_rows(capture).select([name, "output_tokens"])
    except NotMeasurable as error:
        known = capture.scalars.num_rows - capture.scalars[name].null_count
        if known == capture.scalars.num_rows:
            raise
        raise NotMeasurable(f"{name} is there for {known:,} of {capture.scalars.num_rows:,} rows; {error}") from None
    several = rows.filter(pc.fill_null(pc.greater_equal(rows["output_tokens"], tokens), False)) if tokens else rows
    if not several.num_rows:
        raise NotMeasurable(f"no completed request has {tokens} output tokens")
    return Values(column(several, name) / 1e3, _left_out(capture))


def _left_out(capture: Capture) -> str:
    """Say how many rows of requests that did not complete were left out: they would make a tail look short."""
    joined = capture.derive(join)
    owners = joined.ledger.all.some(joined.owner[joined.order])
    ended = {outcome: int(owners.are(outcome).sum()) for outcome in ("canceled", "failed", "open")}
    parts = [f"{count:,} {outcome}" for outcome, count in ended.items() if count]
    return f"rows of requests that did not complete: {', '.join(parts)}" if parts else ""


@metric(
    unit="s",
    better="lower",
    needs={"requests"},
    numerator="time from receipt to the first token, of each completed request",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def ttft(capture: Capture, scope: Scope) -> Values:
    """Time to first token as Dynamo's frontend measured it (`ttft_ms`): waiting and prefill."""
    return _seconds(capture, "ttft_ms")


@metric(
    unit="s",
    better="lower",
    needs={"requests"},
    numerator="mean time between output tokens, of each completed request with two tokens or more",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def itl(capture: Capture, scope: Scope) -> Values:
    """Inter-token latency (`avg_itl_ms`): (total − ttft) ÷ (output tokens − 1)."""
    return _seconds(capture, "avg_itl_ms", tokens=2)


@metric(
    unit="s",
    better="lower",
    needs={"requests"},
    numerator="time from receipt to the last token, of each completed request",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def request_latency(capture: Capture, scope: Scope) -> Values:
    """Whole time of a request as Dynamo's frontend measured it (`total_time_ms`)."""
    return _seconds(capture, "total_time_ms")


@metric(
    unit="s",
    better="lower",
    needs={"requests"},
    numerator="time from receipt to the start of prefill, of each completed request",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def prefill_wait(capture: Capture, scope: Scope) -> Values:
    """Time before prefill began (`prefill_wait_time_ms`), the router's queue included."""
    return _seconds(capture, "prefill_wait_time_ms")


@metric(
    unit="s",
    better="lower",
    needs={"requests"},
    numerator="time of the prefill, of each completed request",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def prefill_time(capture: Capture, scope: Scope) -> Values:
    """Time from the start of prefill to the first token (`prefill_time_ms`)."""
    return _seconds(capture, "prefill_time_ms")


@metric(
    unit="s",
    better="lower",
    needs={"attempt_events"},
    numerator="time from dispatched to completed, of each completed attempt",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def trajectory_latency(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Whole time of an attempt on the framework's clock: all its turns, tools and retries of requests."""
    completed = capture.derive(ledger).attempts.that("completed")
    times = completed.reals("ended_at") - completed.reals("dispatched_at")
    times = times[~np.isnan(times)]
    if not len(times):
        raise NotMeasurable("no attempt completed")
    return times


@metric(
    unit="s",
    better="lower",
    needs={"tools"},
    numerator="time of each finished tool call",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=_SPREAD,
)
def tool_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Time of tool calls, from Dynamo's tool records."""
    times = capture.tools["duration_ms"].drop_null().to_numpy() / 1e3
    if not len(times):
        raise NotMeasurable("no tool record carries a duration")
    return np.asarray(times, dtype=np.float64)


@metric(
    unit="fraction",
    better="lower",
    needs={"attempt_events", "requests"},
    numerator="seconds that completed attempts' requests spent in serving",
    denominator="seconds of completed attempts, from dispatched to completed",
    freshness=_ANY,
    phase=_ALL,
)
def serving_share(capture: Capture, scope: Scope) -> Value:
    """Share of a completed attempt's time that is spent in serving; the rest is tools, environment and framework."""
    joined, completed = capture.derive(join), capture.derive(ledger).attempts.that("completed")
    times = completed.reals("ended_at") - completed.reals("dispatched_at")
    pairs = zip(completed.attempts.tolist(), times.tolist(), strict=True)
    attempts = {attempt: time for attempt, time in pairs if not math.isnan(time)}
    owners = joined.ledger.all.attempts[joined.owner[joined.order]]
    spent = reals(capture.scalars["total_time_ms"])[joined.order][np.isin(owners, list(attempts))]
    spent = spent[~np.isnan(spent)]
    whole = sum(attempts.values())
    if not len(spent) or whole <= 0:
        raise NotMeasurable("no completed attempt has both its own times and rows with total_time_ms")
    return Value(sum(spent.tolist()) / 1e3 / whole, len(attempts))


@metric(
    unit="fraction",
    better="higher",
    needs={"requests"},
    numerator="requests completed within every latency budget of the policy",
    denominator="dispatched requests; rows where the framework recorded none",
    freshness=_ANY,
    phase=_ALL,
    budgets=tuple(_COLUMNS),
)
def served_within_budget_fraction(capture: Capture, scope: Scope) -> Value:
    """Share of dispatched requests that completed within the policy's budgets, so that timeouts count against it."""
    good = _within_budgets(capture, scope)
    dispatched = len(capture.derive(ledger).requests) or capture.scalars.num_rows
    return Value(int(good.sum()) / dispatched, dispatched)


@metric(
    unit="requests/s",
    better="higher",
    needs={"requests"},
    numerator="requests completed within every latency budget of the policy",
    denominator="seconds from the first receipt to the last end of a request",
    freshness=_ANY,
    phase=_ALL,
    budgets=tuple(_COLUMNS),
)
def request_goodput(capture: Capture, scope: Scope) -> Value:
    """Requests served within the policy's budgets per second: the primary metric of replays."""
    good = int(_within_budgets(capture, scope).sum())
    received, ended = capture.scalars["received_at"].drop_null(), capture.scalars["ended_at"].drop_null()
    if not len(received) or not len(ended):
        raise NotMeasurable("rows carry no request_received_ms or event_time_unix_ms")
    seconds = pc.max(ended).as_py() - pc.min(received).as_py()
    if seconds <= 0:
        raise NotMeasurable("the capture spans no time")
    return Value(good / seconds, good)


def _within_budgets(capture: Capture, scope: Scope) -> NDArray[np.bool_]:
    """Tell for each completed request whether it kept every budget; an unknown time keeps none."""
    budgets = {name: limit for name, limit in scope.budgets.items() if name in _COLUMNS}
    if not budgets:
        raise NotMeasurable("the policy sets no latency budget ([limits] on ttft, itl or request_latency)")
    accounts = capture.derive(ledger)
    dispatched = accounts.requests or accounts.attempts
    if dispatched and not dispatched.are("completed").any():
        return np.zeros(0, dtype=bool)  # when all time out, none was served in time: that is known, not absent
    rows = completed_rows(capture)
    good = np.ones(rows.num_rows, dtype=bool)
    for name, limit in budgets.items():
        within = pc.less_equal(rows[_COLUMNS[name]], limit * 1e3)
        unknown = name == "itl"  # a one-token answer has no inter-token time to exceed
        good &= np.asarray(pc.fill_null(within, unknown))
    return good
