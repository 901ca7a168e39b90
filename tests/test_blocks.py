"""Leading blocks that other rows hold: arrays against Python sets, for any hashes and any order of arrival."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rlserve import blocks

EXAMPLES = int(os.environ.get("RLSERVE_KV_EXAMPLES", "200"))
"""1,000 and more for a thorough run."""
Row = tuple[list[int], int, int]
"""Hashes, arrival, and for how long later rows count."""

_hashes = st.integers(0, 5) | st.sampled_from([2**53 + 1, 2**63, 2**64 - 2, 2**64 - 1])


@st.composite
def workloads(draw: st.DrawFn) -> list[Row]:
    """Rows that often begin like an earlier one, as turns and samples do."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(st.sampled_from(rows))[0] if rows and draw(st.booleans()) else []
        kept = start[: draw(st.integers(0, len(start)))]
        rows.append((kept + draw(st.lists(_hashes, max_size=4)), draw(st.integers(0, 9)), draw(st.integers(0, 5))))
    return sorted(rows, key=lambda row: row[1])


def slow(rows: list[Row]) -> list[int]:
    found = []
    for place, (hashes, arrival, wait) in enumerate(rows):
        there: set[int] = set()
        for other, (others, came, _) in enumerate(rows):
            if other != place and (other < place or came < arrival + wait):
                there |= set(others)
        found.append(next((n for n, one in enumerate(hashes) if one not in there), len(hashes)))
    return found


def fast(rows: list[Row], *, compare: bool | None) -> list[int]:
    ends = np.cumsum([len(hashes) for hashes, _, _ in rows], dtype=np.int64)
    starts = ends - np.array([len(hashes) for hashes, _, _ in rows], dtype=np.int64)
    arrival = np.array([came for _, came, _ in rows], dtype=np.float64)
    until = arrival + np.array([wait for _, _, wait in rows], dtype=np.float64)
    hashes = np.array([one for some, _, _ in rows for one in some], dtype=np.uint64)
    return blocks.held_by_others(hashes, starts, ends, arrival, until, compare=compare).tolist()


@pytest.mark.parametrize("compare", [True, False])
@pytest.mark.parametrize("bucket", [1, 1 << 18])
@given(rows=workloads())
@settings(max_examples=EXAMPLES, deadline=None)
def test_arrays_count_what_sets_count(rows: list[Row], compare: bool, bucket: int) -> None:
    usual, blocks._ONE_BUCKET = blocks._ONE_BUCKET, bucket
    try:
        assert fast(rows, compare=compare) == slow(rows)
    finally:
        blocks._ONE_BUCKET = usual


def test_neighbours_beyond_2_to_the_63_are_different_blocks() -> None:
    rows = [([2**64 - 1], 0, 0), ([2**64 - 2], 1, 0), ([2**64 - 1], 2, 0)]
    assert fast(rows, compare=None) == [0, 0, 1]


def test_a_later_row_counts_only_if_it_came_before_the_first_token() -> None:
    early, late = [([1, 2], 0, 5), ([1, 3], 4, 0)], [([1, 2], 0, 5), ([1, 3], 5, 0)]
    assert fast(early, compare=True) == [1, 1]
    assert fast(late, compare=True) == [0, 1]


def test_long_rows_and_short_ones_give_the_same() -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(0, 2**64, 3000, dtype=np.uint64).tolist()
    rows = [(base[: int(rng.integers(1, 3000))], n, int(rng.integers(0, 3))) for n in range(60)]
    assert fast(rows, compare=True) == fast(rows, compare=False) == fast(rows, compare=None)


def test_no_row_and_rows_without_blocks() -> None:
    assert fast([], compare=None) == []
    assert fast([([], 0, 1), ([], 0, 1)], compare=True) == [0, 0]
