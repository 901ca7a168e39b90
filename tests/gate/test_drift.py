"""Many small steps: the current runs against the first jobs of the first level, accepted changes taken out."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.documents import RATE, SHARE, baseline
from pytest_rlserve.gate.baseline import Baseline
from pytest_rlserve.gate.drift import drift

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_rlserve.gate.decision import Result


def level(value: float, *names: str) -> dict[str, list[float]]:
    """Return jobs that spread by about 1 % around a value."""
    return {name: [value * (1 + 0.01 * (number % 3 - 1))] for number, name in enumerate(names)}


def drifted(stored: Baseline, current: Mapping[str, list[float]], key: str = RATE, **more: Any) -> Result:
    found = drift(
        stored,
        key,
        current,
        **{"better": "higher", "allowed": 0.05, "linear": key == SHARE, "assumed_sd": 0.03, **more},
    )
    assert found is not None
    return found[0]


def test_a_baseline_that_is_no_more_than_its_anchor_cannot_have_drifted() -> None:
    found = drift(
        baseline(level(10.0, "a", "b", "c")),
        RATE,
        level(5.0, "n"),
        better="higher",
        allowed=0.05,
        linear=False,
        assumed_sd=0.03,
    )
    assert found is None


def test_small_steps_add_up_to_a_regression_although_the_newest_runs_are_close() -> None:
    """Nine steps of 2 % from 10.0 down; the current runs are 2 % below the last."""
    jobs = {f"j{n}": [10.0 * 0.98**n] for n in range(9)}
    result = drifted(baseline({**level(10.0, "a", "b", "c"), **jobs}), level(10.0 * 0.98**9, "x", "y", "z"))
    assert result.verdict == "regressed"
    assert result.delta == pytest.approx(0.98**9 - 1, rel=0.01)


def test_what_accepted_changes_measured_on_few_runs_is_not_known_exactly() -> None:
    """Twelve changes to and fro, each measured with an error of 3 %: their sum is off by 10 % (root of twelve)."""
    levels = [level(10.0, "a", "b", "c"), *({f"l{n}": [10.0]} for n in range(12))]
    document = dict(baseline(*levels, moved=[0.0] * 12).document)
    current = level(8.6, "x", "y", "z")
    for error, word in ((0.0, "regressed"), (0.03, "inconclusive")):
        for one in document["levels"][1:]:
            one["moved"][RATE]["error"] = error
        assert drifted(Baseline(Path("s.json"), document), current).verdict == word


def test_twice_the_allowed_change_is_allowed() -> None:
    """2 x ln(1/0.95) is a loss of 9.75 %: what is asked of a drift, in the words of a user."""
    stored = baseline({**level(10.0, "a", "b", "c"), **level(9.3, "d", "e", "f")})
    found = drift(stored, RATE, level(9.2, "x", "y", "z"), better="higher", allowed=0.05, linear=False, assumed_sd=0.03)
    assert found is not None and found[1] == pytest.approx(1 - 0.95**2)
    assert found[0].verdict != "regressed"
    assert drifted(stored, level(8.8, "x", "y", "z")).verdict == "regressed"


def test_for_latencies_more_is_worse() -> None:
    stored = baseline({**level(1.0, "a", "b", "c"), **level(1.04, "d", "e", "f")})
    slower, faster = level(1.25, "x", "y", "z"), level(0.8, "x", "y", "z")
    assert drifted(stored, slower, better="lower").verdict == "regressed"
    assert drifted(stored, faster, better="lower").verdict != "regressed"


def test_fractions_drift_by_points() -> None:
    stored = baseline({"a": [0.90], "b": [0.91], "c": [0.89], "d": [0.90]}, key=SHARE)
    assert drifted(stored, {"x": [0.85], "y": [0.85], "z": [0.85]}, SHARE, allowed=0.02).verdict == "regressed"
    assert drifted(stored, {"x": [0.87], "y": [0.87], "z": [0.87]}, SHARE, allowed=0.02).verdict != "regressed"


# -- accepted changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accepted", [-0.30, 0.40])
def test_an_accepted_change_is_no_drift_and_hides_none(accepted: float) -> None:
    after = 10.0 * (1 + accepted)
    stored = baseline(level(10.0, "a", "b", "c"), level(after, "d", "e", "f"), moved=[accepted])
    same = drifted(stored, level(after, "x", "y", "z"))
    assert same.verdict == "unchanged" and same.delta == pytest.approx(0.0, abs=1e-9)
    lost = drifted(stored, level(0.85 * after, "x", "y", "z"))
    assert lost.verdict == "regressed" and lost.delta == pytest.approx(-0.15, abs=1e-9)


def test_accepted_changes_of_several_levels_multiply() -> None:
    stored = baseline(
        level(10.0, "a", "b", "c"),
        level(8.0, "d", "e", "f"),
        level(12.0, "g", "h", "i"),
        moved=[-0.2, 0.5],
    )
    assert drifted(stored, level(12.0, "x", "y", "z")).delta == pytest.approx(0.0, abs=1e-9)


def test_accepted_points_of_a_fraction_add_up() -> None:
    stored = baseline({"a": [0.9]}, {"b": [0.8]}, {"c": [0.85]}, key=SHARE, moved=[-0.1, 0.05])
    assert drifted(stored, {"x": [0.85]}, SHARE).delta == pytest.approx(0.0, abs=1e-9)


def test_a_level_that_moved_another_metric_explains_nothing_of_this_one() -> None:
    stored = baseline(level(10.0, "a", "b", "c"), level(8.0, "d", "e", "f"), moved=[None])
    assert drifted(stored, level(8.0, "x", "y", "z")).delta == pytest.approx(-0.2, abs=1e-9)


def test_a_job_that_is_also_in_the_anchor_is_still_compared_with_the_whole_anchor() -> None:
    stored = baseline({**level(10.0, "a", "b", "c"), "d": [10.0]})
    result = drifted(stored, {"a": [8.0]})
    assert result.noise is not None and result.noise.origin == "measured"
    assert result.verdict == "regressed"


# -- the anchor and the noise -----------------------------------------------------------------------------------------


def test_the_anchor_is_the_first_three_jobs_and_does_not_move() -> None:
    stored = baseline({name: [value] for name, value in zip("abcdef", (10, 11, 12, 1, 2, 3), strict=True)})
    assert stored.anchor(RATE) == {"a": [10], "b": [11], "c": [12]}
    assert stored.beyond_anchor(RATE)
    assert not baseline({"a": [10], "b": [11], "c": [12]}).beyond_anchor(RATE)
    assert baseline({"a": [10]}, {"b": [11]}, moved=[0.1]).beyond_anchor(RATE)


def test_noise_is_taken_from_neighbours_in_time_so_that_a_drift_does_not_hide_itself() -> None:
    """Steps of 2 % each between neighbours are calm; the whole level spreads by 12 %."""
    stored = baseline({f"j{number}": [10.0 * 0.98**number] for number in range(20)})
    variance, df = stored.calm_spread(RATE, linear=False)
    assert math.sqrt(variance) == pytest.approx(-math.log(0.98) / math.sqrt(2))
    assert df == pytest.approx(19 * 2 / 3)


@given(st.lists(st.floats(0.1, 0.9), min_size=2, max_size=20))
def test_the_mean_squared_successive_difference_by_its_definition(values: list[float]) -> None:
    """von Neumann and others (1941): the sum of squared steps by twice their number."""
    stored = baseline({f"j{number}": [value] for number, value in enumerate(values)}, key=SHARE)
    variance, _ = stored.calm_spread(SHARE, linear=True)
    steps = [(b - a) ** 2 for a, b in itertools.pairwise(values)]
    assert variance == pytest.approx(sum(steps) / (2 * len(steps)), abs=1e-12)


def test_one_job_has_no_neighbour() -> None:
    assert baseline({"a": [10.0]}).calm_spread(RATE, linear=False) == (0.0, 0.0)
