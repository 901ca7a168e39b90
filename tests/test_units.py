"""Quantities as people write and read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rlserve.errors import UsageError
from pytest_rlserve.units import change, parse, percent, points, show


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("800ms", "s", 0.8),
        ("1.5 s", "s", 1.5),
        (" 2min ", "s", 120.0),
        ("1h", "s", 3600.0),
        ("250us", "s", 250e-6),
        ("250µs", "s", 250e-6),
        ("2 GiB", "bytes", 2 * 2**30),
        ("1.5kB", "bytes", 1500.0),
        (7, "bytes", 7.0),
        ("3%", "fraction", 0.03),
        ("0.03", "fraction", 0.03),
        (0.8, "fraction", 0.8),
        ("150%", "fraction", 1.5),
        ("-2%", "fraction", -0.02),
        ("12", "count", 12.0),
        ("1,000", "count", 1000.0),
        ("1_000", "count", 1000.0),
        ("1e3", "count", 1000.0),
        ("41.7", "trajectories/s", 41.7),
        ("41.7 trajectories/s", "trajectories/s", 41.7),
    ],
)
def test_a_quantity_is_read_in_its_base_unit(text: str | float, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit", "hint"),
    [
        ("5", "s", "'800ms'"),
        (5, "s", "'800ms'"),
        ("5 parsecs", "s", "'800ms'"),
        ("80", "fraction", "80%"),
        (1.2, "fraction", "1.2%"),
        ("3 GB/s", "bytes", "'2 GiB'"),
        ("fast", "s", "not a quantity"),
        ("", "s", "not a quantity"),
        ("nan", "count", "not a quantity"),
        ("inf", "count", "not a quantity"),
        (True, "count", "not a quantity"),
        (None, "count", "not a quantity"),
        ([], "s", "not a quantity"),
        ("1 2", "count", "no unit that fits"),
    ],
)
def test_what_is_no_quantity_of_the_unit_is_wrong_use_that_shows_one(text: object, unit: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        parse(text, unit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "n/a"),
        (math.nan, "s", "not a number"),
        (math.inf, "fraction", "not a number"),
        (0.0, "s", "0 s"),
        (0.0514, "s", "51.40 ms"),
        (0.4494, "s", "449.4 ms"),
        (1.5, "s", "1.50 s"),
        (0.6449, "fraction", "64.5 %"),
        (0.0, "fraction", "0.0 %"),
        (1.0, "fraction", "100.0 %"),
        (1234.0, "count", "1,234"),
        (0.0, "count", "0"),
        (2.5, "count", "2.50"),
        (8.7496, "trajectories/s", "8.75 trajectories/s"),
        (2166.24, "tokens/s", "2,166.2 tokens/s"),
        (0.0123, "requests/s", "0.0123 requests/s"),
    ],
)
def test_a_value_is_shown_in_the_scale_a_reader_expects_and_absent_is_not_zero(
    value: float | None, unit: str, text: str
) -> None:
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.062, "+6.2 %"),
        (-0.062, "-6.2 %"),
        (0.0, "0.0 %"),
        (-0.00001, "0.0 %"),
        (0.00001, "0.0 %"),
        (-1.0, "-100.0 %"),
    ],
)
def test_a_change_has_its_sign_and_nothing_has_none(share: float, text: str) -> None:
    assert percent(share) == text


def test_fractions_change_by_points_and_everything_else_by_percent() -> None:
    assert change(-0.021, "fraction") == points(-0.021) == "-2.1 points"
    assert change(-0.021, "s") == "-2.1 %"
    assert change(0.05, "s", signed=False) == "5.0 %"


@given(st.text(max_size=20), st.sampled_from(["s", "bytes", "fraction", "count", "tokens/s"]))
def test_text_of_any_kind_is_a_finite_quantity_or_wrong_use(text: str, unit: str) -> None:
    try:
        value = parse(text, unit)
    except UsageError:
        return
    assert math.isfinite(value)


@given(
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(["s", "fraction", "count", "tokens/s"]),
)
def test_any_number_can_be_shown(value: float, unit: str) -> None:
    number = show(value, unit).split(" ")[0]
    assert math.isfinite(float(number.replace(",", "")))
    assert "e" not in number
