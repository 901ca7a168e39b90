"""Columns from the records of a Dynamo trace, and how many keys the records had: what the quick path adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pytest_rlserve.model import HASHES, SCALARS
from pytest_rlserve.readers import dynamo_shapes as shapes
from pytest_rlserve.readers.typed import Columns, Doubt, columns, given, there

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

_KINDS = {column.name: column.type for column in SCALARS}


@dataclass(slots=True)
class Part:
    """The records of one kind in a block."""

    places: list[int] = field(default_factory=list)
    """Where they stand among the block's lines."""
    records: list[shapes.Record] = field(default_factory=list)
    columns: Columns = field(default_factory=dict)
    """Their fields by name; those of the canonical table as Arrow arrays."""
    sessions: list[str | None] = field(default_factory=list)
    parents: list[str | None] = field(default_factory=list)


def _arrays(fields: Columns) -> Columns:
    """Turn those columns into Arrow arrays that the canonical table has under the same name."""
    try:
        return {name: pa.array(column, _KINDS[name]) if name in _KINDS else column for name, column in fields.items()}
    except (OverflowError, pa.ArrowInvalid):
        raise Doubt from None


def _records(part: Part, needed: str) -> Columns:
    records = columns(shapes.Record, part.records)
    if any(there(records[name]) < len(part.records) for name in ("schema", "event_time_unix_ms", needed)):
        raise Doubt
    return records


def _contexts(part: Part, records: Columns) -> tuple[Columns, int]:
    """Return the sessions' columns, and how many keys they have; where a rollout is named, it is the session."""
    contexts = columns(shapes.Context, records["agent_context"])
    keys = given(contexts) + _inside(contexts["agent_headers"])
    part.sessions, part.parents = contexts["session_id"], contexts["parent_session_id"]
    if any(contexts["trajectory_id"]):
        part.sessions = [one or other for one, other in zip(contexts["trajectory_id"], part.sessions, strict=True)]
    return {"session_id": part.sessions, "parent_session_id": part.parents}, keys


def fill_ends(part: Part) -> int:
    """Make columns of `request_end` records; return how many keys the records have."""
    records = _records(part, "request")
    contexts, keys = _contexts(part, records)
    requests = columns(shapes.Request, records["request"])
    workers = _arrays(columns(shapes.Worker, requests["worker"]))
    replays = _arrays(columns(shapes.Replay, requests["replay"]))
    finishes, ends = _finishes(requests["finish_reason_metadata"])
    requests = _arrays(requests)
    part.columns = records | contexts | requests | workers | replays | finishes
    return keys + ends + given(records, requests, workers, replays)


def _finishes(objects: Sequence[shapes.Finish | None]) -> tuple[Columns, int]:
    """Return the columns of how generation ended, which many requests do not say, and how many keys they have."""
    if not any(objects):
        return {}, 0
    finishes = columns(shapes.Finish, objects)
    choices = columns(shapes.Choice, _flat(finishes["choices"]))
    calls = _inside(finishes["tool_calls"])
    finishes = _arrays(finishes)
    return finishes, calls + given(finishes, choices)


def _flat(lists: Sequence[list[msgspec.Struct] | None]) -> list[msgspec.Struct]:
    return [one for some in lists if some for one in some]


def fill_tools(part: Part) -> int:
    """Make columns of tools' records; return how many keys the records have."""
    if not part.records:
        return 0
    records = _records(part, "tool")
    contexts, keys = _contexts(part, records)
    tools = columns(shapes.Tool, records["tool"])
    part.columns = records | contexts | tools
    return keys + given(records, tools)


def _inside(value: Any) -> int:
    """Count the keys in a value of any layout."""
    if isinstance(value, dict):
        if any(name.endswith(HASHES) for name in value):
            raise Doubt  # that was cut as well, as it was with an escaped quote before the name
        return len(value) + _inside(list(value.values()))
    return sum(map(_inside, filter(None, value))) if isinstance(value, list) else 0
