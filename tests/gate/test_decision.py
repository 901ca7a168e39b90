"""From estimate to verdict: both conditions, four words, what was detectable, how several metrics share an error."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_rlserve.gate.decision import ALPHA, Result, decide, decide_with_zero, holm, shares
from pytest_rlserve.gate.statistics import Estimate, Noise, estimate

DELTA = -math.log(0.95)
T95, T80 = {2: 2.920, 4: 2.132, 6: 1.943}, {2: 1.061, 4: 0.941, 6: 0.906}
"""Printed points of Student's t."""


def found(harm: float, error: float, **more: Any) -> Estimate:
    """Return an estimate by its harm and error; five against three jobs unless told otherwise."""
    given = {"df": 6.0, "origin": "measured", "jobs": (5, 3), **more}
    sd = error / math.sqrt(1 / given["jobs"][0] + 1 / given["jobs"][1])
    return Estimate(
        baseline=10.0,
        current=10.0 * math.exp(-harm),
        step=-harm,
        harm=harm,
        error=error,
        noise=Noise(sd=sd, df=given["df"], origin=given["origin"]),
        jobs=given["jobs"],
        counted=given["jobs"],
    )


def verdict(one: Estimate, **more: Any) -> Result:
    return decide(one, **{"better": "higher", "allowed": 0.05, "linear": False, **more})


# -- the four verdicts ---


@pytest.mark.parametrize(
    ("harm", "error", "word"),
    [
        (0.10, 0.02, "regressed"),  # L = 0.061, and twice the allowed change
        (0.10, 0.06, "inconclusive"),  # large, but L = -0.017
        (0.04, 0.001, "unchanged"),  # sure, but less than allowed: U = 0.042
        (0.05, 0.001, "inconclusive"),  # sure, a hair less than allowed, U above it
        (0.0, 0.02, "unchanged"),  # U = 0.039
        (0.0, 0.03, "inconclusive"),  # U = 0.058
        (-0.10, 0.02, "improved"),  # U = -0.061
        (-0.04, 0.001, "unchanged"),  # better, but by less than what matters
        (-0.10, 0.06, "unchanged"),  # U = 0.017: not worse for sure, not better for sure
    ],
)
def test_a_verdict_needs_both_size_and_certainty(harm: float, error: float, word: str) -> None:
    low, high = harm - 1.943 * error, harm + 1.943 * error
    rule = (
        "regressed"
        if low > 0 and harm >= DELTA
        else "improved"
        if high < 0 and harm <= -DELTA
        else "unchanged"
        if high < DELTA
        else "inconclusive"
    )
    assert verdict(found(harm, error)).verdict == word == rule


def test_the_bounds_are_students_and_read_as_changes() -> None:
    result = verdict(found(0.10, 0.02))
    assert result.bound is not None
    assert result.bound[0] == pytest.approx(1 - math.exp(-(0.10 - 1.943 * 0.02)), abs=1e-5)
    assert result.bound[1] == pytest.approx(1 - math.exp(-(0.10 + 1.943 * 0.02)), abs=1e-5)


def test_an_inconclusive_verdict_is_suspect_from_the_allowed_change_on() -> None:
    assert verdict(found(DELTA, 0.06)).suspect
    assert not verdict(found(DELTA - 1e-6, 0.06)).suspect
    assert not verdict(found(0.10, 0.02)).suspect


@pytest.mark.parametrize("df", [2, 4, 6])
def test_the_detectable_change_is_what_80_percent_of_such_runs_would_have_caught(df: int) -> None:
    result = verdict(found(0.0, 0.02, df=float(df)))
    reach = (T95[df] + T80[df]) * 0.02
    assert result.detectable == pytest.approx(1 - math.exp(-reach), abs=2e-5)


