"""Hashes that occur again, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rlserve import blocks

_hashes = st.lists(st.integers(0, 5) | st.integers(2**64 - 3, 2**64 - 1) | st.integers(0, 2**64 - 1), max_size=40)


def slow(hashes: list[int]) -> dict[int, int]:
    first: dict[int, int] = {}
    return {place: first[one] for place, one in enumerate(hashes) if first.setdefault(one, place) != place}


@given(_hashes)
def test_every_hash_that_stands_earlier_too_is_found_with_its_first_place(hashes: list[int]) -> None:
    later, first = blocks.repeated(np.array(hashes, dtype=np.uint64))
    assert len(later) == len(set(later.tolist()))
    assert dict(zip(later.tolist(), first.tolist(), strict=True)) == slow(hashes)


def test_hashes_that_only_begin_alike_are_not_equal() -> None:
    hashes = [2**63 + one for one in (0, 1, 0, 2, 1, 0, 3)]
    later, first = blocks.repeated(np.array(hashes, dtype=np.uint64))
    assert dict(zip(later.tolist(), first.tolist(), strict=True)) == {2: 0, 4: 1, 5: 0}


@given(_hashes, st.sampled_from([1, 2, 8, 256]))
def test_equal_hashes_come_to_one_share_and_each_hash_to_one(hashes: list[int], shares: int) -> None:
    values = np.array(hashes, dtype=np.uint64)
    dealt = [(some.tolist(), places.tolist()) for some, places in blocks.dealt(values, shares)]
    assert len(dealt) == shares
    assert sorted(place for _, places in dealt for place in places) == list(range(len(hashes)))
    assert all([hashes[place] for place in places] == some for some, places in dealt)
    assert sum(len(set(some)) for some, _ in dealt) == len(set(hashes))


@pytest.mark.parametrize(("count", "shares"), [(0, 1), (1 << 20, 1), (1 << 21, 2), (40_000_000, 32), (10**12, 256)])
def test_a_share_has_about_two_million_hashes(count: int, shares: int) -> None:
    assert blocks.shares_of(count) == shares
