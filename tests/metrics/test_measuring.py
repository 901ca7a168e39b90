"""Statistics need enough values, rates per GPU need GPUs, and what is absent is never zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hand_made import completed, control, opened, request_end

from pytest_rlserve.capture import Capture, Manifest
from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.metrics import METRICS, Scope, Value, metric
from pytest_rlserve.metrics.measuring import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray


@pytest.fixture
def made_up() -> Iterator[Callable[..., None]]:
    """Register a function as the metric `made_up` for the length of a test."""

    def register(func: Callable[[Capture, Scope], object], statistics: tuple[str, ...] = ()) -> None:
        func.__name__ = "made_up"
        func.__doc__ = "A metric of this test."
        parts = dict.fromkeys(("numerator", "denominator", "freshness", "phase"), "x")
        metric(unit="requests/s", better="higher", needs=set(), statistics=statistics, **parts)(func)  # type: ignore[arg-type]

    yield register
    METRICS._things.pop("made_up", None)
    METRICS._homes.pop("made_up", None)


def spread(count: int) -> Callable[[Capture, Scope], NDArray[np.float64]]:
    return lambda capture, scope: np.arange(count, dtype=np.float64)


@pytest.mark.parametrize(
    ("statistic", "enough"), [("p50", 1), ("mean", 1), ("max", 1), ("p90", 100), ("p95", 200), ("p99", 1000)]
)
def test_a_statistic_needs_enough_values(made_up: Callable[..., None], statistic: str, enough: int) -> None:
    made_up(spread(enough - 1), ("p50",))
    found = measure(Capture(name="c"), f"made_up.{statistic}")
    assert (found.value, found.n) == (None, enough - 1)
    assert found.why == f"{statistic} needs {enough:,} values, there are {enough - 1:,}"
    made_up(spread(enough), ("p50",))
    assert measure(Capture(name="c"), f"made_up.{statistic}").value is not None


def test_percentiles_are_linear_between_the_values(made_up: Callable[..., None]) -> None:
    made_up(spread(1001), ("p50",))
    capture = Capture(name="c")
    found = [measure(capture, f"made_up.{name}").value for name in ("p50", "p90", "p95", "p99", "mean", "max")]
    assert found == pytest.approx([500, 900, 950, 990, 500, 1000])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_result_that_is_no_number_is_not_observed(made_up: Callable[..., None], value: float) -> None:
    made_up(lambda capture, scope: Value(value, 3))
    found = measure(Capture(name="c"), "made_up")
    assert (found.value, found.why) == (None, "the result is not a finite number")


def test_zero_is_a_value(made_up: Callable[..., None]) -> None:
    made_up(lambda capture, scope: Value(0.0, 3))
    found = measure(Capture(name="c"), "made_up")
    assert (found.value, found.why, found.n) == (0.0, None, 3)


def test_a_rate_per_gpu_needs_the_number_of_gpus(made_up: Callable[..., None]) -> None:
    made_up(lambda capture, scope: Value(12.0, 3))
    with_gpus = measure(Capture(name="c", manifest=Manifest(gpus=4)), "made_up.per_gpu")
    assert (with_gpus.value, with_gpus.unit, with_gpus.name) == (3.0, "requests/s/GPU", "made_up.per_gpu")
    without = measure(Capture(name="c"), "made_up.per_gpu")
    assert without.value is None
    assert "gpus" in str(without.why)


def test_a_function_runs_once_for_all_its_statistics_and_again_for_another_scope(
    made_up: Callable[..., None],
) -> None:
    calls = []

    def counted(capture: Capture, scope: Scope) -> NDArray[np.float64]:
        calls.append(scope)
        return np.arange(5, dtype=np.float64)

    made_up(counted, ("p50",))
    capture = Capture(name="c")
    for key in ("made_up.p50", "made_up.max"):
        measure(capture, key)
    assert len(calls) == 1
    for scope in (Scope(skip_steps=1), Scope(max_lag=2), Scope(freshness="end"), Scope(budgets={"ttft": 1.0})):
        measure(capture, "made_up.p50", scope)
    assert len(calls) == 5


def test_the_reason_why_something_is_not_observed_is_remembered_too(made_up: Callable[..., None]) -> None:
    calls = []

    def missing(capture: Capture, scope: Scope) -> Value:
        calls.append(1)
        raise NotMeasurable("no such thing")

    made_up(missing)
    capture = Capture(name="c")
    assert [measure(capture, "made_up").why for _ in range(2)] == ["no such thing"] * 2
    assert len(calls) == 1


def test_a_capture_without_the_tables_that_a_metric_needs_says_which(tmp_path: Path) -> None:
    found = measure(opened(tmp_path / "c", rows=[request_end("r1")]), "wasted_token_fraction")
    assert found.value is None
    assert found.why == "needs attempt events; the capture has none"


def test_a_rate_of_a_real_window_can_be_had_per_gpu(tmp_path: Path) -> None:
    steps = [control("step_started", 0, step=0), control("step_finished", 10, step=0)]
    events = [event for number in range(40) for event in completed(f"a{number}", 0, 5)]
    capture = opened(tmp_path / "c", control=steps, attempts=events, manifest={"gpus": 8})
    assert measure(capture, "accepted_trajectory_throughput").value == pytest.approx(4.0)
    assert measure(capture, "accepted_trajectory_throughput.per_gpu").value == pytest.approx(0.5)