def test_one_job_against_one_could_have_seen_13_9_percent() -> None:
    """Assumed spread of 3 % with four degrees of freedom, the size that the design's own research states."""
    error = 0.03 * math.sqrt(1 / 1 + 1 / 1)
    result = verdict(found(0.0, error, df=4.0, jobs=(1, 1)), better="lower")
    assert result.detectable == pytest.approx(0.139, abs=5e-4)


# -- properties ---

several = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=5)


@given(several, several, st.sampled_from(["higher", "lower"]), st.floats(0.01, 0.3))
def test_swapping_baseline_and_current_swaps_regressed_and_improved(
    one: list[float], other: list[float], better: Any, allowed: float
) -> None:
    sides = [{f"{name}{n}": [v] for n, v in enumerate(vs)} for name, vs in (("a", one), ("b", other))]
    words = []
    for baseline, current in (sides, reversed(sides)):
        found = estimate(baseline, current, better=better, assumed_sd=0.03, linear=False)
        words.append(decide(found, better=better, allowed=allowed, linear=False).verdict)
    swapped = {"regressed": {"improved"}, "improved": {"regressed"}}
    assert words[1] in swapped.get(words[0], {"unchanged", "inconclusive"})


@given(st.floats(-0.3, 0.3), st.floats(0.001, 0.2), st.floats(0.0, 0.1))
def test_more_harm_never_makes_a_better_verdict(harm: float, error: float, more: float) -> None:
    rank = ["improved", "unchanged", "inconclusive", "regressed"].index
    assert rank(verdict(found(harm, error)).verdict) <= rank(verdict(found(harm + more, error)).verdict)


@given(st.floats(-0.3, 0.3), st.floats(0.001, 0.2), st.floats(0.01, 0.2))
def test_half_the_error_regresses_and_acquits_no_more(harm: float, error: float, allowed: float) -> None:
    full, half = (verdict(found(harm, error), allowed=allowed, alpha=a).verdict for a in (ALPHA, ALPHA / 2))
    assert half in (full, "inconclusive", "unchanged") and (half == full or full != "inconclusive")
    assert half != "unchanged" or full in ("unchanged", "improved")


# -- one job under an assumed noise ---


@pytest.mark.parametrize(("allowed", "needed"), [(0.05, 0.15), (0.02, 0.15), (0.10, 0.30)])
def test_one_job_under_an_assumed_noise_needs_15_percent_or_three_times_the_allowed_change(
    allowed: float, needed: float
) -> None:
    for change, word in ((needed - 0.001, "inconclusive"), (needed + 0.001, "regressed")):
        one = found(-math.log(1 - change), 0.01, origin="assumed", df=4.0, jobs=(2, 1))
        result = verdict(one, allowed=allowed)
        assert (result.verdict, result.single_job) == (word, True)


def test_one_job_is_no_proof_for_a_fraction_either() -> None:
    """Fractions are compared by differences: 15 points, or three times the allowed ones."""
    for change, word in ((0.149, "inconclusive"), (0.151, "regressed")):
        one = found(change, 0.01, origin="assumed", df=4.0, jobs=(2, 1))
        result = verdict(one, allowed=0.02, linear=True)
        assert (result.verdict, result.single_job) == (word, True)


def test_two_jobs_or_a_measured_noise_need_no_more_than_the_allowed_change() -> None:
    for more in ({"origin": "assumed", "jobs": (2, 2)}, {"origin": "measured", "jobs": (3, 1)}):
        result = verdict(found(0.06, 0.01, df=4.0, **more))
        assert (result.verdict, result.single_job) == ("regressed", False)


# -- what would decide ---


def test_no_decision_is_asked_for_where_there_is_one() -> None:
    result = verdict(found(0.0, 0.01))
    assert (result.needed, result.to_decide) == (0, None)


