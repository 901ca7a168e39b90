"""The quick path through a Dynamo trace: a block of lines at a time, the hashes' digits cut out beforehand.

Four fifths of a trace are the digits of block hashes. Without them a line decodes into its type in a microsecond.
A line that does not fit its type is left to the careful path. A block whose parts do not add up (a key given twice
or unknown, a cut that is no row's) is left to it as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from pytest_rlserve.model import HASHES, SCALARS
from pytest_rlserve.readers import dynamo_shapes as shapes
from pytest_rlserve.readers.lines import split

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[int, int]
_MARK = b'"%s":[' % HASHES.encode()
_LINE = msgspec.json.Decoder(shapes.Line)
_ASIDE = (None, "request_payload")
"""Kinds of record that are left to the careful path."""
_KINDS = {column.name: column.type for column in SCALARS}
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LF, _SPACE, _QUOTE, _COLON, _BEGIN, _END = b'\n ":{}'


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


@dataclass(slots=True)
class Block:
    """What the quick path understood of a block of lines."""

    count: int
    """Lines, blank ones too."""
    ends: Part
    tools: Part
    hashes: list[Span | None]
    """For each `request_end`, where in the block the digits of its hashes stand."""
    doubtful: list[tuple[int, bytes]]
    """Places and text of the lines that only the careful path can judge."""


def understand(text: bytes) -> Block:
    """Take a block of whole lines apart.

    Raises:
        Doubt: the parts do not add up.
    """
    heads, spans = _cut(text)
    decoded = _at_once(heads)
    ends, tools, doubtful = _sorted(decoded or ())
    lines: list[bytes] = []
    if not decoded or doubtful:
        lines = split(heads)
        decoded = _one_by_one(lines)
        ends, tools, doubtful = _sorted(decoded)
    count = len(decoded)
    keys = _fill_ends(ends) + _fill_tools(tools) + _wrappers(decoded, doubtful)
    left = set(doubtful)
    sure = b"\n".join([line for place, line in enumerate(lines) if place not in left]) if left else heads
    if keys != _keys(sure):
        raise Doubt
    hashes = _paired(ends, doubtful, lines, spans)
    return Block(count, ends, tools, hashes, _originals(text, doubtful, count))


def _at_once(heads: bytes) -> list[Any] | None:
    """Decode all lines in one go, if that is sure to give one record a line.

    No value goes on over the end of a line where every line ends one object and the next begins another: between
    the two there would have to be a comma. Then no line is without an object, and none has two if there are as many.
    """
    signs = np.frombuffer(heads, dtype=np.uint8)
    ends = np.flatnonzero(signs == _LF)
    if not len(ends) or ends[-1] != len(heads) - 1 or signs[0] != _BEGIN:
        return None
    if np.any(signs[ends - 1] != _END) or np.any(signs[ends[:-1] + 1] != _BEGIN):
        return None
    try:
        decoded = _LINE.decode_lines(heads)
    except _UNFIT:
        return None
    return decoded if len(decoded) == len(ends) else None


def _one_by_one(lines: list[bytes]) -> list[Any]:
    """Decode every line; None for one that does not fit."""
    decode = _LINE.decode
    try:
        return [decode(line) for line in lines]
    except _UNFIT:
        return [_one_by_one([line])[0] for line in lines] if len(lines) > 1 else [None]


def _sorted(lines: Sequence[Any]) -> tuple[Part, Part, list[int]]:
    """Sort the records by kind: `request_end`, tools, and the places of all others."""
    ends, tools, doubtful = Part(), Part(), list[int]()
    for place, line in enumerate(lines):
        record = line if line is None or line.event is None else line.event
        if record is None or record.event_type in _ASIDE or record.payload is not None:
            doubtful.append(place)
        elif record.event_type == "request_end":
            ends.places.append(place)
            ends.records.append(record)
        else:
            tools.places.append(place)
            tools.records.append(record)
    return ends, tools, doubtful


def _wrappers(lines: list[Any], doubtful: list[int]) -> int:
    """Count the keys of the wrappers around records."""
    for place in reversed(doubtful):
        del lines[place]
    return _given({"timestamp": [line.timestamp for line in lines], "event": [line.event for line in lines]})


def _cut(text: bytes) -> tuple[bytes, list[Span]]:
    """Return the text without the digits of its hashes, and where they stood."""
    heads: list[bytes] = []
    spans: list[Span] = []
    here = 0
    while (mark := text.find(_MARK, here)) >= 0:
        start = mark + len(_MARK)
        end = text.find(b"]", start)
        if end < 0:
            raise Doubt
        spans.append((start, end))
        heads.append(text[here:start])
        here = end
    heads.append(text[here:])
    return b"".join(heads), spans


def _originals(text: bytes, places: Sequence[int], count: int) -> list[tuple[int, bytes]]:
    """Return lines of the text as they were before the cutting."""
    if not places:
        return []
    edges = [-1, *np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _LF).tolist()]
    if text[-1] != _LF:
        edges.append(len(text))
    if len(edges) != count + 1:
        raise Doubt  # a cut goes on over the end of its line
    return [(place, text[edges[place] + 1 : edges[place + 1]]) for place in places]


def _keys(text: bytes) -> int:
    """Count what looks like the keys of objects; more than there are if strings hold escaped quotes and colons."""
    signs = np.frombuffer(text, dtype=np.uint8)
    before, colons = signs[:-1], signs[1:] == _COLON
    if np.count_nonzero(colons & (before <= _SPACE)):
        raise Doubt  # a key may stand apart from its colon
    return int(np.count_nonzero(colons & (before == _QUOTE)))


def _given(*parts: shapes.Columns) -> int:
    """Count the fields that are there."""
    return sum(_there(column) for part in parts for column in part.values())


def _there(column: Any) -> int:
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
    if any(_there(records[name]) < len(part.records) for name in ("schema", "event_time_unix_ms", needed)):
        raise Doubt
    return records


def _contexts(part: Part, records: shapes.Columns) -> tuple[shapes.Columns, int]:
    """Return the sessions' columns, and how many keys they have; where a rollout is named, it is the session."""
    contexts = shapes.columns(shapes.Context, records["agent_context"])
    keys = _given(contexts) + _headers(contexts)
    part.sessions, part.parents = contexts["session_id"], contexts["parent_session_id"]
    if any(contexts["trajectory_id"]):
        part.sessions = [one or other for one, other in zip(contexts["trajectory_id"], part.sessions, strict=True)]
    return {"session_id": part.sessions, "parent_session_id": part.parents}, keys


