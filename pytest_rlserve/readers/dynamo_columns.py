"""Columns from the records of a Dynamo trace, and how many keys the records had: what the quick path adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve.model import HASHES, SCALARS
from pytest_rlserve.readers import dynamo_shapes as shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

_KINDS = {column.name: column.type for column in SCALARS}


class Doubt(Exception):
    """The quick path is not sure of a block."""


@dataclass(slots=True)
class Part:
    """The records of one kind in a block."""

    places: list[int] = field(default_factory=list)
    """Where they stand among the block's lines."""
    records: list[shapes.Record] = field(default_factory=list)
    columns: shapes.Columns = field(default_factory=dict)
    """Their fields by name; those of the canonical table as Arrow arrays."""
    sessions: list[str | None] = field(default_factory=list)
    parents: list[str | None] = field(default_factory=list)


def given(*parts: shapes.Columns) -> int:
    """Count the fields that are there."""
    return sum(there(column) for part in parts for column in part.values())


def there(column: Any) -> int:
    """Count the values of a column that are there."""
    if isinstance(column, pa.Array):
        return len(column) - int(column.null_count)
    return len([1 for one in column if one is not None])  # `count(None)` would compare, which is slower


def _arrays(columns: shapes.Columns) -> shapes.Columns:
    """Turn those columns into Arrow arrays that the canonical table has under the same name."""
    try:
        return {name: pa.array(column, _KINDS[name]) if name in _KINDS else column for name, column in columns.items()}
    except (OverflowError, pa.ArrowInvalid):
        raise Doubt from None


def _records(part: Part, needed: str) -> shapes.Columns:
    records = shapes.columns(shapes.Record, part.records)
    if any(there(records[name]) < len(part.records) for name in ("schema", "event_time_unix_ms", needed)):
        raise Doubt
    return records


def _contexts(part: Part, records: shapes.Columns) -> tuple[shapes.Columns, int]:
    """Return the sessions' columns, and how many keys they have; where a rollout is named, it is the session."""
    contexts = shapes.columns(shapes.Context, records["agent_context"])
    keys = given(contexts) + _headers(contexts)
    part.sessions, part.parents = contexts["session_id"], contexts["parent_session_id"]
    if any(contexts["trajectory_id"]):
        part.sessions = [one or other for one, other in zip(contexts["trajectory_id"], part.sessions, strict=True)]
    return {"session_id": part.sessions, "parent_session_id": part.parents}, keys


def fill_ends(part: Part) -> int:
    """Make columns of `request_end` records; return how many keys the records have."""
    records = _records(part, "request")
    contexts, keys = _contexts(part, records)
    requests = shapes.columns(shapes.Request, records["request"])
    workers = _arrays(shapes.columns(shapes.Worker, requests["worker"]))
    replays = _arrays(shapes.columns(shapes.Replay, requests["replay"]))
    finishes = shapes.columns(shapes.Finish, requests["finish_reason_metadata"])
    choices = shapes.columns(shapes.Choice, _flat(finishes["choices"]))
    calls = shapes.columns(shapes.ToolCall, _flat(finishes["tool_calls"]))
    requests, finishes = _arrays(requests), _arrays(finishes)
    part.columns = records | contexts | requests | workers | replays | finishes
    return keys + given(records, requests, workers, replays, finishes, choices, calls)


def _flat(lists: Sequence[list[msgspec.Struct] | None]) -> list[msgspec.Struct]:
    return [one for some in lists if some for one in some]


def fill_tools(part: Part) -> int:
    """Make columns of tools' records; return how many keys the records have."""
    if not part.records:
        return 0
    records = _records(part, "tool")
    contexts, keys = _contexts(part, records)
    tools = shapes.columns(shapes.Tool, records["tool"])
    part.columns = records | contexts | tools
    return keys + given(records, tools)


def _headers(contexts: shapes.Columns) -> int:
    """Count the headers of agents, whose names are anybody's."""
    headers = [some for some in contexts["agent_headers"] if some]
    if any(HASHES in some for some in headers):
        raise Doubt
    return sum(map(len, headers))
