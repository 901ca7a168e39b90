"""The quick path through a Dynamo trace: a block of lines at a time, the hashes' digits cut out beforehand.

Four fifths of a trace are the digits of block hashes. Without them a line decodes into its type in a microsecond.
A line that does not fit its type is left to the careful path. A block whose parts do not add up (a key given twice
or unknown, a cut that is no row's) is left to it as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_rlserve.model import HASHES
from pytest_rlserve.readers import dynamo_shapes as shapes
from pytest_rlserve.readers.dynamo_columns import Doubt, Part, fill_ends, fill_tools, given, there
from pytest_rlserve.readers.lines import split

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[int, int]
_MARK = b'"%s":[' % HASHES.encode()
_LINE = msgspec.json.Decoder(shapes.Line)
_ASIDE = (None, "request_payload")
"""Kinds of record that are left to the careful path."""
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LF, _SPACE, _QUOTE, _COLON, _BEGIN, _END = b'\n ":{}'


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
    lines: list[bytes] = []
    decoded = _at_once(heads)
    if decoded is None:
        lines = split(heads)
        decoded = _one_by_one(lines)
    ends, tools, doubtful = _sorted(decoded)
    sure, known = heads, decoded
    if doubtful:
        lines = lines or split(heads)
        sure, known = b"\n".join(_without(doubtful, lines)), _without(doubtful, decoded)
    if fill_ends(ends) + fill_tools(tools) + _wrappers(known) != _keys(sure):
        raise Doubt
    hashes = _paired(ends, doubtful, lines, spans)
    return Block(len(decoded), ends, tools, hashes, _originals(text, doubtful, len(decoded)))


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


def _without(places: list[int], lines: list[Any]) -> list[Any]:
    left_out = set(places)
    return [line for place, line in enumerate(lines) if place not in left_out]


def _wrappers(lines: list[Any]) -> int:
    """Count the keys of the wrappers around records."""
    return given({"timestamp": [line.timestamp for line in lines], "event": [line.event for line in lines]})


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
    lines = split(text)
    if len(lines) != count:
        raise Doubt  # a cut goes on over the end of its line
    return [(place, lines[place]) for place in places]


def _keys(text: bytes) -> int:
    """Count what looks like the keys of objects; more than there are if strings hold escaped quotes and colons."""
    signs = np.frombuffer(text, dtype=np.uint8)
    before, colons = signs[:-1], signs[1:] == _COLON
    if np.count_nonzero(colons & (before <= _SPACE)):
        raise Doubt  # a key may stand apart from its colon
    return int(np.count_nonzero(colons & (before == _QUOTE)))


def _paired(ends: Part, doubtful: Sequence[int], lines: Sequence[bytes], spans: Sequence[Span]) -> list[Span | None]:
    """Give each row with hashes its cut, in the order of the lines, passing over the cuts of doubtful lines.

    No other line has more cuts than rows: the key has one place in its type, and given twice it does not add up.
    """
    hashes = ends.columns[HASHES]
    passed = {place: lines[place].count(_MARK) for place in doubtful}
    if there(hashes) + sum(passed.values()) != len(spans):
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