def _fill_ends(part: Part) -> int:
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
    return keys + _given(records, requests, workers, replays, finishes, choices, calls)


def _flat(lists: Sequence[list[msgspec.Struct] | None]) -> list[msgspec.Struct]:
    return [one for some in lists if some for one in some]


def _fill_tools(part: Part) -> int:
    """Make columns of tools' records; return how many keys the records have."""
    if not part.records:
        return 0
    records = _records(part, "tool")
    contexts, keys = _contexts(part, records)
    tools = shapes.columns(shapes.Tool, records["tool"])
    part.columns = records | contexts | tools
    return keys + _given(records, tools)


def _headers(contexts: shapes.Columns) -> int:
    """Count the headers of agents, whose names are anybody's."""
    headers = [some for some in contexts["agent_headers"] if some]
    if any(HASHES in some for some in headers):
        raise Doubt
    return sum(map(len, headers))


def _paired(ends: Part, doubtful: Sequence[int], lines: Sequence[bytes], spans: Sequence[Span]) -> list[Span | None]:
    """Give each row with hashes its cut, in the order of the lines, passing over the cuts of doubtful lines.

    No other line has more cuts than rows: the key has one place in its type, and given twice it does not add up.
    """
    hashes = ends.columns[HASHES]
    passed = {place: lines[place].count(_MARK) for place in doubtful}
    if _there(hashes) + sum(passed.values()) != len(spans):
        raise Doubt
    left = iter(spans)
    if not any(passed.values()):
        return [None if one is None else next(left) for one in hashes]
    rows = dict(zip(ends.places, hashes, strict=True))
    paired: list[Span | None] = []
    for place in sorted([*rows, *passed]):
        if place in rows:
            paired.append(None if rows[place] is None else next(left))
        else:
            for _ in range(passed[place]):
                next(left)
    return paired
