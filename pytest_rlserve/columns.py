"""Columns of tables as numpy arrays, and what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Numbers = NDArray[np.int64]
    Reals = NDArray[np.float64]


def whole(column: Any) -> pa.Array:
    """Return a column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def reals(column: Any) -> Reals:
    """Return a column of numbers as floats; not a number where it is null, which no comparison holds for."""
    return np.asarray(whole(column).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def mask(column: Any) -> Mask:
    """Return a column of truths; what is null is false."""
    return np.asarray(pc.fill_null(column, False), dtype=np.bool_)


def known(column: Any) -> Mask:
    """Tell where a column says anything."""
    return np.asarray(pc.is_valid(column), dtype=np.bool_)


def given(column: Any) -> Any:
    """Return a column of text with nulls for what is empty."""
    empty = pc.equal(column, "")
    return pc.if_else(empty, None, column) if pc.any(empty).as_py() else column


def codes(*columns: Any) -> Numbers:
    """Number the distinct combinations of some columns in the order in which they first appear; null is a value."""
    found: Numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        own = _as_they_come(column) if isinstance(column, np.ndarray) else _places(column)
        if follows(found, own):
            found = own
        elif not follows(own, found):
            found = _as_they_come(found * (own.max() + 1) + own)
    return found


def follows(one: Numbers, other: Numbers) -> bool:
    """Tell whether one number stands beside each of the other, whose combinations with it are then no more."""
    beside = np.zeros(int(other.max(initial=-1)) + 1, dtype=np.int64)
    beside[other] = one
    return bool((beside[other] == one).all())


def _places(column: Any) -> Numbers:
    encoded = whole(pc.dictionary_encode(column, null_encoding="encode"))
    found: Numbers = encoded.indices.to_numpy().astype(np.int64)
    return found


def _as_they_come(numbers: Numbers) -> Numbers:
    order = np.argsort(numbers)
    new = np.append(True, np.diff(numbers[order]) != 0)[: len(order)]
    first = np.minimum.reduceat(order, np.flatnonzero(new)) if len(order) else order
    ranks, found = np.empty_like(first), np.empty_like(order)
    ranks[np.argsort(first)] = np.arange(len(first))
    found[order] = ranks[np.cumsum(new) - 1]
    return found


def picked(column: pa.Array, rows: Numbers) -> pa.Array:
    """Return the values of some rows; null where the number of the row is −1."""
    return column.take(pa.array(rows, mask=rows < 0))


def sorted_rows(columns: Mapping[str, Any]) -> Numbers:
    """Return the numbers of rows in the order of some columns, the first one first; equal rows stay as they are."""
    order = pc.sort_indices(pa.table(dict(columns)), [(name, "ascending") for name in columns])
    found: Numbers = order.to_numpy().astype(np.int64)
    return found


def sorted_late(columns: Sequence[Numbers | Reals | Mask], late: Callable[[Numbers], Mapping[str, Any]]) -> Numbers:
    """Return the numbers of rows in the order of some numbers; those that are equal in all of them by other columns.

    Args:
        columns: the first one first.
        late: returns the other columns of some rows. It is asked for few, so that texts need not be looked at.
    """
    order = np.lexsort(columns[::-1])
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    tied = np.flatnonzero(~new | ~np.append(new[1:], True)[: len(order)])
    if len(tied):
        some = order[tied]
        order[tied] = some[sorted_rows({"": np.cumsum(new)[tied], **late(some)})]
    return order


def groups(numbers: Numbers, *, least: int = 1) -> Iterator[list[int]]:
    """Go through the places of each number that stands in at least that many, numbers in order."""
    counts = np.bincount(numbers)
    several = np.flatnonzero(counts[numbers] >= least) if len(numbers) else numbers
    order = several[np.argsort(numbers[several], kind="stable")]
    edges = np.flatnonzero(np.diff(numbers[order])) + 1
    return (part.tolist() for part in np.split(order, edges)) if len(order) else iter(())


def places_of(numbers: Numbers) -> dict[int, Numbers]:
    """Return where each number stands, numbers in order."""
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    return {int(numbers[some[0]]): some for some in np.split(order, begins)[1:]}


def totals(numbers: Numbers, values: Reals, least: int = 0) -> Reals:
    """Return the sum of the values of each number from 0 on, added up in their order, for at least so many numbers."""
    found: Reals = np.bincount(numbers, weights=values, minlength=least).astype(np.float64)
    return found
