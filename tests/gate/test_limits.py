"""Absolute limits: how they are written, and what they say of a measurement."""

from __future__ import annotations

import pytest

from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.limits import Limit, parse_limit
from pytest_rlserve.metrics import Measurement


def of(value: float | None, limit: Limit, why: str | None = None) -> Measurement:
    """Return a measurement of the limited metric."""
    return Measurement(
        name=limit.metric, capture="run-1", unit=limit.unit, better="lower", n=1200, value=value, why=why
    )


@pytest.mark.parametrize(
    ("key", "text", "sign", "value"),
    [
        ("ttft.p99", "<= 1.5s", "<=", 1.5),
        ("ttft.p99", "<1500 ms", "<", 1.5),
        ("ttft.p99", "1.5s", "<=", 1.5),  # lower is better: bounded above
        ("ttft", "== 1s", "==", 1.0),
        ("accepted_trajectory_throughput", "5", ">=", 5.0),  # higher is better: bounded below
        ("accepted_trajectory_throughput", 5, ">=", 5.0),
        ("accepted_trajectory_throughput", ">= 5 trajectories/s", ">=", 5.0),
        ("completion_fraction", ">= 98%", ">=", 0.98),
        ("completion_fraction", "> 0.98", ">", 0.98),
        ("retry_fraction", "3%", "<=", 0.03),
        ("  ttft.p99".strip(), "  <=  1.5s  ", "<=", 1.5),
    ],
)
def test_a_limit_is_a_sign_and_a_quantity(key: str, text: str | float, sign: str, value: float) -> None:
    found = parse_limit(key, text)
    assert (found.sign, found.value) == (sign, pytest.approx(value))


def test_a_limit_goes_by_the_metrics_one_key() -> None:
    assert parse_limit("ttft", "<= 1s").metric == "ttft.p50"


def test_a_limit_is_written_as_it_is_shown() -> None:
    assert str(parse_limit("ttft.p99", "<=1500ms")) == "<= 1.50 s"
    assert str(parse_limit("completion_fraction", "0.98")) == ">= 98.0 %"


@pytest.mark.parametrize("text", ["", "<=", "=< 1s", "1", "1 m", "fast", "<= -", "<= 1s s", "<= nan s", True, None])
def test_what_is_no_limit_is_refused_with_an_example(text: str | float) -> None:
    with pytest.raises(UsageError, match=r"limit of ttft.p99: .*a limit looks like '<= 1.5s' or '>= 80%'"):
        parse_limit("ttft.p99", text)


def test_a_limit_on_an_unknown_metric_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'ttft'"):
        parse_limit("tftt", "1s")


@pytest.mark.parametrize(
    ("sign", "below", "at", "above"),
    [
        ("<=", "pass", "pass", "failed"),
        ("<", "pass", "failed", "failed"),
        (">=", "failed", "pass", "pass"),
        (">", "failed", "failed", "pass"),
        ("==", "failed", "pass", "failed"),
    ],
)
def test_each_sign_holds_on_its_own_side(sign: str, below: str, at: str, above: str) -> None:
    limit = parse_limit("ttft.p99", f"{sign} 1s")
    assert [limit.judge(of(value, limit)) for value in (0.999, 1.0, 1.001)] == [below, at, above]


def test_what_was_not_observed_neither_passes_nor_fails() -> None:
    limit = parse_limit("ttft.p99", "<= 1s")
    missing = of(None, limit, "p99 needs 1,000 values, there are 40")
    assert limit.judge(missing) == "inconclusive"
    assert limit.message(missing) == (
        "ttft.p99 <= 1.00 s cannot be judged for run-1: p99 needs 1,000 values, there are 40"
    )


def test_a_missed_limit_says_both_numbers_and_of_how_many() -> None:
    limit = parse_limit("ttft.p99", "<= 1s")
    assert limit.message(of(1.25, limit)) == ("ttft.p99 missed its limit: 1.25 s, must be <= 1.00 s (n=1,200, run-1)")
    assert limit.message(of(0.25, limit)) == "ttft.p99 is 250.0 ms, must be <= 1.00 s (n=1,200, run-1)"


def test_zero_is_a_value() -> None:
    limit = parse_limit("retry_fraction", "<= 0%")
    assert limit.judge(of(0.0, limit)) == "pass"
    assert limit.judge(of(0.001, limit)) == "failed"
