"""Rows that begin like an earlier row, whoever saw it: their reader, or a search that found their hashes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Links:
    """How rows are packed: each begins like a row above it, and goes on with hashes of its own."""

    above: Numbers
    """−1 for a row that begins by itself."""
    begin: Numbers
    """Leading hashes that both share."""
    own: Numbers
    """Where the own hashes of each row begin among those of all rows; the last number is the end."""

    def before(self, places: Numbers, rows: Numbers) -> Numbers:
        """Return where the hash stands that comes before each own hash in its prompt; −1 before the first one.

        Args:
            places: where own hashes stand.
            rows: whose they are.
        """
        found, depth = places - 1, self.begin[rows] - 1
        found[(places == self.own[rows]) & (depth < 0)] = -1
        active = np.flatnonzero((places == self.own[rows]) & (depth >= 0))
        at = rows[active]
        while len(active):
            at = self.above[at]
            here = depth[active] >= self.begin[at]
            found[active[here]] = self.own[at[here]] + depth[active[here]] - self.begin[at[here]]
            active, at = active[~here], at[~here]
        return found


def relinked(links: Links, later: Numbers, first: Numbers) -> tuple[Links, tuple[int, int] | None]:
    """Let rows begin like those in which their leading own hashes stand first.

    Args:
        links: as the rows are packed.
        later: places of own hashes that stand at an earlier place too.
        first: for each, the first such place.

    Returns:
        The links, and two rows that have a hash in common but not what comes before it, if there are any: then a hash
        does not stand for a whole prompt, and the links are as they were.
    """
    order = np.argsort(later)
    later, first = later[order], first[order]
    rows = np.repeat(np.arange(len(links.begin)), np.diff(np.searchsorted(later, links.own)))
    sources = np.searchsorted(links.own, first, side="right") - 1
    odd = np.flatnonzero(_differ(links, later, first, rows, sources))
    if len(odd):
        return links, (int(sources[odd[0]]), int(rows[odd[0]]))
    last = np.flatnonzero(np.diff(rows, append=-1))
    above, begin = links.above.copy(), links.begin.copy()
    above[rows[last]] = sources[last]
    begin[rows[last]] += later[last] + 1 - links.own[rows[last]]
    return Links(above, begin, links.own), None


def _differ(links: Links, later: Numbers, first: Numbers, rows: Numbers, sources: Numbers) -> NDArray[np.bool_]:
    """Tell which hashes come after another hash than where they stand first; `later` ascends."""

    def known(places: Numbers) -> Numbers:
        found = np.minimum(np.searchsorted(later, places), len(later) - 1)
        return np.where(later[found] == places, first[found], places)

    # Nearly always the hash before was found again as well, and stands first right before this one.
    plain = (later[1:] - 1 == later[:-1]) & (first[1:] - 1 == first[:-1])
    plain &= (rows[1:] == rows[:-1]) & (sources[1:] == sources[:-1])
    odd = np.append(True, ~plain)[: len(later)]
    some = np.flatnonzero(odd)
    if len(some):
        here, there = links.before(later[some], rows[some]), links.before(first[some], sources[some])
        odd[some] = known(here) != known(there)
    return odd
