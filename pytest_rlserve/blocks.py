"""How many leading blocks of each prompt other prompts hold as well: exact, and without a Python step per block.

Rows share long prefixes with earlier rows (turns of a session, samples of a group). One look-up finds such a row,
one comparison tells how many leading blocks both share, and only the rest of each row is sorted. Whatever row the
look-up gives, the shared blocks have been seen, so nothing rests on hashes being rolling or honest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_LONG = 64
"""Blocks of a mean row from which looking for an earlier row is cheaper than sorting all of it."""
_MARKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
_AT_ONCE = 8192
"""Rows whose marks are Python numbers at the same time."""
_BUCKET_BITS = 8
_ONE_BUCKET = 1 << 18
"""Hashes that are sorted at once; more are first dealt into buckets that fit into the processor's cache."""


def held_by_others(
    hashes: Hashes,
    starts: Numbers,
    ends: Numbers,
    arrival: NDArray[np.float64],
    until: NDArray[np.float64],
    *,
    compare: bool | None = None,
) -> Numbers:
    """Return for each row how many of its leading blocks another row holds that came before or arrived in time.

    Args:
        hashes: the blocks' hashes.
        starts: where each row begins in `hashes`; the rows stand in the order of their arrival.
        ends: where each row ends.
        arrival: when each row arrived, ascending.
        until: a later row's blocks count as well if it arrived before this instant, which is a row's own.
        compare: whether rows are first compared with an earlier one; None decides by their length.
    """
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    lengths = ends - starts
    if compare is None:
        compare = bool(lengths.mean() >= _LONG)
    parents, shared = _earlier_rows(hashes, starts, ends) if compare else (None, np.zeros_like(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths - shared)])
    rest = np.concatenate([hashes[start:end] for start, end in zip(starts + shared, ends, strict=True)])
    known = _known(rest, offsets, arrival, until)
    begin = offsets[:-1].copy()
    if parents is not None:
        begin += np.clip(_held_by_children(parents, shared, arrival, until) - shared, 0, lengths - shared)
    unknown = np.append(np.flatnonzero(~known), offsets[-1])
    stop = unknown[np.searchsorted(unknown, begin)]
    found: Numbers = shared + np.minimum(stop, offsets[1:]) - offsets[:-1]
    return found


def _earlier_rows(hashes: Hashes, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each row an earlier row, −1 if none was found, and how many leading blocks they share.

    The last block of a prompt may be begun only, so the one before it is what the next turn has in common.
    """
    latest: dict[int, int] = {}
    look_up = latest.get
    parents, shared = np.full(len(starts), -1, dtype=np.int64), np.zeros(len(starts), dtype=np.int64)
    firsts, lasts = starts.tolist(), ends.tolist()
    for row, (start, end, marks) in enumerate(zip(firsts, lasts, _marks(hashes, starts, ends), strict=True)):
        parent = None
        for mark in marks:
            if (parent := look_up(mark)) is not None:
                break
        if parent is not None:
            first = firsts[parent]
            common = min(end - start, lasts[parent] - first)
            differ = hashes[start : start + common] != hashes[first : first + common]
            stop = int(differ.argmax()) if common else 0
            parents[row], shared[row] = parent, stop if common and differ[stop] else common
        for mark in marks:
            latest[mark] = row
    return parents, shared


def _marks(hashes: Hashes, starts: Numbers, ends: Numbers) -> Iterator[list[int]]:
    """Yield for each row some of its hashes: the last but one, and those at fixed places, the farthest first."""
    lengths = ends - starts
    places = np.column_stack([ends - 2, *(starts + mark - 1 for mark in _MARKS)])
    there = np.column_stack([lengths > 1, *(lengths >= mark for mark in _MARKS)])
    for first in range(0, len(starts), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        found = hashes[np.where(there[some], places[some], 0)].tolist() if len(hashes) else [[]] * len(there[some])
        # Of a row that is too short for a place, so it is for all before it, except for the first.
        for marks, count, more in zip(
            found, there[some, 1:].sum(axis=1).tolist(), there[some, 0].tolist(), strict=True
        ):
            yield [*marks[: 1 if more else 0], *marks[len(marks) - count :]]


def _held_by_children(parents: Numbers, shared: Numbers, arrival: Any, until: Any) -> Numbers:
    """Return for each row how many of its leading blocks a later row shares that arrived in time."""
    children = np.flatnonzero(parents >= 0)
    children = children[arrival[children] < until[parents[children]]]
    held = np.zeros_like(shared)
    np.maximum.at(held, parents[children], shared[children])
    return held


def _known(rest: Hashes, offsets: Numbers, arrival: Any, until: Any) -> NDArray[np.bool_]:
    """Tell for each hash whether it stands earlier in `rest`, or in a later row that arrived in time."""
    known = np.ones(len(rest), dtype=bool)
    late = bool((until > arrival).any())
    for bucket in _buckets(rest):
        order = np.argsort(rest if bucket is None else rest[bucket])
        places = order if bucket is None else bucket[order]
        values = rest[places]
        heads = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        first = np.minimum.reduceat(places, heads)
        known[first] = False
        if late:
            sizes = np.diff(np.append(heads, len(places)))
            twice = sizes > 1
            several = places[np.repeat(twice, sizes)].astype(np.int64)
            known[_in_time(several, sizes[twice], first[twice], offsets, (arrival, until))] = True
    return known


def _buckets(rest: Hashes) -> Iterator[Any]:
    """Yield the places of hashes that may be equal: those with the same top bits; None stands for all places."""
    if 0 < len(rest) < _ONE_BUCKET:
        yield None
    elif len(rest):
        top = (rest >> np.uint64(64 - _BUCKET_BITS)).astype(np.uint8)
        order = np.argsort(top, kind="stable").astype(np.uint32 if len(rest) < 1 << 32 else np.int64)
        ends = np.cumsum(np.bincount(top, minlength=1 << _BUCKET_BITS))
        yield from (part for part in np.split(order, ends) if len(part))


def _in_time(several: Numbers, sizes: Numbers, first: Any, offsets: Numbers, times: tuple[Any, Any]) -> Any:
    """Return those first places of a hash whose next row, in the order of arrival, arrived in the first row's time.

    Args:
        several: the places of hashes that occur more than once, grouped by hash.
        sizes: how many places each hash has.
        first: the first of them.
        offsets: where rows begin.
        times: when rows arrived, and until when a later one counts.
    """
    if not len(sizes):
        return first
    arrival, until = times
    rows = np.searchsorted(offsets, first, side="right") - 1
    several[several < np.repeat(offsets[rows + 1], sizes)] = offsets[-1]  # the same row again
    second = np.minimum.reduceat(several, np.cumsum(sizes) - sizes)
    there = second < offsets[-1]
    nearest = np.searchsorted(offsets, second[there], side="right") - 1
    return first[there][arrival[nearest] < until[rows[there]]]
