"""Rows that a reader could not link, packed once more: without sessions, nothing tells which row a turn goes on from.

A long row is compared with an earlier one that has the same hash at one of some depths. What both share is then held
once, so that little is left to be looked through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pytest_rlserve import blocks
from pytest_rlserve.chains import CHAINS, packing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_EVERY: Final = 64
"""Hashes between two depths at which rows are looked at."""
_WORTH: Final = 0.5
"""Share of all own hashes that such rows must have: a few more hashes to sort cost less than packing all anew."""


def repacked(chains: pa.Table) -> pa.Table:
    """Return the chains with more of the long rows packed that share nothing yet; their lists stay what they are."""
    back, shared = (chains[name].to_numpy().copy() for name in ("back", "shared"))
    sizes = packing(chains)["size"].fill_null(0).to_numpy()
    rows = np.flatnonzero((shared == 0) & (sizes >= _EVERY))
    if len(rows) < 2 or sizes[rows].sum() < _WORTH * sizes.sum():
        return chains
    lists = chains["own"].chunks
    hashes = np.concatenate([np.asarray(own.flatten()) for own in lists])
    starts = np.cumsum(sizes) - sizes
    kept = np.ones(len(hashes), dtype=bool)
    candidates = zip(*(some.tolist() for some in _like_earlier(hashes, rows, starts, sizes)), strict=True)
    for row, source, depth in candidates:
        here, there = starts[row], starts[source]
        if (hashes[here : here + depth] == hashes[there : there + depth]).all():
            kept[here : here + depth] = False
            back[row], shared[row] = row - source, depth
    if kept.all():
        return chains
    edges = np.append(0, np.cumsum(sizes - np.where(chains["shared"].to_numpy() == 0, shared, 0)))
    values, batches, row = hashes[kept], [], 0
    for own in lists:
        some = edges[row : row + len(own) + 1]
        inside = pa.array(values[some[0] : some[-1]])
        new = pa.ListArray.from_arrays(pa.array(some - some[0], pa.int32()), inside, mask=own.is_null())
        arrays = [pa.array(column[row : row + len(own)]) for column in (back, shared)]
        batches.append(pa.RecordBatch.from_arrays([*arrays, new], schema=CHAINS))
        row += len(own)
    return pa.Table.from_batches(batches, schema=CHAINS)


def _like_earlier(hashes: Hashes, rows: Numbers, starts: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return rows, for each an earlier row with the same hash at the same depth, and how many hashes stand up to it."""
    counts = sizes[rows] // _EVERY
    whose = np.repeat(rows, counts)
    depths = (np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts) + 1) * _EVERY
    later, first = blocks.repeated(hashes[starts[whose] + depths - 1])
    same = depths[later] == depths[first]
    later, first = later[same], first[same]
    deepest = np.lexsort((depths[later], whose[later]))
    deepest = deepest[np.flatnonzero(np.diff(whose[later][deepest], append=-1))]
    return whose[later[deepest]], whose[first[deepest]], depths[later[deepest]]
