"""The quick path through a Dynamo trace: a block of lines at a time, the hashes' digits cut out beforehand.

Four fifths of a trace are the digits of block hashes. Without them a line decodes into its type in a microsecond.
A line that does not fit its type is left to the careful path. A block whose parts do not add up (a key given twice,
a cut that is no row's) is left to it as a whole; one with keys that the types do not know is looked at more closely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.model import HASHES
from pytest_rlserve.readers import dynamo_shapes as shapes
from pytest_rlserve.readers.dynamo_columns import Part, fill_ends, fill_tools
from pytest_rlserve.readers.lines import split
from pytest_rlserve.readers.rows import Refusal, decode, keys
from pytest_rlserve.readers.typed import UNFIT, Doubt, at_once, given, line_feeds, there

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[int, int]
Line = tuple[int, bytes]
"""Its place among the lines of a block, and its text."""
_NAME = HASHES.encode()
_MARK = b'"%s":[' % _NAME
_ESCAPED = (b"\\u002", b"\\u005", b"\\u006", b"\\u007", b'\\"' + _NAME)
"""What a key needs that is the hashes' and not written so, or written so and another: a letter or a quote escaped."""
_LINE = msgspec.json.Decoder(shapes.Line)
_ASIDE = (None, "request_payload")
"""Kinds of record that are left to the careful path."""


@dataclass(slots=True)
class Block:
    """What the quick path understood of a block of lines."""

    count: int
    """Lines, blank ones too."""
    ends: Part
    tools: Part
    hashes: list[Span | None]
    """For each `request_end`, where in the block the digits of its hashes stand."""
    doubtful: list[Line]
    """Places and text of the lines that only the careful path can judge."""


def understand(text: bytes) -> Block:
    """Take a block of whole lines apart.

    Raises:
        Doubt: the parts do not add up.
    """
    heads, spans = _cut(text)
    decoded = at_once(_LINE, heads)
    if decoded is None:
        decoded = _one_by_one(split(heads))
    ends, tools, doubtful = _sorted(decoded)
    if doubtful and line_feeds(text) != line_feeds(heads):
        raise Doubt  # a cut goes on over the end of its line
    aside = _lines_at(doubtful, heads)
    if fill_ends(ends) + fill_tools(tools) + _wrappers(_without(doubtful, decoded)) != _keys(heads, aside):
        _require_sound(split(heads), ends, tools)
    hashes = _paired(ends, aside, spans)
    return Block(len(decoded), ends, tools, hashes, _lines_at(doubtful, text))


def _one_by_one(lines: list[bytes]) -> list[Any]:
    """Decode every line; None for one that does not fit."""
    decode = _LINE.decode
    try:
        return [decode(line) for line in lines]
    except UNFIT:
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
        elif record.request is not None:
            doubtful.append(place)  # its 64-bit integers are nobody's columns
        else:
            tools.places.append(place)
            tools.records.append(record)
    return ends, tools, doubtful


def _without(places: list[int], lines: list[Any]) -> list[Any]:
    left_out = set(places)
    return [line for place, line in enumerate(lines) if place not in left_out] if places else lines


def _keys(text: bytes, aside: list[Line]) -> int | None:
    """Count the keys of a text without those of some lines; None if that is not sure."""
    counts = [keys(line) for _, line in aside]
    every = keys(text)
    return None if every is None or None in counts else every - sum(filter(None, counts))


def _wrappers(lines: list[Any]) -> int:
    """Count the keys of the wrappers around records."""
    return given({"timestamp": [line.timestamp for line in lines], "event": [line.event for line in lines]})


def _require_sound(lines: list[bytes], ends: Part, tools: Part) -> None:
    """Decode lines of unknown keys as the careful path does: a newer Dynamo may write more than the types know.

    Raises:
        Doubt: one is no sound JSON, or has a cut that is not its row's own.
    """
    cut = [hashes is not None for hashes in ends.columns[HASHES]] if ends.places else []
    for place, cuts in (*zip(ends.places, cut, strict=True), *((place, False) for place in tools.places)):
        line = lines[place]
        if not line.count(_MARK) == line.count(_NAME) == cuts or isinstance(decode(line), Refusal):
            raise Doubt
        if cuts and any(sign in line for sign in _ESCAPED):
            raise Doubt


def _cut(text: bytes) -> tuple[bytes, list[Span]]:
    """Return the text without the digits of its hashes, and where they stood."""
    heads: list[bytes] = []
    spans: list[Span] = []
    here = 0
    at = text.find(b"[")
    while at >= 0:  # a bracket is rarer than any letter, and one byte is found several times as quickly as many
        if text.endswith(_MARK, here, at + 1):
            end = text.find(b"]", at)
            if end < 0:
                raise Doubt
            spans.append((at + 1, end))
            heads.append(text[here : at + 1])
            here = at = end
        at = text.find(b"[", at + 1)
    heads.append(text[here:])
    return b"".join(heads), spans


def require_whole(text: bytes, spans: Iterable[Span | None]) -> None:
    """See that rows are whole whose digits nobody is going to decode.

    Raises:
        Doubt: a line is torn, or it is the head of one row and the tail of another.
    """
    for begin, end in filter(None, spans):
        if text.find(b"\n", begin, end) >= 0 or text.find(b'"', begin, end) >= 0:
            raise Doubt


def _lines_at(places: Sequence[int], text: bytes) -> list[Line]:
    """Return some lines of a text, by ascending places."""
    lines: list[Line] = []
    here = start = 0
    for place in places:
        for _ in range(here, place):
            start = text.index(b"\n", start) + 1
        here, end = place, text.find(b"\n", start)
        lines.append((place, text[start : len(text) if end < 0 else end]))
    return lines


def _paired(ends: Part, aside: list[Line], spans: Sequence[Span]) -> list[Span | None]:
    """Give each row with hashes its cut, in the order of the lines, passing over the cuts of lines aside.

    No other line has more cuts than rows: the key has one place in its type, and given twice it does not add up.
    """
    hashes = ends.columns[HASHES]
    passed = {place: line.count(_MARK) for place, line in aside}
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
