"""What a weight update costs, phase by phase, and how long the cache takes to be useful again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.fleet import fleet
from pytest_rlserve.metrics import Scope, metric
from pytest_rlserve.metrics.prompt_rows import prompt_rows
from pytest_rlserve.metrics.window import shut_spans
from pytest_rlserve.prompts import prompts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.lifecycle import Passage

_ANY = "any policy version"
_ALL = "whole capture"
_WARM = 0.9
"""Share of the steady efficiency at which the cache counts as warm."""
_TAKEN_TOGETHER = 20
"""Requests over which efficiency is taken while it rises; after an update there must be twice as many."""


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from gate_closed to gate_opened of each update",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean",),
)
def update_downtime(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long an update kept the gate shut, so that no request could be sent."""
    times = [end - start for start, end in shut_spans(capture) if math.isfinite(end)]
    if not times:
        raise NotMeasurable("no update has both a gate_closed and a gate_opened record")
    return np.array(times)


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from transfer_started to transfer_finished, of each worker in each update",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean",),
)
def transfer_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long the transfer of new weights to a worker took."""
    spans = [(_first(one, "transfer_started"), _last(one, "transfer_finished")) for one in _passages(capture)]
    return _lengths(spans, "both transfer_started and transfer_finished")


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from the end of the transfer to the cache reset, of each worker in each update",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean",),
)
def reset_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long after the transfer a worker's cache was empty; where that takes a restart, the restart."""
    spans = [(one.transferred, _last(one, "cache_reset")) for one in _passages(capture)]
    return _lengths(spans, "both a transfer and a cache_reset")


@metric(
    unit="s",
    better="lower",
    needs={"control_events"},
    numerator="time from version to verified, else to ready, of each worker in each update",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean",),
)
def verify_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long it took to see that a worker serves its new version."""
    spans = [(_first(one, "version"), _last(one, "verified") or _last(one, "ready")) for one in _passages(capture)]
    return _lengths(spans, "both version and verified or ready")


def _passages(capture: Capture) -> Iterator[Passage]:
    """Yield the way of each worker through each update; the fleet's where no worker is named."""
    for update in capture.derive(fleet).finished:
        yield from update.workers or [update.everyone]


def _first(passage: Passage, name: str) -> float | None:
    return next(iter(passage.times(name)), None)


def _last(passage: Passage, name: str) -> float | None:
    return max(passage.times(name), default=None)


def _lengths(spans: list[tuple[float | None, float | None]], what: str) -> NDArray[np.float64]:
    """Return the lengths of spans whose ends are known; one that ends before it begins is a check's to report."""
    known = [end - start for start, end in spans if start is not None and end is not None and end >= start]
    if not known:
        raise NotMeasurable(f"no worker of an update has {what} records")
    return np.array(known)


@metric(
    unit="s",
    better="lower",
    needs={"control_events", "requests"},
    numerator="time from the end of each update until KV reuse efficiency is back at 90 % of its steady value",
    denominator="1",
    freshness=_ANY,
    phase=_ALL,
    statistics=("mean",),
    fleet=True,
    hashes=True,
)
def warmup_time(capture: Capture, scope: Scope) -> NDArray[np.float64]:
    """How long after an update the caches are of as much use as they get.

    Efficiency is taken over 20 completed requests in a row; its steady value is that of the second half of the
    requests between this update and the next one. Updates with fewer than 40 requests after them are left out.
    """
    rows = prompt_rows(capture, scope).engine().hashed()
    received, reused, possible = capture.derive(prompts).received[rows.numbers], rows.reused, rows.fleet
    order = np.argsort(received, kind="stable")
    received, reused, possible = received[order], reused[order], possible[order]
    updates = capture.derive(fleet).finished
    times = []
    for place, update in enumerate(updates):
        until = updates[place + 1].start if place + 1 < len(updates) else math.inf
        some = slice(*np.searchsorted(received, (update.end, until)))
        since = _warm_since(received[some], reused[some], possible[some])
        if since is not None:
            times.append(since - update.end)
    if not times:
        raise NotMeasurable(f"no update is followed by {2 * _TAKEN_TOGETHER} requests that could reuse anything")
    return np.array(times)


def _warm_since(received: NDArray[np.float64], reused: NDArray[np.int64], possible: NDArray[np.int64]) -> float | None:
    """Return the receipt of the request from which on efficiency is back; None where that cannot be told."""
    half = len(received) // 2
    if half < _TAKEN_TOGETHER or possible[half:].sum() <= 0:
        return None
    steady = reused[half:].sum() / possible[half:].sum()
    ones = np.ones(_TAKEN_TOGETHER, dtype=np.int64)
    taken, there = np.convolve(reused, ones, mode="valid"), np.convolve(possible, ones, mode="valid")
    warm = np.flatnonzero((there > 0) & (taken >= _WARM * steady * there))
    return float(received[warm[0]]) if len(warm) else None
