"""How much one worker, trainer step or group stands out in the time it takes: where a loss sits, if anywhere."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.joins import join
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.residence import flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.metrics import MetricFunction

Place = Literal["worker", "step", "group"]
Times = dict[str, list[float]]

_SPENT: Mapping[str, Callable[[dict[str, Any]], float | None]] = {
    "queue": lambda row: row["prefill_wait_time_ms"],
    "prefill": lambda row: row["prefill_time_ms"],
    "decode": lambda row: None if row["total_time_ms"] is None else row["total_time_ms"] - (row["ttft_ms"] or 0.0),
}
SERVED = tuple(_SPENT)
"""Stages of residence that a worker answers for."""
_FIELDS = {"step": "step", "group": "group_id"}


def times_at(capture: Capture, scope: Scope, place: Place, stage: str = "") -> Times:
    """Return place → the times spent there: a stage of completed requests by worker, residence by step or group.

    Raises:
        NotMeasurable: fewer than two places are known.
    """
    found: Times = defaultdict(list)
    if place == "worker":
        names = ["decode_worker_id", "prefill_time_ms", "prefill_wait_time_ms", "ttft_ms", "total_time_ms"]
        rows, known = capture.scalars.select(names).to_pylist(), capture.derive(fleet)
        for number, owner in capture.derive(join).owners.items():
            row = rows[number]
            spent = _SPENT[stage](row)
            if owner.outcome == "completed" and row["decode_worker_id"] is not None and spent is not None:
                found[known.origin(str(row["decode_worker_id"]))].append(spent / 1e3)
    else:
        for attempt in flow(capture, scope).ended:
            where = attempt.get(_FIELDS[place])
            if where is not None and attempt.ended_at is not None and attempt.dispatched_at is not None:
                found[str(where)].append(attempt.ended_at - attempt.dispatched_at)
    if len(found) < 2:
        raise NotMeasurable(f"{len(found)} {place}s are known; a spread needs two")
    return found


def slowest(times: Times) -> tuple[str, float]:
    """Return the place with the largest mean time, and how many times the mean of all that is.

    Raises:
        NotMeasurable: nothing took any time.
    """
    whole = _mean(one for some in times.values() for one in some)
    if whole <= 0:
        raise NotMeasurable("nothing took any time")
    name, most = max(((name, _mean(some)) for name, some in times.items()), key=lambda one: (one[1], one[0]))
    return name, most / whole


def _mean(values: Iterable[float]) -> float:
    some = list(values)
    return math.fsum(some) / len(some)


def _spread(name: str, doc: str, *, of: str, place: Place, stage: str = "") -> MetricFunction:
    def measured(capture: Capture, scope: Scope) -> Value:
        times = times_at(capture, scope, place, stage)
        return Value(slowest(times)[1], sum(map(len, times.values())))

    measured.__name__, measured.__doc__ = name, f"{doc}; 1 is even."
    return metric(
        unit="times the mean",
        better="lower",
        needs={"attempt_events", "requests"} if place == "worker" else {"attempt_events"},
        numerator=f"mean {of} at the slowest {place}",
        denominator=f"mean {of}",
        freshness="any policy version",
        phase="whole capture" if place == "worker" else WINDOW,
        fleet=place == "worker",
    )(measured)


for _stage in SERVED:
    _spread(
        f"{_stage}_worker_spread",
        f"How much longer {_stage} took on the slowest worker than on all",
        of=f"seconds that completed requests of attempts spent in {_stage}",
        place="worker",
        stage=_stage,
    )
for _place in ("step", "group"):
    _spread(
        f"residence_{_place}_spread",
        f"How much longer attempts of the slowest {_place} stayed open than all",
        of="seconds that attempts ended in the window were open",
        place=_place,
    )
