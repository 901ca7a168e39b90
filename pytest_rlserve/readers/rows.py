"""From a line to a row: strict JSON that fits its schema, or one sentence that says why not.

Two paths give the same answer. The quick one decodes with msgspec and checks a typed shape; anything it does
not like, or that JSON leaves open (a repeated key), goes to the careful one, which explains. jsonschema on
the careful path is the judge: whatever it refuses, the shapes must refuse as well.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from pytest_rlserve import schema

_SPACE, _QUOTE, _COLON, _BACKSLASH = b' ":\\'


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a line is not a row: all reasons, best first."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        """Return the reasons in one sentence."""
        return "; ".join(self.reasons)


def decode(line: bytes) -> dict[str, Any] | Refusal:
    """Decode one JSON object strictly: finite numbers, no repeated key, well-formed text, nothing after it."""
    try:
        row = msgspec.json.decode(line)
        if type(row) is dict and keys(line) == _keys(row):
            return row
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return _explain(line)


def keys(text: bytes) -> int | None:
    """Count the keys of all objects in a text, which is JSON, or many lines of it.

    Returns:
        The count, or None if that is not sure: a key may stand apart from its colon, or end in a backslash.
    """
    signs = np.frombuffer(text, dtype=np.uint8)
    before, colons = signs[:-1], signs[1:] == _COLON
    apart = colons & (before <= _SPACE)
    if np.count_nonzero(apart) and np.any(before[np.flatnonzero(apart) - 1] <= _QUOTE):
        return None
    ends = colons & (before == _QUOTE)
    count = int(np.count_nonzero(ends))
    if b"\\" in text:  # a quote that is escaped ends no key, but a backslash may be escaped too
        escaped = ends[2:] & (signs[1:-2] == _BACKSLASH)
        if np.count_nonzero(escaped & (signs[:-3] == _BACKSLASH)):
            return None
        count -= int(np.count_nonzero(escaped))
    return count


def _keys(value: object) -> int:
    """Count the keys of all objects inside `value`; a repeated key makes the count fall short of the text."""
    if type(value) is dict:
        return len(value) + sum(_keys(v) for v in value.values() if type(v) in (dict, list))
    if type(value) is list and value and type(value[0]) in (dict, list):
        return sum(_keys(v) for v in value)
    return 0


class _BadFieldError(ValueError):
    pass


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    twice: list[str] = []
    for key, value in pairs:
        if not _encodable(key):
            raise _BadFieldError("a field's name holds half of a surrogate pair")
        if key in row:
            twice.append(_named(key))
        _sound(_named(key), value)
        row[key] = value
    if twice:
        raise _BadFieldError(f"{' and '.join(dict.fromkeys(twice))} given twice")
    return row


def _sound(key: str, value: object) -> None:
    """Refuse what JSON text cannot mean; objects inside `value` have been through here already."""
    if type(value) is float and not math.isfinite(value):
        raise _BadFieldError(f"{key} is not a finite number")
    if type(value) is str and not _encodable(value):
        raise _BadFieldError(f"{key} holds half of a surrogate pair")
    if type(value) is list:
        for item in value:
            _sound(key, item)


def _named(key: str) -> str:
    """Name a field that a format knows; another key may be text that somebody sent or a model wrote."""
    return key if key in schema.fields() else "a field"


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _explain(line: bytes) -> dict[str, Any] | Refusal:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Refusal((f"is not UTF-8 at byte {error.start + 1}",))
    try:
        row = json.loads(text, object_pairs_hook=_pairs)
    except _BadFieldError as error:
        return Refusal((str(error),))
    except json.JSONDecodeError as error:
        torn = "is cut off" if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg else "is not JSON"
        more = "has more than one JSON value" if error.msg == "Extra data" else torn
        return Refusal((f"{more} (column {error.colno})",))
    except (RecursionError, ValueError) as error:
        return Refusal((f"cannot be decoded ({type(error).__name__})",))
    return row if isinstance(row, dict) else Refusal(("is JSON, but not an object",))


def fit(row: dict[str, Any], shape: type[msgspec.Struct], format: str) -> Refusal | None:
    """Check a decoded row against the format's schema; `shape` is the quick test that may stand for it.

    What msgspec cannot express, a shape says by a method `exact`.
    """
    try:
        if _fits(row, shape) or _fits(_whole(row), shape):
            return None
        row = _brief(row)
        reasons = schema.problems(format, row) or [
            f"{why.partition(' must be ')[0]} is not exact" for why in schema.problems(format, _softened(row))
        ]
        return Refusal(tuple(reasons)) if reasons else None
    except RecursionError:
        return Refusal(("is nested too deeply",))


def _fits(row: dict[str, Any], shape: type[msgspec.Struct]) -> bool:
    try:
        quick: Any = msgspec.convert(row, shape)
    except (msgspec.ValidationError, OverflowError):
        return False
    return not hasattr(shape, "exact") or bool(quick.exact())


def _whole(value: Any) -> Any:
    """Return the value with whole numbers for floats such as 7.0, which JSON Schema takes for them too.

    It takes a hundred times as long to say so, and a writer may do it in every row.
    """
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if type(value) is float and abs(value) < 2**53 and value.is_integer() else value


def _brief(value: Any) -> Any:
    """Return the value with the first only of many 64-bit integers: the schema would look at every hash of a prompt."""
    if isinstance(value, dict):
        return {key: _brief(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and set(map(type, value)) == {int} and min(value) >= 0 and max(value) < 2**64:
            return value[:1]
        return [_brief(inner) for inner in value]
    return value


def _softened(value: Any) -> Any:
    """Return the value with 0.5 for whole numbers beyond 2^53 that are written as floats.

    JSON Schema takes such a float for an integer. 0.5 it takes for a number, so what it now refuses was to be one.
    """
    if isinstance(value, dict):
        return {key: _softened(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_softened(inner) for inner in value]
    return 0.5 if type(value) is float and abs(value) >= 2**53 else value