@pytest.mark.parametrize(("harm", "error"), [(0.08, 0.05), (0.02, 0.02), (0.0, 0.03)])
def test_the_jobs_still_needed_are_the_first_count_that_decides(harm: float, error: float) -> None:
    """Five baseline jobs, harm and spread as they are: tried one count after another."""
    sd = error / math.sqrt(1 / 5 + 1 / 3)
    enough = next(
        count
        for count in range(4, 50)
        if verdict(found(harm, sd * math.sqrt(1 / 5 + 1 / count), jobs=(5, count))).verdict != "inconclusive"
    )
    result = verdict(found(harm, error))
    assert (result.needed, result.to_decide) == (enough, f"{enough} current jobs, if the change stays what it is")


def test_the_jobs_still_needed_are_those_that_its_own_stricter_level_needs() -> None:
    """One of seven beside the primary: sure at 0.05 long before it is at its share of it."""
    level, sd = 0.05 * 0.2 / 7, 0.05 / math.sqrt(1 / 5 + 1 / 3)
    counts = [
        count
        for count in range(4, 50)
        if verdict(found(0.16, sd * math.sqrt(1 / 5 + 1 / count), jobs=(5, count)), level=level).verdict == "regressed"
    ]
    result = verdict(found(0.16, 0.05), level=level)
    assert (result.verdict, result.suspect) == ("inconclusive", True)
    assert result.needed == counts[0]


def test_one_job_under_an_assumed_noise_could_have_seen_no_less_than_it_may_prove() -> None:
    """A change of 14 % is then never called a regression, so that nobody may be told that it would have been."""
    error = 0.03 * math.sqrt(2)
    result = verdict(found(0.15, error, df=4.0, jobs=(1, 1), origin="assumed"))
    assert (result.verdict, result.single_job) == ("inconclusive", True)
    assert result.detectable == pytest.approx(1 - math.exp(math.log(0.85) - T80[4] * error), abs=2e-4)


def test_where_no_number_of_current_jobs_decides_the_baseline_must_grow() -> None:
    result = verdict(found(0.0500, 0.05))
    assert (result.needed, result.to_decide) == (None, "more baseline jobs, or a calmer machine")


# -- zero and counts ---


@pytest.mark.parametrize(
    ("baseline", "current", "better", "word", "delta"),
    [
        (0.0, 3.0, "lower", "regressed", None),
        (0.0, 0.0, "lower", "unchanged", None),
        (3.0, 0.0, "lower", "improved", -1.0),
        (2.0, 0.0, "higher", "regressed", -1.0),
        (0.0, 2.0, "higher", "improved", None),
        (4.0, 5.0, "lower", "regressed", 0.25),
    ],
)
def test_zero_is_a_value_and_has_no_percentage(
    baseline: float, current: float, better: Any, word: str, delta: float | None
) -> None:
    result = decide_with_zero(baseline, current, better)
    assert (result.verdict, result.delta) == (word, delta)


# -- several metrics ---


def rejected(p: list[float], weights: list[float] | None = None, alpha: float = 0.05) -> list[bool]:
    """Tell of each p whether it is rejected; weights are even unless told otherwise."""
    weighed = {str(number): one for number, one in enumerate(weights or [1.0] * len(p))}
    levels = holm({str(number): one for number, one in enumerate(p)}, weighed, alpha)
    return [one < levels[str(number)] for number, one in enumerate(p)]


def test_holm_on_the_example_of_a_published_manual() -> None:
    """B. Paul, S. K. De and A. K. Ghosh, R package HDLSSkST 2.1.0, manual page of `Holm` (CRAN)."""
    p = [0.50, 0.01, 0.001, 0.69, 0.02, 0.05, 0.0025]
    assert [int(one) for one in rejected(p)] == [0, 0, 1, 0, 0, 0, 1]


