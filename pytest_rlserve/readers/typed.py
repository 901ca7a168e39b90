"""Lines decoded into types, many at once, and what tells whether that lost anything.

A type passes over keys that it does not know, and of a key given twice it keeps one. So the keys in the text are
counted and compared with the fields that came out: where they differ, only the careful path knows what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import astuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec.json import Decoder

Shape = TypeVar("Shape")
ABSENT: Any = None
"""Stands for a field that is not there; a null in the text fits no field's type."""
UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LF, _BEGIN, _END = b"\n{}"


class Doubt(Exception):
    """The quick path is not sure of a block of lines."""


def at_once(decoder: Decoder[Shape], text: bytes) -> list[Shape] | None:
    """Decode all lines in one go, if that is sure to give one record a line; else return None.

    No value goes on over the end of a line where every line ends one object and the next begins another: between
    the two there would have to be a comma. Then no line is without an object, and none has two if there are as many.
    """
    signs = np.frombuffer(text, dtype=np.uint8)
    if not text.startswith(b"{") or not text.endswith(b"}\n"):
        return None
    before, ends, after = signs[:-2], signs[1:-1] == _LF, signs[2:]
    inner = np.count_nonzero(ends)
    if inner != np.count_nonzero(ends & (before == _END) & (after == _BEGIN)):
        return None
    try:
        decoded = decoder.decode_lines(text)
    except UNFIT:
        return None
    return decoded if len(decoded) == inner + 1 else None


def line_feeds(text: bytes) -> int:
    """Count the line feeds in a text."""
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == _LF))


Columns = dict[str, Any]
"""Fields by name: lists, or Arrow arrays."""


def columns(shape: type[msgspec.Struct], objects: Sequence[msgspec.Struct | None]) -> Columns:
    """Return the objects' fields as columns, by name; a missing object has none of them."""
    names = shape.__struct_fields__
    nothing = (None,) * len(names)
    found = [nothing if one is None else astuple(one) for one in objects]
    # A subclass has more fields, which come last and are left out.
    return dict(zip(names, map(list, zip(*found, strict=False)), strict=False)) if found else {n: [] for n in names}


def given(*parts: Columns) -> int:
    """Count the fields that are there."""
    return sum(there(column) for part in parts for column in part.values())


def there(column: Any) -> int:
    """Count the values of a column that are there."""
    if isinstance(column, pa.Array):
        return len(column) - int(column.null_count)
    return len([1 for one in column if one is not None])  # `count(None)` would compare, which is slower
