"""Columns as arrays: what is null stays unknown, and numbers go by first appearance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from pytest_rlserve.columns import (
    codes,
    given,
    groups,
    mask,
    picked,
    places_of,
    reals,
    sorted_late,
    sorted_rows,
    totals,
)

if TYPE_CHECKING:
    from pytest_rlserve.columns import Numbers


def test_a_null_is_no_number_and_no_truth() -> None:
    assert np.isnan(reals(pa.chunked_array([[1], [None]]))).tolist() == [False, True]
    assert mask(pa.array([True, None, False])).tolist() == [True, False, False]


def test_an_empty_text_says_nothing() -> None:
    assert given(pa.array(["a", "", None])).to_pylist() == ["a", None, None]


def test_combinations_are_numbered_as_they_come_and_null_is_one_of_their_values() -> None:
    one, other = pa.array(["b", "a", "b", None, "b", None]), pa.array([1, 1, 1, 1, 2, 1])
    assert codes(one, other).tolist() == [0, 1, 0, 2, 3, 2]
    assert codes(pa.array([], pa.string())).tolist() == []


@settings(deadline=None)
@drawn(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 1, 2]), st.integers(-2, 2)), max_size=12))
def test_columns_of_text_and_of_numbers_may_be_combined_whatever_stands_in_them(rows: list[tuple[Any, ...]]) -> None:
    one, other, third = ([row[place] for row in rows] for place in range(3))
    places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    columns = pa.array(one, pa.string()), pa.array(other, pa.int64()), np.array(third, dtype=np.int64)
    assert codes(*columns).tolist() == [places[row] for row in rows]


def test_row_minus_one_is_nobodys() -> None:
    assert picked(pa.array(["a", "b"]), np.array([1, -1, 0])).to_pylist() == ["b", None, "a"]


def test_rows_that_are_equal_keep_their_order() -> None:
    assert sorted_rows({"t": [2.0, 1.0, 2.0, 1.0], "name": ["b", "z", "a", "z"]}).tolist() == [1, 3, 2, 0]


@settings(deadline=None)
@drawn(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.sampled_from("abc")), max_size=12))
def test_texts_decide_between_rows_whose_numbers_are_equal_and_only_of_those_they_are_asked(
    rows: list[tuple[int, bool, str]],
) -> None:
    asked: list[int] = []

    def late(some: Numbers) -> dict[str, Any]:
        asked.extend(some.tolist())
        return {"text": [rows[place][2] for place in some]}

    one, other = (
        np.array([row[0] for row in rows], dtype=np.float64),
        np.array([row[1] for row in rows], dtype=np.bool_),
    )
    assert sorted_late([one, other], late).tolist() == sorted(range(len(rows)), key=lambda place: rows[place])
    equal = Counter(row[:2] for row in rows)
    assert sorted(asked) == [place for place, row in enumerate(rows) if equal[row[:2]] > 1]


def test_numbers_without_an_end_are_equal_too() -> None:
    order = sorted_late([np.array([np.inf, 0, np.inf])], lambda some: {"text": ["b", "a"]})
    assert order.tolist() == [1, 2, 0]


def test_each_number_is_found_where_it_stands() -> None:
    assert {one: some.tolist() for one, some in places_of(np.array([2, 0, 2])).items()} == {0: [1], 2: [0, 2]}
    assert places_of(np.array([], dtype=np.int64)) == {}


def test_places_of_one_number_stand_together_in_order() -> None:
    assert list(groups(np.array([2, 0, 2, 1, 2, 1]))) == [[1], [3, 5], [0, 2, 4]]
    assert list(groups(np.array([2, 0, 2, 1, 2, 1]), least=3)) == [[0, 2, 4]]
    assert list(groups(np.array([], dtype=np.int64))) == []


def test_totals_are_added_up_number_by_number() -> None:
    assert totals(np.array([1, 0, 1]), np.array([0.5, 2.0, 0.25]), 3).tolist() == [2.0, 0.75, 0.0]
