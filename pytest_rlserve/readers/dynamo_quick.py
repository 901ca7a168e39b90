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

from pytest_rlserve.model import HASHES
from pytest_rlserve.readers import dynamo_shapes as shapes
from pytest_rlserve.readers.lines import split

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[int, int]
_MARK = b'"%s":[' % HASHES.encode()
_LINE = msgspec.json.Decoder(shapes.Line)
_ASIDE = (None, "request_payload")
"""Kinds of record that are left to the careful path."""
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LF, _SPACE, _QUOTE, _COLON = b'\n ":'


class Doubt(Exception):
    """The quick path is not sure of a block."""


@dataclass(slots=True)
class Part:
    """The records of one kind in a block."""

    places: list[int] = field(default_factory=list)
    """Where they stand among the block's lines."""
    records: list[shapes.Record] = field(default_factory=list)
    columns: shapes.Columns = field(default_factory=dict)


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
    lines = split(heads)
    decoded = _decoded(lines)
    ends, tools, doubtful = _sorted(decoded)
    keys = _fill_ends(ends) + _fill_tools(tools) + _wrappers(decoded, doubtful)
    left = set(doubtful)
    sure = b"\n".join([line for place, line in enumerate(lines) if place not in left]) if left else heads
    if keys != _keys(sure):
        raise Doubt
    hashes = _paired(ends, doubtful, lines, spans)
    return Block(len(lines), ends, tools, hashes, _originals(text, doubtful, len(lines)))


def _decoded(lines: list[bytes]) -> list[Any]:
    """Decode every line; None for one that does not fit."""
    decode = _LINE.decode
    try:
        return [decode(line) for line in lines]
    except _UNFIT:
        return [_decoded([line])[0] for line in lines] if len(lines) > 1 else [None]


def _sorted(lines: list[Any]) -> tuple[Part, Part, list[int]]:
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
    stamped, wrapped = [line.timestamp for line in lines], [line.event for line in lines]
    return 2 * len(lines) - stamped.count(None) - wrapped.count(None)


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
    return sum(len(column) - column.count(None) for part in parts for column in part.values())


def _records(part: Part, needed: str) -> shapes.Columns:
    records = shapes.columns(shapes.Record, part.records)
    if any(None in records[name] for name in ("schema", "event_time_unix_ms", needed)):
        raise Doubt
    return records


def _fill_ends(part: Part) -> int:
    """Make columns of `request_end` records; return how many keys the records have."""
    records = _records(part, "request")
    requests = shapes.columns(shapes.Request, records["request"])
    contexts = shapes.columns(shapes.Context, records["agent_context"])
    workers = shapes.columns(shapes.Worker, requests["worker"])
    replays = shapes.columns(shapes.Replay, requests["replay"])
    finishes = shapes.columns(shapes.Finish, requests["finish_reason_metadata"])
    choices = shapes.columns(shapes.Choice, _flat(finishes["choices"]))
    calls = shapes.columns(shapes.ToolCall, _flat(finishes["tool_calls"]))
    for name in ("prefill_worker_id", "decode_worker_id"):
        if max(filter(None, workers[name]), default=0) > shapes.LARGEST:
            raise Doubt
    part.columns = records | requests | contexts | workers | replays | finishes
    return _given(records, requests, contexts, workers, replays, finishes, choices, calls) + _headers(contexts)


def _flat(lists: Sequence[list[msgspec.Struct] | None]) -> list[msgspec.Struct]:
    return [one for some in lists if some for one in some]


def _fill_tools(part: Part) -> int:
    """Make columns of tools' records; return how many keys the records have."""
    records = _records(part, "tool")
    tools = shapes.columns(shapes.Tool, records["tool"])
    contexts = shapes.columns(shapes.Context, records["agent_context"])
    part.columns = records | tools | contexts
    return _given(records, tools, contexts) + _headers(contexts)


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
    passed = {place: lines[place].count(_MARK) for place in doubtful}
    rows = dict(zip(ends.places, ends.columns[HASHES], strict=True))
    if len(rows) - ends.columns[HASHES].count(None) + sum(passed.values()) != len(spans):
        raise Doubt
    left = iter(spans)
    paired: list[Span | None] = []
    for place in sorted([*rows, *passed]) if any(passed.values()) else rows:
        if place in rows:
            paired.append(None if rows[place] is None else next(left))
        else:
            for _ in range(passed[place]):
                next(left)
    return paired
