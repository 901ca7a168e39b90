"""How many leading blocks of each prompt a cache could hold, and how many tokens of earlier turns after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.minima import nearest_below
from pytest_rlserve.prompts import prompts
from pytest_rlserve.recurring import linked
from pytest_rlserve.tree import grown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.prompts import Prompts, Visits
    from pytest_rlserve.tree import Tree

    Numbers = NDArray[np.int64]


def prefixes(capture: Capture) -> Tree:
    """Return the prompts of a capture as a tree.

    Raises:
        NotMeasurable: its hashes are not those of sequences of blocks.
    """
    found = capture.derive(_grown)
    if isinstance(found, NotMeasurable):
        raise NotMeasurable(str(found))
    return found


def _grown(capture: Capture) -> Tree | NotMeasurable:
    links, differ = capture.derive(linked)
    if differ:
        rows = capture.scalars.select(["source", "line"]).take(differ).to_pylist()
        one, other = (f"{row['source']}:{row['line']}" for row in rows)
        return NotMeasurable(
            f"{one} and {other} have the same block hash after different blocks: each of input_sequence_hashes has to "
            "stand for the whole prompt up to its block"
        )
    return grown(links.above, links.begin, capture.derive(prompts).blocks)


def available_blocks(tree: Tree, found: Prompts, visits: Visits) -> Numbers:
    """Return for each row how many leading blocks its cache could hold by its first token; −1 without a visit.

    A block is available if another request that contains it came to the same cache before the row's first token.
    In the order of the tree the nearest such request to either side has most blocks in common.
    """
    order = np.lexsort((tree.place[visits.rows], visits.cells))
    rows, cells = visits.rows[order], visits.cells[order]
    steps = np.zeros(len(rows), dtype=np.int64)
    together = np.flatnonzero(cells[1:] == cells[:-1]) + 1
    steps[together] = tree.shared(rows[together - 1], rows[together])
    came = np.searchsorted(np.sort(found.received), found.first_token)
    ranks, bounds = found.rank[rows], np.maximum(found.rank, came)[rows]
    held = nearest_below(ranks, steps, bounds, np.zeros_like(steps))
    held = nearest_below(ranks[::-1], np.append(0, steps[:0:-1])[: len(steps)], bounds[::-1], held[::-1])[::-1]
    most = np.full(len(found.blocks), -1, dtype=np.int64)
    np.maximum.at(most, rows, held)
    return most


def continued_tokens(tree: Tree, found: Prompts, visits: Visits, available: Numbers) -> tuple[Numbers, Numbers]:
    """Return how many prompt tokens each row could find, the output of earlier turns of its session included.

    Output is in the cache too, but a trace has no hashes of it, nor of the block in which a turn's prompt ends. So
    there are two answers: tokens that are there for certain, as the available blocks cover the earlier turn's
    whole prompt; and tokens that are there if the prompt repeats the earlier turn token by token. The latest turn
    that is there for certain settles both.
    """
    certain = np.maximum(available, 0) * np.maximum(found.block, 0)
    possible, held = certain.copy(), certain.copy()
    of_sessions = found.session[visits.rows] >= 0
    rows, cells = visits.rows[of_sessions], visits.cells[of_sessions]
    order = np.lexsort((found.rank[rows], cells, found.session[rows]))
    rows, cells = rows[order], cells[order]
    sessions = found.session[rows]
    new = np.append(True, (np.diff(sessions) != 0) | (np.diff(cells) != 0))[: len(rows)]
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    ends = found.length + np.maximum(found.output - 1, 0)
    best = _most_so_far(ends[rows], first)
    # All rows look at the turn before them, then those that it did not settle at the one before that, and so on.
    places = np.arange(len(rows))
    turns = places - 1
    while len(places):
        left = np.flatnonzero((turns >= first[places]) & (best[turns] > certain[rows[places]]))
        places, turns = places[left], turns[left]
        here, there = rows[places], rows[turns]
        goes_on = _continues(tree, found, there, here)
        end = np.minimum(ends[there], found.length[here])[goes_on] // found.block[here[goes_on]]
        end *= found.block[here[goes_on]]
        np.maximum.at(possible, here[goes_on], end)
        covered = found.length[there[goes_on]] <= held[here[goes_on]]
        np.maximum.at(certain, here[goes_on[covered]], end[covered])
        places = np.delete(places, goes_on[covered])
        turns = np.delete(turns, goes_on[covered]) - 1
    return certain, possible


def _most_so_far(values: Numbers, first: Numbers) -> Numbers:
    """Return the largest of the values since the first one of each group, up to each; none is negative."""
    step = int(values.max(initial=0)) + 1
    return np.maximum.accumulate(values + first * step) - first * step


def _continues(tree: Tree, found: Prompts, turns: Numbers, rows: Numbers) -> Numbers:
    """Return the places where a row begins with the whole blocks of an earlier turn that had ended by then."""
    may = found.ended[turns] <= found.first_token[rows]
    may &= (found.length[turns] <= found.length[rows]) & (found.output[turns] >= 1)
    may &= (found.block[turns] == found.block[rows]) & (found.blocks[turns] <= found.blocks[rows])
    some = np.flatnonzero(may)
    return some[tree.shared(turns[some], rows[some]) >= found.blocks[turns[some]]]
