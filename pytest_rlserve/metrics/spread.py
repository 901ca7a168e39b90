"""How much one worker, trainer step or group stands out in the time it takes: where a loss sits, if anywhere."""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import places_of, reals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import origins
from pytest_rlserve.joins import join
from pytest_rlserve.metrics import WINDOW, Scope, Value, metric
from pytest_rlserve.metrics.residence import flow

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Numbers, Reals
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
        rows, places = capture.derive(_served)
        times = _spent(rows, stage) / 1e3
    else:
        ended = flow(capture, scope).ended
        times, places = ended.reals("ended_at") - ended.reals("dispatched_at"), _places(ended.column(_FIELDS[place]))
    told = ((name, times[some]) for name, some in places.items())
    found = {name: some[~np.isnan(some)].tolist() for name, some in told if not np.isnan(some).all()}
    if len(found) < 2:
        raise NotMeasurable(f"{len(found)} {place}s are known; a spread needs two")
    return found


def _served(capture: Capture) -> tuple[pa.Table, dict[str, Numbers]]:
    """Return what completed requests of attempts took, and by worker which of them it served."""
    joined = capture.derive(join)
    completed = joined.ledger.all.are("completed")[joined.owner[joined.order]]
    rows = capture.scalars.select(_COLUMNS).take(pa.array(joined.order[completed]))
    return rows, _places(origins(capture, rows["decode_worker_id"]))


def _places(names: pa.Array) -> dict[str, Numbers]:
    """Return where each name stands."""
    encoded = names.dictionary_encode()
    labels, there = encoded.dictionary.to_pylist(), np.asarray(pc.fill_null(encoded.indices, len(encoded.dictionary)))
    return {str(labels[place]): some for place, some in places_of(there).items() if place < len(labels)}


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
    whole = _mean([*chain.from_iterable(times.values())])
    if whole <= 0:
        raise NotMeasurable("nothing took any time")
    name, most = max(((name, _mean(some)) for name, some in times.items()), key=lambda one: (one[1], one[0]))
    return name, most / whole


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


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
