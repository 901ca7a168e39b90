"""How units are compared: queue lengths from one request on, so that none is no length without ratio."""

from __future__ import annotations

import math

import pytest

from pytest_rlserve.gate.decision import decide
from pytest_rlserve.gate.scales import assumed_sd, head_start, is_exact, is_linear, raised
from pytest_rlserve.gate.statistics import estimate


def verdict(baseline: list[float], current: list[float]) -> str:
    """Judge queue lengths, one a job, of which less is better."""
    before = raised({f"b{n}": [v] for n, v in enumerate(baseline)}, "requests")
    after = raised({f"a{n}": [v] for n, v in enumerate(current)}, "requests")
    found = estimate(before, after, better="lower", assumed_sd=0.03, linear=False)
    return decide(found, better="lower", allowed=0.10, linear=False).verdict


@pytest.mark.parametrize(
    ("current", "word"),
    [(0.0, "unchanged"), (0.0013, "unchanged"), (0.05, "unchanged"), (1.0, "regressed"), (30.0, "regressed")],
)
def test_a_stray_request_is_no_loss_and_a_queue_is_one(current: float, word: str) -> None:
    assert verdict([0.0, 0.0, 0.0013], [current]) == word


def test_each_unit_has_its_scale() -> None:
    assert [is_linear(unit) for unit in ("fraction", "s", "requests", "count")] == [True, False, False, False]
    assert [is_exact(unit) for unit in ("fraction", "s", "requests", "count")] == [False, False, False, True]
    assert [head_start(unit) for unit in ("requests", "s", "trajectories/s")] == [1.0, 0.0, 0.0]
    assert assumed_sd("ttft.p99", "s") == 0.10 and assumed_sd("kv_reuse_fraction", "fraction") == 0.02


def test_a_queue_that_doubles_from_one_request_is_three_halves_on_its_scale() -> None:
    found = estimate(raised({"a": [1.0]}, "requests"), raised({"b": [2.0]}, "requests"),
                     better="lower", assumed_sd=0.03, linear=False)  # fmt: skip
    assert math.expm1(found.step) == pytest.approx(0.5)
