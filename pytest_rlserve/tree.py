"""All prompts as one tree: a row begins with the path of an earlier row, leaves it at some depth, and goes on alone.

The rows are put in an order in which those that begin alike are neighbours. How many leading blocks two rows share is
then the least step from one neighbour to the next between them, and nothing has to look at a hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.minima import Minima

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tree:
    """The order of the rows, and how much neighbours in it share."""

    place: Numbers
    """Of each row; there are places without a row."""
    steps: Minima
    """Leading blocks that each place shares with the one before it."""

    def shared(self, one: Numbers, other: Numbers) -> Numbers:
        """Return how many leading blocks each row of `one` shares with the row of `other`, which is another."""
        first, last = self.place[one], self.place[other]
        return self.steps.within(np.minimum(first, last) + 1, np.maximum(first, last) + 1)


def grown(above: Numbers, begin: Numbers, length: Numbers) -> Tree:
    """Put the rows of a tree in order.

    Args:
        above: for each row, an earlier row whose path it begins with; −1 for a row that begins by itself.
        begin: how many leading hashes they share, 0 where there is no row above. A row shares none of the hashes after
            those with an earlier one.
        length: how many of its leading hashes count, its whole blocks; its path may be longer.
    """
    above = _holder(above, begin, above, begin)
    left_at = np.zeros_like(begin)
    np.maximum.at(left_at, above[above >= 0], begin[above >= 0])
    # Mostly a row ends where its path does. One that ends earlier leaves a path like others do: its own path if other
    # rows need that, so that the row takes a second place, else the path that holds its last block.
    early = np.flatnonzero((length < begin) | (length < left_at))
    joined = _holder(early, length[early], above, begin)
    needed = left_at[early] > 0
    at = np.arange(len(above))
    at[early[needed]] = len(above) + np.arange(int(needed.sum()))
    above, begin = np.append(above, joined[needed]), np.append(begin, length[early[needed]])
    moved = early[~needed]
    above[moved], begin[moved] = joined[~needed], length[moved]
    places = _places(above, begin)
    steps = np.empty_like(begin)
    steps[places] = begin
    return Tree(places[at], Minima(steps))


def _holder(rows: Numbers, depth: Numbers, above: Numbers, begin: Numbers) -> Numbers:
    """Return the row, at or above each of `rows`, on whose own path the last block before a depth lies; −1 for none."""
    found = np.where(depth > 0, rows, -1)
    active = np.flatnonzero(found >= 0)
    while len(active):
        active = active[depth[active] <= begin[found[active]]]
        found[active] = above[found[active]]
    return found


def _places(above: Numbers, begin: Numbers) -> Numbers:
    """Return the place of each row: behind the row above it, those first that leave it last."""
    parents = above.tolist()
    sizes = [1] * len(parents)
    for row in range(len(parents) - 1, -1, -1):  # a row stands after the row above it
        if (parent := parents[row]) >= 0:
            sizes[parent] += sizes[row]
    order = np.lexsort((-begin, above))
    some = np.array(sizes, dtype=np.int64)[order]
    ahead = np.cumsum(some) - some
    ahead -= ahead[np.searchsorted(above[order], above[order])]
    behind = np.empty_like(ahead)
    behind[order] = ahead
    places = (behind + (above >= 0)).tolist()
    for row, parent in enumerate(parents):
        if parent >= 0:
            places[row] += places[parent]
    return np.array(places, dtype=np.int64)
