"""Attempt events made ready to be folded: their runs filled in, their requests named, in the order of time."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.ledger.account import Key

_ORDER = {
    event: rank
    for rank, event in enumerate(("retried", "dispatched", "completed", "canceled", "failed", "accepted", "rejected"))
}


def events_of(capture: Capture) -> list[dict[str, Any]]:
    """Return the events of a capture's attempts and requests in order; what is told of whole groups is none."""
    events = [event for event in capture.attempt_events.to_pylist() if event["level"] != "group"]
    _complete_runs(events)
    _name_requests(events)
    _sort(events)
    return events


def key_of(event: Mapping[str, Any]) -> Key:
    """Say which account an event speaks of."""
    return event["level"], event["run"], event["attempt_id"], event["request"]


def _complete_runs(events: list[dict[str, Any]]) -> None:
    """Fill in the run where only some events of an attempt name it, as long as they name one."""
    runs: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event["run"] is not None:
            runs[event["attempt_id"]].add(event["run"])
    for event in events:
        if event["run"] is None and len(runs[event["attempt_id"]]) == 1:
            (event["run"],) = runs[event["attempt_id"]]


def _sort(events: list[dict[str, Any]]) -> None:
    """Sort by time. An event without one takes that of the first event that has to come after it, else it is last."""
    timed: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    untimed = {key_of(event) for event in events if event["t"] is None}
    for event in events:
        if event["t"] is not None and (key := key_of(event)) in untimed:
            timed[key].append((_ORDER[event["event"]], event["t"]))

    def instant(event: dict[str, Any]) -> float:
        if event["t"] is not None:
            return float(event["t"])
        rank = _ORDER[event["event"]]
        return min((t for other, t in timed[key_of(event)] if other > rank), default=math.inf)

    events.sort(key=lambda e: (instant(e), _ORDER[e["event"]], e["attempt_id"], e["x_request_id"] or ""))


def _name_requests(events: list[dict[str, Any]]) -> None:
    """Name every request: by its x-request-id, else by its response id if already its dispatch is told with that."""
    named = {e["response_id"] for e in events if e["event"] == "dispatched" and not e["x_request_id"]}
    for event in events:
        response = event["response_id"] if event["response_id"] in named else None
        event["request"] = (event["x_request_id"] or response) if event["level"] == "request" else None
