"""Damages to what client, server and trainer say of the same thing, so that they no longer agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_rlserve.capture import Capture

_EVERY = 20
_SECONDS = -5.0


def _rows(capture: Capture, name: str, change: Callable[[Any], Any]) -> Capture:
    """Return a copy with one field of every twentieth row changed."""
    values = capture.scalars[name].to_pylist()
    values[::_EVERY] = [change(value) for value in values[::_EVERY]]
    return capture.replace(scalars=_replaced(capture.scalars, name, pa.array(values, capture.scalars[name].type)))


def _replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), column)


def cut_short(capture: Capture) -> Capture:
    """Let the engine abort one request in twenty while the framework takes its stump for an answer."""
    return _rows(capture, "backend_finish_reason", lambda _: "cancelled")


def miscount(capture: Capture) -> Capture:
    """Let the server count a token too many for one request in twenty."""
    return _rows(capture, "output_tokens", lambda count: (count or 0) + 1)


def set_clock_back(capture: Capture) -> Capture:
    """Let the server's clock be five seconds behind."""
    rows = capture.scalars
    for name in ("received_at", "ended_at"):
        rows = _replaced(rows, name, pc.add(rows[name], _SECONDS))
    return capture.replace(scalars=rows)


def restart_versions(capture: Capture) -> Capture:
    """Let the counter of policy versions start anew with the last record that carries one."""
    events = capture.control_events.to_pylist()
    last = max((e for e in events if e["policy_version"] is not None), key=lambda e: e["t"] or 0.0, default=None)
    for event in events:
        if last is not None and event["event"] == last["event"] and event["policy_version"] == last["policy_version"]:
            event["policy_version"] = "-1"
    return capture.replace(control_events=pa.Table.from_pylist(events, schema=capture.control_events.schema))
