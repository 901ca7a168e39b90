"""Worker ids that can be read in two ways: sixteen digits without a letter may be decimal or hexadecimal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGITS = 16
_COLUMNS = ("worker_id", "replaced_worker_id", "target_workers")


def settled(control: pa.Table, rows: pa.Table) -> pa.Table:
    """Return control events with such an id read as the worker that served; where none did, it stays decimal."""
    doubtful = {word for word in _words(control) if word.isdecimal() and len(word) == _DIGITS}
    if not doubtful:
        return control
    served = {
        str(one) for name in ("prefill_worker_id", "decode_worker_id") for one in pc.unique(rows[name]).to_pylist()
    }
    means = {word: str(int(word, 16)) for word in doubtful - served if str(int(word, 16)) in served}
    return pa.Table.from_pylist([_said(event, means) for event in control.to_pylist()], control.schema)


def _words(control: pa.Table) -> Iterator[str]:
    for name in _COLUMNS:
        flat = pc.list_flatten(control[name]) if name == "target_workers" else control[name]
        yield from pc.unique(flat.drop_null()).to_pylist()


def _said(event: dict[str, object], means: dict[str, str]) -> dict[str, object]:
    new = dict(event)
    for name in _COLUMNS:
        value = event[name]
        if isinstance(value, list):
            new[name] = [means.get(one, one) for one in value]
        elif isinstance(value, str):
            new[name] = means.get(value, value)
    return new
