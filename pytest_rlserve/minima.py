"""Least numbers of parts of an array, for many questions at once: a binary tree of minima, climbed level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_MOST: Final = np.iinfo(np.int64).max


class Minima:
    """An array of integers, and the minima of its pairs, of their pairs, and so on."""

    def __init__(self, numbers: Numbers) -> None:
        """Take the array; it takes as much memory again."""
        self.levels = [numbers]
        while len(numbers := self.levels[-1]) > 1:
            if len(numbers) % 2:
                numbers = np.append(numbers, _MOST)
            self.levels.append(np.minimum(numbers[::2], numbers[1::2]))

    def within(self, first: Numbers, last: Numbers) -> Numbers:
        """Return the least number at or after `first` and before `last`; the largest integer where that is nothing."""
        found = np.full(len(first), _MOST)
        who = np.flatnonzero(first < last)
        first, last = first[who], last[who]
        for numbers in self.levels:
            for ends, odd in ((first, first & 1), (last - 1, last & 1)):
                some = np.flatnonzero(odd)
                found[who[some]] = np.minimum(found[who[some]], numbers[ends[some]])
            first, last = (first + 1) >> 1, last >> 1
            left = np.flatnonzero(first < last)
            if not len(left):
                break
            who, first, last = who[left], first[left], last[left]
        return found


def nearest_below(numbers: Numbers, steps: Numbers, bounds: Numbers, floors: Numbers) -> Numbers:
    """Go back from each place to the nearest one whose number is below the bound, and return the least step on the way.

    Args:
        numbers: one for each place.
        steps: from each place to the one before it; none is negative.
        bounds: what each place looks for a smaller number than.
        floors: a way is of no interest once it has a step as small as that.

    Returns:
        The least steps; the floor where there is no such place, or no way of interest to it.
    """
    found = floors.copy()
    known, lows = Minima(numbers).levels, Minima(steps).levels
    who, at, low = np.arange(len(numbers)), np.arange(len(numbers)), steps
    for level, (there, least) in enumerate(zip(known, lows, strict=True)):
        open_ones = np.flatnonzero((at > 0) & (low > floors[who]))
        who, at, low = who[open_ones], at[open_ones], low[open_ones]
        odd = np.flatnonzero(at & 1)
        blocks = at[odd] - 1
        hit = there[blocks] < bounds[who[odd]]
        passed = odd[~hit]
        low[passed] = np.minimum(low[passed], least[blocks[~hit]])
        reached = who[odd[hit]]
        found[reached] = _last_step(known[:level], lows[:level], blocks[hit], low[odd[hit]], bounds[reached])
        at >>= 1
        at[odd[hit]] = 0
    return np.maximum(found, floors)


def _last_step(known: list[Numbers], lows: list[Numbers], blocks: Numbers, low: Numbers, bounds: Numbers) -> Numbers:
    """Go down to the last place of each block whose number is below the bound; `low` is the least step so far."""
    for there, least in zip(reversed(known), reversed(lows), strict=True):
        last = 2 * blocks + 1
        # The last block of a level may have no partner.
        inside = np.minimum(last, len(there) - 1)
        is_last = (last == inside) & (there[inside] < bounds)
        low = np.where(is_last | (last > inside), low, np.minimum(low, least[inside]))
        blocks = np.where(is_last, last, last - 1)
    return low
