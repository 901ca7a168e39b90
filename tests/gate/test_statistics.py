"""The estimate of the harm, against formulas written a second time from the design's text, and against tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rlserve.gate import statistics
from pytest_rlserve.gate.statistics import Estimate, estimate, estimate_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Jobs = Mapping[str, Sequence[float]]

# One-sided points of Student's t, from the printed table: W. S. Gosset's table as in R. A. Fisher and F. Yates,
# Statistical Tables, table III: degrees of freedom → point, by the probability below it.
TABLE = {
    0.80: {1: 1.376, 2: 1.061, 4: 0.941, 10: 0.879, 30: 0.854},
    0.95: {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 10: 1.812, 30: 1.697},
    0.975: {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 10: 2.228, 30: 2.042},
    0.99: {2: 6.965, 4: 3.747, 10: 2.764},
}

rates = st.floats(0.1, 1e4)
shares = st.floats(0.0, 1.0)
better = st.sampled_from(["higher", "lower"])


def jobs(values: st.SearchStrategy[float], prefix: str, least: int = 1, most: int = 5) -> st.SearchStrategy[Jobs]:
    """Draw some jobs of one to three runs each, under names that no other prefix has."""
    runs = st.lists(st.lists(values, min_size=1, max_size=3), min_size=least, max_size=most)
    return runs.map(lambda drawn: {f"{prefix}{number}": one for number, one in enumerate(drawn)})


def judged(baseline: Jobs, current: Jobs, **more: Any) -> Estimate:
    return estimate(baseline, current, **{"better": "higher", "assumed_sd": 0.03, "linear": False, **more})


def singles(*values: float, prefix: str = "job") -> dict[str, list[float]]:
    return {f"{prefix}-{number}": [value] for number, value in enumerate(values)}


@pytest.mark.parametrize(("probability", "df", "point"), [(p, df, t) for p in TABLE for df, t in TABLE[p].items()])
def test_quantiles_are_those_of_the_printed_table(probability: float, df: int, point: float) -> None:
    assert statistics.quantile(probability, df) == pytest.approx(point, abs=0.0005)


def test_half_the_distribution_lies_below_zero() -> None:
    assert statistics.quantile(0.5, 3) == pytest.approx(0.0, abs=1e-12)


# -- the estimate, from the text of the design ----------------------------------------------------------------------


def by_the_text(baseline: Jobs, current: Jobs, *, linear: bool, carried: tuple[float, float]) -> tuple[float, ...]:
    """Step, standard error and degrees of freedom between jobs, as DESIGN §8 words them.

    Runs of one job are averaged first; y = ln(metric), or the value for fractions; s is the pooled sd between jobs,
    at least 0.5 %, with the carried variance; below three baseline jobs an assumed 3 % with 4 pseudo-degrees.
    """
    sides = []
    for side in (baseline, current):
        means = []
        for values in side.values():
            y = [value if linear else math.log(value) for value in values]
            means.append(sum(y) / len(y))
        sides.append(means)
    centers = [sum(means) / len(means) for means in sides]
    squares = sum((y - center) ** 2 for means, center in zip(sides, centers, strict=True) for y in means)
    df = len(sides[0]) - 1 + len(sides[1]) - 1 + carried[1]
    sd = max(math.sqrt((squares + carried[0] * carried[1]) / df), 0.005) if df else 0.0
    if carried[1] + len(sides[0]) < 3:
        sd, df = 0.03, 4
    return centers[1] - centers[0], sd * math.sqrt(1 / len(sides[0]) + 1 / len(sides[1])), df


@given(jobs(rates, "b"), jobs(rates, "c"), better, st.sampled_from([(0.0, 0.0), (0.0009, 2.0), (0.0004, 7.0)]))
def test_rates_are_compared_by_logarithms_as_the_text_says(
    baseline: Jobs, current: Jobs, better: Any, carried: tuple[float, float]
) -> None:
    found = judged(baseline, current, better=better, carried=carried)
    step, error, df = by_the_text(baseline, current, linear=False, carried=carried)
    assert found.step == pytest.approx(step, abs=1e-9)
    assert found.harm == (found.step if better == "lower" else -found.step)
    assert found.error == pytest.approx(error, rel=1e-6, abs=1e-9)
    assert found.noise.df == df
    assert found.jobs == (len(baseline), len(current))


@given(jobs(shares, "b"), jobs(shares, "c"), better)
def test_fractions_are_compared_by_differences_as_the_text_says(baseline: Jobs, current: Jobs, better: Any) -> None:
    found = judged(baseline, current, better=better, linear=True)
    step, error, df = by_the_text(baseline, current, linear=True, carried=(0.0, 0.0))
    assert found.step == pytest.approx(step, abs=1e-9)
    assert found.error == pytest.approx(error, rel=1e-6, abs=1e-9)
    assert found.noise.df == df


def test_a_worked_example_of_five_against_three_jobs() -> None:
    found = judged(singles(100, 102, 98, 101, 99), singles(90, 91, 89, prefix="current"))
    assert found.harm == pytest.approx(0.10530, abs=1e-5)  # ln(99.990 / 89.996), the geometric means
    assert found.noise.sd == pytest.approx(0.01442, abs=1e-5)
    assert found.error == pytest.approx(0.01442 * math.sqrt(1 / 5 + 1 / 3), abs=1e-5)
    assert (found.noise.df, found.noise.origin, found.counted) == (6, "measured", (5, 3))
    assert found.bound(0.05) == pytest.approx(1.943 * found.error, rel=1e-3)


def test_runs_of_a_job_count_once_however_many_there_are() -> None:
    once = judged(singles(10, 11, 12), {"new": [9.0]})
    often = judged({job: values * 8 for job, values in singles(10, 11, 12).items()}, {"new": [9.0] * 8})
    assert often.error == pytest.approx(once.error)
    assert often.noise.df == once.noise.df == 2


@given(jobs(rates, "b", least=3), jobs(rates, "c", least=3), better)
def test_swapping_baseline_and_current_turns_the_sign_and_nothing_else(
    baseline: Jobs, current: Jobs, better: Any
) -> None:
    there, back = judged(baseline, current, better=better), judged(current, baseline, better=better)
    assert there.harm == pytest.approx(-back.harm, abs=1e-12)
    assert there.error == pytest.approx(back.error, rel=1e-9)
    assert there.noise.df == back.noise.df


@given(jobs(st.floats(1.0, 1e3), "b"), jobs(st.floats(1.0, 1e3), "c"), st.floats(1e-6, 1e6))
def test_the_unit_of_a_rate_does_not_matter(baseline: Jobs, current: Jobs, factor: float) -> None:
    scaled = [{job: [v * factor for v in values] for job, values in side.items()} for side in (baseline, current)]
    one, other = judged(baseline, current), judged(*scaled)
    assert one.harm == pytest.approx(other.harm, abs=1e-9)
    assert one.error == pytest.approx(other.error, rel=1e-5, abs=1e-8)


@given(jobs(st.floats(0.2, 0.5), "b"), jobs(st.floats(0.2, 0.5), "c"), st.floats(-0.2, 0.5))
def test_a_fraction_may_be_shifted(baseline: Jobs, current: Jobs, shift: float) -> None:
    moved = [{job: [v + shift for v in values] for job, values in side.items()} for side in (baseline, current)]
    one, other = judged(baseline, current, linear=True), judged(*moved, linear=True)
    assert one.harm == pytest.approx(other.harm, abs=1e-12)
    assert one.error == pytest.approx(other.error, rel=1e-5, abs=1e-8)


# -- where the noise comes from -----------------------------------------------------------------------------------


def test_jobs_that_agree_by_chance_leave_half_a_percent_of_noise() -> None:
    found = judged(singles(10, 10, 10), {"new": [10.0]})
    assert found.noise.sd == 0.005 and found.noise.origin == "measured"


def test_noise_above_the_floor_is_taken_as_it_is() -> None:
    found = judged(singles(10.0, 10.2, 9.8), {"new": [10.0]})
    assert found.noise.sd == pytest.approx(0.02, rel=0.01)


@pytest.mark.parametrize("baseline_jobs", [1, 2])
def test_below_three_baseline_jobs_noise_is_assumed_and_worth_four_degrees(baseline_jobs: int) -> None:
    found = judged(singles(*[10.0, 14.0][:baseline_jobs]), singles(9, 12, 20, prefix="new"), assumed_sd=0.06)
    assert (found.noise.origin, found.noise.sd, found.noise.df) == ("assumed", 0.06, 4)


def test_the_third_baseline_job_ends_the_assumption() -> None:
    assert judged(singles(10, 11, 12), {"new": [9.0]}).noise.origin == "measured"


def test_what_earlier_levels_showed_counts_as_if_its_jobs_were_still_there() -> None:
    found = judged(singles(10.0), {"new": [9.0]}, carried=(0.0004, 2.0))
    assert (found.noise.origin, found.noise.df) == ("measured", 2.0)
    assert found.noise.sd == pytest.approx(0.02)


def test_pooling_weighs_variances_by_their_degrees_of_freedom() -> None:
    assert statistics.pooled([(1.0, 1.0), (4.0, 3.0)]) == (13 / 4, 4.0)
    assert statistics.pooled([(0.0, 0.0), (0.0, 0.0)]) == (0.0, 0.0)


def test_the_spread_between_jobs_is_that_of_their_means() -> None:
    variance, df = statistics.job_spread({"a": [0.4, 0.6], "b": [0.7]}, linear=True)
    assert (variance, df) == (pytest.approx(0.02), 1)
    variance, df = statistics.job_spread({"a": [math.e], "b": [math.e**3]}, linear=False)
    assert (variance, df) == (pytest.approx(2.0), 1)


# -- same job and pairs -------------------------------------------------------------------------------------------


def test_runs_of_jobs_that_both_sides_share_are_compared_inside_them() -> None:
    """A job that is 30 % slower as a whole says nothing about the change."""
    baseline = {"a": [10.0, 10.1, 9.9], "b": [7.0, 7.1, 6.9]}
    found = judged(baseline, {"b": [6.9, 7.0, 7.1]})
    assert found.noise.origin == "same job"
    assert found.noun == "runs"
    assert found.step == pytest.approx(0.0, abs=1e-9)
    y = [[math.log(v) for v in vs] for vs in (*baseline.values(), [6.9, 7.0, 7.1])]
    squares = sum(sum((v - sum(vs) / 3) ** 2 for v in vs) for vs in y)
    assert found.noise.df == 6
    assert found.noise.sd == pytest.approx(math.sqrt(squares / 6))
    assert found.error == pytest.approx(found.noise.sd * math.sqrt(1 / 3 + 1 / 3))


def test_two_shared_jobs_are_averaged_with_equal_weight() -> None:
    found = judged({"a": [10.0, 10.0], "b": [20.0]}, {"a": [11.0], "b": [20.0, 20.0, 20.0]})
    assert found.step == pytest.approx(math.log(1.1) / 2)
    assert found.error == pytest.approx(found.noise.sd * math.sqrt((1 / 2 + 1) + (1 + 1 / 3)) / 2)


def test_one_foreign_job_is_enough_to_compare_between_jobs() -> None:
    found = judged(singles(10, 10.2, 9.8), {"job-0": [10.0], "elsewhere": [10.0]})
    assert found.noise.origin == "measured" and found.noun == "jobs"


def test_a_copy_under_another_jobs_name_is_compared_between_jobs() -> None:
    assert judged({"a": [10.0, 10.1]}, {"a": [10.0]}).noise.origin == "same job"
    assert judged({"a": [10.0, 10.1]}, {"a-copied": [10.0]}).noise.origin == "assumed"


def test_single_runs_of_one_job_show_no_spread_so_it_is_assumed() -> None:
    assert judged({"a": [10.0]}, {"a": [9.0]}).noise.origin == "assumed"


def test_pairs_take_out_what_both_sides_share() -> None:
    """Machines differ by a factor of two; inside a pair the current run is 4 %, 5 % and 6 % slower."""
    pairs = {"x": ([10.0], [9.6]), "y": ([20.0], [19.0]), "z": ([5.0], [4.7])}
    found = estimate_pairs(pairs, better="higher", linear=False)
    assert found is not None
    steps = [math.log(0.96), math.log(0.95), math.log(0.94)]
    mean = sum(steps) / 3
    sd = math.sqrt(sum((s - mean) ** 2 for s in steps) / 2)
    assert found.step == pytest.approx(mean) and found.harm == pytest.approx(-mean)
    assert found.noise.sd == pytest.approx(sd) and found.noise.df == 2
    assert found.error == pytest.approx(sd / math.sqrt(3))
    assert (found.noise.origin, found.noun, found.counted) == ("pairs", "pairs", (3, 3))


def test_fewer_than_three_pairs_show_no_spread() -> None:
    assert estimate_pairs({"x": ([1.0], [1.0]), "y": ([1.0], [1.0])}, better="higher", linear=False) is None


def test_pairs_that_agree_by_chance_keep_the_floor() -> None:
    found = estimate_pairs({p: ([10.0], [9.0]) for p in "xyz"}, better="higher", linear=False)
    assert found is not None and found.noise.sd == 0.005


# -- changes as users state them ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("better", "linear", "harm"),
    [
        ("higher", False, 0.051293),  # -ln(1 - 0.05)
        ("lower", False, 0.048790),  # ln(1 + 0.05)
        ("higher", True, 0.05),
        ("lower", True, 0.05),
    ],
)
def test_an_allowed_change_of_5_percent_as_harm(better: Any, linear: bool, harm: float) -> None:
    assert statistics.to_harm(0.05, better, linear=linear) == pytest.approx(harm, abs=1e-6)


@given(st.floats(-0.9, 0.9), better, st.booleans())
def test_harm_and_change_are_each_others_inverse(change: float, better: Any, linear: bool) -> None:
    there = statistics.to_harm(change, better, linear=linear)
    assert statistics.to_change(there, better, linear=linear) == pytest.approx(change, abs=1e-9)


def test_p_is_one_half_where_nothing_moved_and_small_where_much_did() -> None:
    assert judged(singles(10, 11, 9), {"n": [math.exp(sum(map(math.log, (10, 11, 9))) / 3)]}).p() == pytest.approx(0.5)
    slow = judged(singles(10, 11, 9), {"n": [5.0]})
    assert slow.p() < 0.05 < judged(singles(10, 11, 9), {"n": [9.0]}).p()
    assert (slow.p() < 0.01) == (slow.harm > slow.bound(0.01))
