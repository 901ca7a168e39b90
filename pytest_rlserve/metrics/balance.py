"""How evenly the workers were loaded, and how long requests queued for them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.metrics import Scope, Value, metric
from pytest_rlserve.metrics.prompt_rows import prompt_rows
from pytest_rlserve.metrics.served import column, completed_rows
from pytest_rlserve.metrics.window import step_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

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
    seconds: dict[str, float] = defaultdict(float)
    rows = capture.scalars.select(["decode_worker_id", "total_time_ms"]).to_pylist()
    known = capture.derive(fleet)
    for row in rows:
        if row["decode_worker_id"] is not None and row["total_time_ms"] is not None:
            seconds[known.origin(str(row["decode_worker_id"]))] += row["total_time_ms"] / 1e3
    if len(seconds) < 2:
        raise NotMeasurable(f"rows name {len(seconds)} workers; balance needs two")
    most = max(seconds.values())
    if most <= 0:
        raise NotMeasurable("no request took any time")
    return Value(most * len(seconds) / sum(seconds.values()), len(seconds))


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


Table = list[dict[str, Any]]
"""Rows for a report: one dictionary of columns each."""


def by_worker(capture: Capture, scope: Scope) -> Table:
    """Return requests, tokens, queue and KV reuse of each worker; a restarted worker is one.

    Raises:
        NotMeasurable: no request counts.
    """
    known = capture.derive(fleet)
    return _table(capture, scope, "worker", lambda row: known.origin(row["decode_worker_id"]))


def by_step(capture: Capture, scope: Scope) -> Table:
    """Return the same for each trainer step, by when requests were received.

    Raises:
        NotMeasurable: no request counts.
    """
    spans = step_spans(capture)

    def step(row: dict[str, Any]) -> Hashable:
        return next((place for place, (a, b) in enumerate(spans) if a <= row["received_at"] <= b), None)

    return _table(capture, scope, "step", step)


_COLUMNS = ("decode_worker_id", "received_at", "output_tokens", "queue_depth", "total_time_ms")


def _table(capture: Capture, scope: Scope, name: str, key: Callable[[dict[str, Any]], Hashable]) -> Table:
    """Group the requests that the KV metrics speak of; what a group does not know is None."""
    rows = prompt_rows(capture, scope)
    found = capture.scalars.select(list(_COLUMNS)).take(rows.numbers).to_pylist()
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, row in enumerate(found):
        if row["decode_worker_id"] is not None and row["received_at"] is not None:
            row["decode_worker_id"] = str(row["decode_worker_id"])
            groups[key(row)].append(place)
    table = []
    for group, places in sorted(groups.items(), key=lambda item: (item[0] is None, item[0])):
        some = [found[place] for place in places]
        tokens = int(rows.tokens[places].sum())

        def share(values: NDArray[np.int64], places: list[int] = places, tokens: int = tokens) -> float | None:
            return float(values[places].sum() / tokens) if tokens and (values[places] >= 0).all() else None

        table.append(
            {
                name: group,
                "requests": len(some),
                "prompt_tokens": tokens,
                "output_tokens": _sum(row["output_tokens"] for row in some),
                "serving_seconds": _sum((row["total_time_ms"] for row in some), scale=1e-3),
                "queue_depth": _mean([row["queue_depth"] for row in some]),
                "kv_reuse_fraction": share(rows.reused),
                "kv_predicted_reuse_fraction": share(rows.predictions),
                "kv_reuse_ceiling": share(rows.fleet),
                "kv_worker_ceiling": share(rows.worker),
            }
        )
    return table


def _sum(values: Iterable[float | None], scale: float = 1) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) * scale if known else None


def _mean(values: list[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / sum(value is not None for value in values)
