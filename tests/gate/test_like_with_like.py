"""What is compared with what, and that the message, the factors and the verdict speak of the same runs."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import pytest

from gate.documents import FOLDER, document
from gate.series import recorded
from pytest_rlserve.gate.baseline import Baseline
from pytest_rlserve.gate.compare import Comparison, _estimated
from pytest_rlserve.gate.losses import losses_of
from pytest_rlserve.gate.rounding import rounded
from pytest_rlserve.metrics import Measurement, Scope
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from gate.series import Series
    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

RATE = "accepted_trajectory_throughput"


def test_inside_a_job_the_factors_add_up_to_the_change_shown(series: Series, measured: Measured) -> None:
    """Another job of the baseline ran half as fast again: it has no part in the comparison, nor in why."""
    slow, quick = [measured(rate, job="a") for rate in (10.0, 10.1)], measured(15.0, job="b")
    assert series.take(*slow, quick).written
    found = series.gate(measured(9.0, job="a")).comparison(RATE, 0.05)
    assert found.result is not None and found.result.delta is not None and found.causes is not None
    whole = math.fsum(factor.contribution for factor in found.causes.factors)
    assert whole == pytest.approx(math.log1p(found.result.delta), abs=1e-6)


def test_inside_a_job_only_its_runs_are_shown(series: Series, measured: Measured) -> None:
    series.take(measured(10.0, job="a"), measured(10.1, job="a"), measured(15.0, job="b"))
    found = series.gate(measured(9.0, job="a")).comparison(RATE, 0.05)
    assert "(2 runs of 1 job, 10.00 trajectories/s … 10.10 trajectories/s)" in found.message


def test_a_job_that_ran_once_is_held_against_what_all_jobs_have_shown(series: Series, measured: Measured) -> None:
    """A retried CI job keeps its name; under a new name the same loss would be regressed."""
    rates = {"a": 10.0, "b": 10.1, "c": 9.9, "d": 10.05}
    assert series.take(*(measured(rate, job=job) for job, rate in rates.items())).written
    for job in ("a", "new"):
        found = series.gate(measured(9.0, job=job)).comparison(RATE, 0.05)
        assert found.result is not None and found.result.noise is not None
        assert (found.verdict, found.result.noise.origin) == ("regressed", "measured"), job
        assert "(4 runs of 4 jobs, " in found.message


def test_a_pair_of_another_job_is_no_partner(series: Series, measured: Measured) -> None:
    """Pairs are numbered anew in every job; made on two machines, they would call the machines a change."""
    names = ["p1", "p2", "p3"]
    assert series.take(*(measured(10.0, job="a", pair=pair) for pair in names)).written
    other = series.gate(*(measured(8.9, job="b", pair=pair) for pair in names)).comparison(RATE, 0.05)
    assert other.result is not None and other.result.noise is not None
    assert (other.verdict, other.result.noise.origin) == ("inconclusive", "assumed")
    same = series.gate(*(measured(8.9, job="a", pair=pair) for pair in names)).comparison(RATE, 0.05)
    assert same.result is not None and same.result.noise is not None
    assert (same.verdict, same.result.noise.origin) == ("regressed", "pairs")


def test_runs_are_no_worse_than_themselves_where_a_ratio_does_not_exist() -> None:
    """Stored with nine digits, and one of them 0: what is left of the others must not read as a regression."""
    key = "tail_bubble"
    digits = math.pi / 1e3
    before = {job: [rounded(value)] for job, value in (("a", 0.0), ("b", digits), ("c", digits))}
    known = Comparison(
        metric=key,
        verdict="inconclusive",
        unit="s",
        better="lower",
        allowed=0.05,
        message="",
        baseline=tuple((job, value) for job, (value,) in before.items()),
        current=(("a", 0.0), ("b", digits), ("c", digits)),
    )
    first = Measurement(name=key, capture="c", unit="s", better="lower", n=1, value=0.0)
    found = _estimated(known, [], Baseline(FOLDER / "s.json", document(before)), first)
    assert found.zero is not None
    assert found.zero.verdict == "unchanged"


def test_pairs_without_a_job_find_each_other_by_name(series: Series, measured: Measured) -> None:
    names = ["p1", "p2", "p3"]
    assert series.take(*(measured(10.0, job=None, pair=pair) for pair in names)).written
    found = series.gate(*(measured(8.9, job=None, pair=pair) for pair in names)).comparison(RATE, 0.05)
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "pairs"


def test_what_explains_a_comparison_inside_a_job_looks_at_that_job_too(series: Series) -> None:
    """Another job of the baseline had a small cache: what reuse lost is held against the job that is compared."""
    names = ("baseline_kv_1", "baseline_kv_2", "small_cache_1")
    kv_1, kv_2, small = (open_capture(recorded()[name]) for name in names)
    elsewhere = small.replace(manifest=dataclasses.replace(kv_1.manifest, job="another"))
    series.take(kv_1, kv_2, elsewhere)
    stored = series.gate().baseline()
    assert stored is not None
    assert losses_of(stored, [kv_2], Scope())["eviction"] == pytest.approx(0.0, abs=0.01)
    assert losses_of(stored, [small], Scope())["eviction"] > 0.2
