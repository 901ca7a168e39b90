"""What is under test: the factors that captures declare, how they differ, and whether the evidence bears them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_rlserve.fleet import serving_workers
from pytest_rlserve.gate.identity import differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.baseline import Baseline

_OFF = (None, False, 0, "", "off", "none", "disabled")
_STRAY = 0.01
"""Share of requests that may meet one other in the router even where its queue is off: 1 of 821 does."""
_OTHER_ROUTERS = ("round", "random", "least", "direct")
"""Beginnings of the names of routers that do not look at KV blocks."""


def changed_factors(baseline: Baseline, captures: Sequence[Capture]) -> list[str]:
    """List the factors under test that differ from the baseline's; more than one makes the cause unclear."""
    found = [
        line for capture in captures for line in differences(baseline.document["factors"], capture.manifest.factors)
    ]
    return list(dict.fromkeys(found))


def contradicted(captures: Sequence[Capture]) -> list[str]:
    """List the declared factors that the evidence speaks against, with what it shows.

    What a capture does not show contradicts nothing: the workers of a capture without rows, or the router of rows
    without worker ids.
    """
    return [line for capture in captures for line in _contradicted(capture)]


def _contradicted(capture: Capture) -> list[str]:
    declared, name = capture.manifest.factors, capture.name
    found = []
    served, said = serving_workers(capture), declared.get("workers")
    restarts_known = capture.has("control_events")  # else one that came back under a new id counts twice
    if served and isinstance(said, int) and (served < said or (served > said and restarts_known)):
        found.append(f"{name} declares workers = {declared['workers']}, {served} served requests")
    predicted = capture.scalars["kv_hit_rate"].drop_null()
    router = str(declared.get("router") or "").lower()
    if router.startswith("kv") and served and not len(predicted):
        found.append(f"{name} declares router = {router!r}, no row has a KV router's kv_hit_rate")
    if router.startswith(_OTHER_ROUTERS) and len(predicted):
        found.append(f"{name} declares router = {router!r}, {len(predicted):,} rows have a KV router's kv_hit_rate")
    depths = capture.scalars["queue_depth"].drop_null().to_pylist()
    queued = sum(depth > 0 for depth in depths)
    if queued > _STRAY * len(depths) and declared.get("router_queue") in _OFF:
        found.append(f"{name} declares no router_queue, {queued:,} of {len(depths):,} requests met a queue")
    return found
