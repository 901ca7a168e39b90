"""How evenly the workers were loaded, and how long requests queued for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.columns import codes, reals, totals
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import origins
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.served import column, completed_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture

_ANY = "any policy version"
_ALL = "whole capture"


@metric(
    unit="times the mean",
    better="lower",
    needs={"requests"},
    numerator="serving seconds of the busiest worker",
    denominator="mean serving seconds of all workers",
    freshness=_ANY,
    phase=_ALL,
    fleet=True,
)
def worker_load_imbalance(capture: Capture, scope: Scope) -> Value:
    """How much busier the busiest worker was than the mean of all; 1 is even.

    Serving time is the sum over requests from receipt to end, canceled and failed ones too. A worker that restarted
    under a new id is one worker.
    """
    rows = capture.scalars.select(["decode_worker_id", "total_time_ms"]).drop_null()
    workers = codes(origins(capture, rows["decode_worker_id"]))
    seconds = totals(workers, reals(rows["total_time_ms"]) / 1e3).tolist()
    if len(seconds) < 2:
        raise NotMeasurable(f"rows name {len(seconds)} workers; balance needs two")
    most = max(seconds)
    if most <= 0:
        raise NotMeasurable("no request took any time")
    return Value(most * len(seconds) / sum(seconds), len(seconds))


@metric(
    unit="requests",
    better="lower",
    needs={"requests"},
    numerator="requests waiting in the router's queue when each completed request was routed",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean", "p95"),
)
def queue_depth(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """Length of the router's queue as each request met it (`queue_depth`); 0 where the queue is switched off."""
    return column(completed_rows(capture), "queue_depth")