def test_holm_on_the_15_p_values_of_the_thrombolysis_trial() -> None:
    """Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. B 57 (1995), section 4.1.

    Bonferroni rejects the three smallest, and so does Hochberg's procedure; Holm's lies between the two.
    """
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459]
    p += [0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert rejected(p) == [True] * 3 + [False] * 12


def test_the_levels_are_alpha_by_what_is_left_and_stop_at_the_first_that_fails() -> None:
    levels = holm({"d": 0.9, "a": 0.001, "c": 0.04, "b": 0.01}, dict.fromkeys("abcd", 1.0))
    assert levels == pytest.approx({"a": 0.05 / 4, "b": 0.05 / 3, "c": 0.05 / 2, "d": 0.05 / 2})


def test_one_metric_has_the_whole_error_and_none_has_none() -> None:
    assert holm({"only": 0.3}, shares(["only"], "only")) == {"only": 0.05}
    assert holm({"only": 0.3}, {"only": 0.2}) == pytest.approx({"only": 0.05})
    assert holm({}, {}) == {}


def test_the_primary_has_four_fifths_of_the_error_until_it_is_sure_and_all_of_it_alone() -> None:
    weights = shares(["rate", "a", "b"], "rate")
    assert weights == pytest.approx({"rate": 0.8, "a": 0.1, "b": 0.1})
    assert holm({"rate": 0.3, "a": 0.2, "b": 0.1}, weights) == pytest.approx({"rate": 0.04, "a": 0.005, "b": 0.005})
    assert holm({"rate": 0.03, "a": 0.2, "b": 0.1}, weights) == pytest.approx({"rate": 0.04, "a": 0.025, "b": 0.025})
    assert holm({"rate": 0.3, "a": 0.001, "b": 0.002}, weights)["rate"] == pytest.approx(0.05)
    assert holm({"a": 0.3}, shares(["a"], "rate")) == pytest.approx({"a": 0.05})


def test_all_gated_metrics_together_may_err_as_often_as_one() -> None:
    """By the union bound: the levels of metrics of which none is sure add up to the error."""
    for count in (1, 2, 8):
        keys = [f"m{number}" for number in range(count)]
        levels = holm(dict.fromkeys(keys, 0.9), shares(keys, "m0"))
        assert sum(levels.values()) == pytest.approx(0.05)


_PS = st.lists(st.tuples(st.floats(0.0, 0.2), st.sampled_from([0.05, 0.1, 0.3, 0.8])), min_size=1, max_size=5)


@given(_PS)
def test_weighted_holm_is_the_closed_test_of_weighted_bonferroni(drawn: list[tuple[float, float]]) -> None:
    """R. Marcus, E. Peritz and K. R. Gabriel (Biometrika 63, 1976): reject what every set that holds it rejects."""
    p, weights = [one for one, _ in drawn], [one for _, one in drawn]
    near = [abs(one * total - 0.05 * w) for one, w in drawn for total in sums(weights)]
    assume(min(near) > 1e-9)
    sets = [s for size in range(1, len(p) + 1) for s in itertools.combinations(range(len(p)), size)]
    refused = [s for s in sets if any(p[k] < 0.05 * weights[k] / sum(weights[j] for j in s) for k in s)]
    by_definition = [all(s in refused for s in sets if k in s) for k in range(len(p))]
    assert rejected(p, weights) == by_definition


def sums(values: list[float]) -> list[float]:
    some = (c for size in range(1, len(values) + 1) for c in itertools.combinations(values, size))
    return [sum(one) for one in some]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_rejects_what_its_definition_rejects(p: list[float]) -> None:
    """S. Holm (1979): order them; compare the k-th smallest of m with alpha / (m - k + 1); stop at the first miss."""
    assume(len(set(p)) == len(p))
    ordered = sorted(p)
    good = list(itertools.takewhile(lambda k: ordered[k] < 0.05 / (len(p) - k), range(len(p))))
    assert rejected(p) == [one in ordered[: len(good)] for one in p]


def test_a_stricter_level_of_its_own_makes_regressed_harder_and_leaves_unchanged_alone() -> None:
    one = found(0.08, 0.03)
    assert verdict(one).verdict == "regressed"
    assert verdict(one, level=0.05 / 7).verdict == "inconclusive"
    calm = found(0.0, 0.02)
    assert verdict(calm).verdict == verdict(calm, level=0.05 / 7).verdict == "unchanged"
