"""Minima and nearest smaller numbers, against plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_rlserve.minima import Minima, nearest_below

_small = st.integers(0, 6)


@given(st.lists(_small, max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_the_least_number_of_a_part_is_found(numbers: list[int], parts: list[tuple[int, int]]) -> None:
    cut = [(min(first, len(numbers)), min(last, len(numbers))) for first, last in parts]
    firsts, lasts = (np.array([part[end] for part in cut], dtype=np.int64) for end in (0, 1))
    found = Minima(np.array(numbers, dtype=np.int64)).within(firsts, lasts)
    nothing = np.iinfo(np.int64).max
    assert found.tolist() == [min(numbers[first:last], default=nothing) for first, last in cut]


def slow(numbers: list[int], steps: list[int], bounds: list[int], floors: list[int]) -> list[int]:
    found = []
    for place, bound in enumerate(bounds):
        back = [other for other in range(place) if numbers[other] < bound]
        way = min(steps[back[-1] + 1 : place + 1]) if back else 0
        found.append(max(way, floors[place]))
    return found


@given(st.lists(st.tuples(_small, _small, _small, st.integers(0, 3)), max_size=40))
def test_the_way_back_to_the_nearest_smaller_number_has_its_least_step(rows: list[tuple[int, int, int, int]]) -> None:
    columns = [[row[column] for row in rows] for column in range(4)]
    found = nearest_below(*(np.array(column, dtype=np.int64) for column in columns))
    assert found.tolist() == slow(*columns)
