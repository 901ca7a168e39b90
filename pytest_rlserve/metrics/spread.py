"""How much one worker, trainer step or group stands out in the time it takes: where a loss sits, if anywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import codes, groups, known, reals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import origins
from pytest_rlserve.joins import join
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.residence import flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Reals
    from pytest_rlserve.metrics import MetricFunction

Place = Literal["worker", "step", "group"]
Times = dict[str, list[float]]

SERVED = ("queue", "prefill", "decode")
"""Stages of residence that a worker answers for."""
_COLUMNS = ["decode_worker_id", "prefill_time_ms", "prefill_wait_time_ms", "ttft_ms", "total_time_ms"]
_FIELDS = {"step": "step", "group": "group_id"}


def times_at(capture: Capture, scope: Scope, place: Place, stage: str = "") -> Times:
    """Return place → the times spent there: a stage of completed requests by worker, residence by step or group.

    Raises:
        NotMeasurable: fewer than two places are known.
    """
    if place == "worker":
        joined = capture.derive(join)
        completed = joined.ledger.all.are("completed")[joined.owner[joined.order]]
        rows = capture.scalars.select(_COLUMNS).take(pa.array(joined.order[completed]))
        names, times = origins(capture, rows["decode_worker_id"]), _spent(rows, stage) / 1e3
    else:
        ended = flow(capture, scope).ended
        names, times = ended.column(_FIELDS[place]), ended.reals("ended_at") - ended.reals("dispatched_at")
    there = known(names) & ~np.isnan(times)
    names, times = names.filter(pa.array(there)), times[there]
    labels = names.to_pylist()
    found = {str(labels[places[0]]): times[places].tolist() for places in groups(codes(names))}
    if len(found) < 2:
        raise NotMeasurable(f"{len(found)} {place}s are known; a spread needs two")
    return found


def _spent(rows: pa.Table, stage: str) -> Reals:
    """Return the milliseconds that each request spent in a stage."""
    if stage == "decode":
        return reals(rows["total_time_ms"]) - reals(pc.fill_null(rows["ttft_ms"], 0.0))
    return reals(rows["prefill_wait_time_ms" if stage == "queue" else "prefill_time_ms"])


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
