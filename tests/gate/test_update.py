"""What an update takes in, what it asks a reason for, and what it leaves alone."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import TYPE_CHECKING, Any

import pytest
from plugin.projects import RECORDED

from pytest_rlserve.checks import Evidence
from pytest_rlserve.errors import BaselineError, UsageError
from pytest_rlserve.gate import baseline as store
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.metrics import Scope
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from collections.abc import Callable

    from gate.series import Series
    from pytest_rlserve.capture import Capture

    Measured = Callable[..., Capture]

RATE = "accepted_trajectory_throughput"
DOWN = "update_downtime"
LEFT = "left as it is"


@pytest.fixture
def started(series: Series, measured: Measured) -> Series:
    """Three jobs around 10 trajectories a second."""
    assert series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"), (9.9, "c")))).written
    return series


# -- jobs without a name ---


def test_captures_given_together_without_a_job_count_as_one(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=None) for rate in (10.0, 10.1, 9.9)))
    (job,) = {run["job"] for run in series.document["levels"][0]["runs"]}
    assert job.startswith("unnamed/")


def test_a_nameless_job_is_none_that_the_baseline_knows(series: Series, measured: Measured) -> None:
    """The spread inside one job says nothing of another day's: its noise is assumed, and one job proves little."""
    series.take(*(measured(rate, job=None) for rate in (10.0, 10.01, 9.99)))
    found = series.gate(*(measured(rate, job=None) for rate in (9.4, 9.41, 9.39))).comparison(RATE, 0.05)
    assert found.result is not None and found.result.noise is not None
    assert (found.verdict, found.result.noise.origin) == ("inconclusive", "assumed")
    named = series.gate(*(measured(rate, job="a") for rate in (9.4, 9.41))).comparison(RATE, 0.05)
    assert named.result is not None and named.result.noise is not None
    assert named.result.noise.origin == "assumed"


def test_three_nameless_sessions_measure_the_noise_between_jobs(series: Series, measured: Measured) -> None:
    for rate in (10.0, 10.1, 9.9):
        series.take(measured(rate, job=None), reason="another day")
    found = series.gate(measured(9.95, job=None)).comparison(RATE, 0.05)
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "measured"
    assert len({run["job"] for run in series.document["levels"][-1]["runs"]}) == 3


# -- silently ---


def test_the_first_update_makes_the_file(started: Series) -> None:
    found = started.document
    assert started.levels == [["run-1", "run-2", "run-3"]]
    assert started.values(RATE) == pytest.approx([10.0, 10.1, 9.9])
    assert (found["levels"][0]["reason"], found["levels"][0]["moved"], found["carried"]) == (None, {}, {})
    assert [run["job"] for run in found["levels"][0]["runs"]] == ["a", "b", "c"]
    assert {RATE, DOWN, "ttft.p50"} <= set(found["definitions"])


def test_an_unchanged_run_joins_without_a_word(started: Series, measured: Measured) -> None:
    done = started.take(measured(10.05, job="d"))
    assert done.written and not done.refused and done.changes == ()
    assert started.levels == [["run-1", "run-2", "run-3", "run-4"]]
    assert done.summary == "baseline s.json: 1 run added"


def test_updating_twice_changes_no_byte(started: Series, measured: Measured) -> None:
    run = measured(10.05, job="d")
    started.take(run)
    before = started.path.read_bytes()
    done = started.take(run)
    assert (done.written, done.refused, done.summary) == (False, False, "baseline s.json: nothing changed")
    assert started.path.read_bytes() == before


def test_the_same_content_under_another_name_is_the_same_run(started: Series, measured: Measured) -> None:
    again = measured(10.0, job="a", start=1_800_001_000.0)
    assert again.name != "run-1"
    done = started.take(again)
    assert not done.written
    assert started.levels == [["run-1", "run-2", "run-3"]]


def test_one_capture_given_twice_at_once_is_one_run(series: Series, measured: Measured) -> None:
    start = {"start": 1_800_000_000.0, "job": "a"}
    series.take(measured(10.0, **start), measured(10.0, **start))
    assert len(series.levels[0]) == 1


def test_one_capture_given_twice_at_once_joins_once(started: Series, measured: Measured) -> None:
    start = {"start": 1_800_009_000.0, "job": "d"}
    started.take(measured(10.0, **start), measured(10.0, **start))
    assert len(started.levels[0]) == 4


def test_of_known_and_new_runs_only_the_new_ones_join(started: Series, measured: Measured) -> None:
    done = started.take(measured(10.0, job="a", start=1_800_001_000.0), measured(10.0, job="d"))
    assert done.summary == "baseline s.json: 1 run added"
    assert len(started.levels[0]) == 4


def test_values_are_stored_with_nine_digits(series: Series, measured: Measured) -> None:
    series.take(measured(9.876543210123))
    assert all(len(repr(value).replace(".", "").strip("0")) <= 9 for value in series.values(RATE))


# -- with a reason ---


@pytest.mark.parametrize(("rate", "verdict"), [(8.0, "regressed"), (9.7, "inconclusive"), (12.0, "improved")], ids=str)
def test_what_is_not_unchanged_needs_a_reason(started: Series, measured: Measured, rate: float, verdict: str) -> None:
    before = started.path.read_bytes()
    run = measured(rate, job="d")
    assert started.gate(run).comparison(RATE, 0.05).verdict == verdict
    done = started.take(run)
    assert not done.written and done.refused
    assert all(word in done.summary for word in (LEFT, RATE, "--rl-baseline-reason"))
    assert started.path.read_bytes() == before


@pytest.mark.parametrize("rate", [8.0, 12.0], ids=["regressed", "improved"])
def test_a_reason_opens_a_level_that_says_what_moved(started: Series, measured: Measured, rate: float) -> None:
    done = started.take(measured(rate, job="d"), measured(rate, job="e"), reason="two workers fewer, see #123")
    newest = started.document["levels"][-1]
    geometric = math.exp(sum(map(math.log, (10.0, 10.1, 9.9))) / 3)
    assert started.levels == [["run-1", "run-2", "run-3"], ["run-4", "run-5"]]
    assert newest["reason"] == "two workers fewer, see #123"
    assert newest["accepted_at"] == datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    assert newest["moved"][RATE]["delta"] == pytest.approx(rate / geometric - 1, abs=1e-6)
    (change,) = (one for one in done.changes if one["metric"] == RATE)
    assert change["baseline"] == pytest.approx(geometric)
    assert change["current"] == pytest.approx(rate)
    assert change["reason"] == "two workers fewer, see #123"


def test_a_metric_that_did_not_move_is_not_among_what_moved(started: Series, measured: Measured) -> None:
    started.take(measured(8.0, job="d"), reason="r")
    assert list(started.document["levels"][-1]["moved"]) == [RATE]


def test_an_inconclusive_run_with_a_reason_joins_the_level_there_is(started: Series, measured: Measured) -> None:
    done = started.take(measured(9.7, job="d"), reason="noise of the new rack")
    assert done.written
    assert started.levels == [["run-1", "run-2", "run-3", "run-4"]]


def test_an_inconclusive_loss_that_is_accepted_is_said(series: Series, measured: Measured) -> None:
    """It becomes part of what later runs are compared with, so that a review has to see it, with the reason."""
    series.take(measured(10.0, job="a"))
    done = series.take(measured(9.0, job="b"), reason="another driver")
    assert done.written
    told = [(c["metric"], round(c["delta"], 2), c["reason"]) for c in done.changes]
    assert (RATE, -0.1, "another driver") in told


def test_accepting_the_same_run_twice_opens_one_level(started: Series, measured: Measured) -> None:
    run = measured(8.0, job="d")
    started.take(run, reason="r")
    before = started.path.read_bytes()
    assert not started.take(run, reason="r").written
    assert started.path.read_bytes() == before


def test_the_spread_of_a_closed_level_lives_on(started: Series, measured: Measured) -> None:
    started.take(measured(8.0, job="d"), measured(8.2, job="e"), reason="r")
    y = [math.log(rate) for rate in (10.0, 10.1, 9.9)]
    mean = sum(y) / 3
    variance = sum((one - mean) ** 2 for one in y) / 2
    assert started.document["carried"][RATE] == {"variance": pytest.approx(variance, rel=1e-3), "df": 2}
    started.take(measured(6.0, job="f"), reason="r")
    second = (math.log(8.2 / 8.0)) ** 2 / 2  # two values: half of their squared difference, one degree
    pooled = (2 * variance + second) / 3
    assert started.document["carried"][RATE] == {"variance": pytest.approx(pooled, rel=1e-3), "df": 3}


def test_a_new_level_of_one_job_has_a_measured_noise(started: Series, measured: Measured) -> None:
    started.take(measured(8.0, job="d"), reason="r")
    noise = started.gate(measured(8.0, job="e")).comparison(RATE, 0.05).result.noise  # type: ignore[union-attr]
    assert noise is not None
    assert (noise.origin, noise.df) == ("measured", 2)


@pytest.mark.parametrize("factor", [0.9, 1.1], ids=["down", "up"])
def test_after_an_accepted_change_of_either_sign_the_next_10_percent_are_caught(
    started: Series, measured: Measured, factor: float
) -> None:
    started.take(*(measured(rate * factor, job=job) for rate, job in ((10, "d"), (10.1, "e"), (9.9, "f"))), reason="r")
    still = [measured(10 * factor, job=job) for job in "xyz"]
    lost = [measured(9 * factor, job=job) for job in "xyz"]
    assert started.gate(*still).comparison(RATE, 0.05).verdict == "unchanged"
    assert started.gate(*lost).comparison(RATE, 0.05).verdict == "regressed"


# -- drift ---


def drifting(series: Series, measured: Measured) -> list[Capture]:
    """Let each merge lose 1 % and be taken in, with a reason where it is needed; return the runs of the alarm."""
    rate = 10.0
    for number in range(15):
        rate *= 0.99
        runs = [measured(rate * spread, job=f"m{number}-{spread}") for spread in (0.995, 1.0, 1.005)]
        found = series.gate(*runs).comparison(RATE, 0.05)
        if found.verdict == "regressed":
            assert found.why is not None and "drift" in found.why
            return runs
        series.take(*runs, reason="nightly")
    raise AssertionError("the drift was never noticed")


def test_a_drift_is_noticed_that_no_single_step_shows(started: Series, measured: Measured) -> None:
    runs = drifting(started, measured)
    assert 0.80 < started.gate(*runs).comparison(RATE, 0.05).current[0][1] / 10.0 < 0.91


def test_an_accepted_drift_is_taken_out_as_a_whole(started: Series, measured: Measured) -> None:
    runs = drifting(started, measured)
    found = started.gate(*runs).comparison(RATE, 0.05)
    whole = math.exp(sum(math.log(value) for _, value in found.current) / 3) / 10.0 - 1
    started.take(*runs, reason="the new sampler costs that much")
    assert started.document["levels"][-1]["moved"][RATE]["delta"] == pytest.approx(whole, abs=0.005)


# -- how much is kept ---


def test_twenty_runs_are_kept_the_first_three_jobs_among_them(started: Series, measured: Measured) -> None:
    for number in range(4, 28):
        started.take(measured(10.0 + 0.01 * (number % 3), job=f"job-{number}"))
    kept = started.levels[0]
    assert len(kept) == 20
    assert kept == ["run-1", "run-2", "run-3", *(f"run-{number}" for number in range(11, 28))]


def test_of_many_runs_of_one_job_the_newest_is_kept(series: Series, measured: Measured) -> None:
    for number in range(21):
        assert not series.take(measured(10.0 + 0.01 * (number % 3)), reason="nightly").refused
    assert series.levels[0][-1] == "run-21"


def test_the_anchor_stays_where_runs_do_not_say_when_they_were_taken(series: Series, measured: Measured) -> None:
    rates = iter((10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.02, 9.98))
    series.take(*(measured(next(rates), job=job, captured_at=None) for job in "abc"))
    first = set(series.levels[0])
    for job in "defgh":
        series.take(measured(next(rates), job=job, captured_at=None))
    assert set(series.levels[0][:3]) == first


def test_the_anchor_stays_where_an_older_run_is_taken_in_later(started: Series, measured: Measured) -> None:
    started.take(measured(10.0, job="d", start=1_700_000_000.0))
    assert started.levels[0][:3] == ["run-1", "run-2", "run-3"]


# -- only what is absent, only what was judged ---


def strip(series: Series, key: str) -> None:
    """Take a metric out of the file, as if it had not been known then."""
    found = series.document
    del found["definitions"][key]
    for level in found["levels"]:
        for run in level["runs"]:
            run["measurements"].pop(key)
    store.write(series.path, found)


def test_update_new_adds_an_absent_metric_to_a_known_run_and_changes_no_value(
    started: Series, measured: Measured
) -> None:
    strip(started, DOWN)
    before = started.values(RATE)
    done = started.take(measured(10.0, job="a", start=1_800_001_000.0), new_only=True)
    assert done.written
    assert started.values(DOWN) == [pytest.approx(0.5), None, None]
    assert started.values(RATE) == before
    assert len(started.levels[0]) == 3


def test_update_new_adds_no_run_where_nothing_is_absent(started: Series, measured: Measured) -> None:
    before = started.path.read_bytes()
    done = started.take(measured(5.0, job="d"), new_only=True)
    assert not done.written
    assert started.path.read_bytes() == before


def test_update_new_brings_an_unknown_run_with_the_absent_metric_alone(started: Series, measured: Measured) -> None:
    strip(started, DOWN)
    started.take(measured(10.0, job="d"), new_only=True)
    newest = started.document["levels"][0]["runs"][-1]
    assert newest["job"] == "d"
    assert list(newest["measurements"]) == [DOWN]
    assert started.gate().baseline().values(RATE).keys() == {"a", "b", "c"}  # type: ignore[union-attr]


def test_update_new_makes_the_file_where_there_is_none(series: Series, measured: Measured) -> None:
    assert series.take(measured(10.0), new_only=True).written
    assert len(series.levels[0]) == 1


def test_what_was_not_judged_is_not_touched(started: Series, measured: Measured) -> None:
    done = started.take(measured(10.0, job="d"), only=[DOWN])
    assert done.written
    assert list(started.document["levels"][0]["runs"][-1]["measurements"]) == [DOWN]


def test_the_rest_of_a_run_is_added_when_it_is_judged_later(started: Series, measured: Measured) -> None:
    run = measured(10.0, job="d")
    started.take(run, only=[DOWN])
    started.take(run)
    assert len(started.levels[0]) == 4
    assert {RATE, DOWN, "ttft.p50"} <= set(started.document["levels"][0]["runs"][-1]["measurements"])


def test_where_nothing_was_judged_there_is_nothing_to_take(started: Series, measured: Measured) -> None:
    with pytest.raises(UsageError, match="no metric was judged"):
        started.take(measured(10.0, job="d"), only=[])


# -- refused ---


@pytest.mark.parametrize("damage", [{"torn": True}, {"open_attempts": 1}, {"lost_rows": 2}], ids=str)
def test_broken_evidence_never_becomes_a_baseline(started: Series, measured: Measured, damage: dict[str, Any]) -> None:
    before = started.path.read_bytes()
    done = started.take(measured(10.0, job="d", **damage), reason="please")
    assert not done.written and done.refused and LEFT in done.summary
    assert started.path.read_bytes() == before


def test_what_may_not_be_compared_may_not_join(started: Series, measured: Measured) -> None:
    before = started.path.read_bytes()
    done = started.take(measured(10.0, job="d", identity={"model": "other"}), reason="please")
    assert done.refused and "not comparable" in done.summary
    assert started.path.read_bytes() == before


@pytest.mark.parametrize("other", [{"identity": {"model": "other"}}, {"prompt": 7}, {"kind": "replay"}], ids=str)
def test_a_first_baseline_is_not_made_of_different_things(
    series: Series, measured: Measured, other: dict[str, Any]
) -> None:
    done = series.take(measured(10.0, job="a"), measured(10.0, job="b", **other))
    assert done.refused and not series.path.exists()


def test_values_of_another_definition_do_not_join(series: Series) -> None:
    """What counts as fresh has changed, the metric is not gated, and nothing says so."""
    fresh = "fresh_trajectory_throughput"
    series.policy = Policy(evidence=Evidence(traceable_served=0.9))
    series.take(open_capture(RECORDED / "baseline_kv_1"))
    digest = series.document["definitions"][fresh]["digest"]
    series.policy = dataclasses.replace(series.policy, scope=Scope(max_lag=0))
    assert series.take(open_capture(RECORDED / "baseline_kv_2"), reason="nightly").written
    assert series.document["definitions"][fresh]["digest"] == digest
    assert series.values(fresh)[1] is None


def test_a_file_that_cannot_be_read_is_replaced_when_an_update_is_asked_for(series: Series, measured: Measured) -> None:
    series.folder.mkdir()
    series.path.write_text("{")
    done = series.take(measured(10.0))
    assert done.written
    assert "the old baseline could not be read and was replaced" in done.summary
    assert len(series.levels[0]) == 1


def test_what_replaces_it_stands_among_the_changes_and_inside_ci_takes_a_reason(
    series: Series, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can say what the baseline loses: not even that it loses something."""
    series.folder.mkdir()
    series.path.write_text("{")
    monkeypatch.setenv("CI", "true")
    done = series.take(measured(10.0))
    assert done.refused and "to replace it inside CI takes --rl-baseline-reason" in done.summary
    assert series.path.read_text() == "{"
    done = series.take(measured(10.0), reason="restored by hand")
    assert done.written
    rate = next(one for one in done.changes if one["metric"] == RATE)
    assert (rate["baseline"], rate["current"], rate["reason"]) == (None, pytest.approx(10.0), "restored by hand")


def test_an_undecided_run_that_is_taken_in_keeps_its_reason_and_is_no_anchor(
    series: Series, measured: Measured
) -> None:
    assert series.take(measured(10.0, job="a")).written
    done = series.take(measured(9.2, job="b"), reason="more evidence")
    assert done.written and "accepted because: more evidence" in done.summary
    assert [run.get("reason") for run in series.document["levels"][0]["runs"]] == [None, "more evidence"]
    (change, *_) = [one for one in done.changes if one["metric"] == RATE]
    assert (change["delta"], change["reason"]) == (pytest.approx(-0.08), "more evidence")
    stored = series.gate().baseline()
    assert stored is not None
    assert list(stored.anchor(RATE)) == ["a"] and list(stored.values(RATE)) == ["a", "b"]


def test_many_runs_taken_in_for_a_reason_do_not_push_out_the_anchor(series: Series, measured: Measured) -> None:
    series.take(*(measured(rate, job=job) for rate, job in ((10.0, "a"), (10.1, "b"))))
    for number in range(25):
        series.take(measured(9.6, job=f"late-{number}"), reason="more evidence")
    kept = [run["job"] for run in series.document["levels"][0]["runs"]]
    assert len(kept) == 20 and kept[:2] == ["a", "b"] and kept[-1] == "late-24"


def test_factors_that_changed_without_a_loss_are_the_baselines_from_then_on(
    started: Series, measured: Measured
) -> None:
    done = started.take(measured(10.0, job="d", factors={"router": "random", "cache": "large"}))
    assert done.written and "warning: 2 factors differ at once" in done.summary
    assert started.document["factors"] == {"router": "random", "cache": "large"}


def test_a_file_that_cannot_be_read_is_left_alone_by_update_new(series: Series, measured: Measured) -> None:
    series.folder.mkdir()
    series.path.write_text("{")
    with pytest.raises(BaselineError):
        series.take(measured(10.0), new_only=True)
    assert series.path.read_text() == "{"


def test_an_update_in_ci_is_loud(started: Series, measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert "warning: the baseline is being changed inside CI" in started.take(measured(10.0, job="d")).summary


@pytest.mark.parametrize("value", ["", "0", "false", "no"])
def test_a_ci_that_is_switched_off_is_no_ci(
    started: Series, measured: Measured, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CI", value)
    assert "warning" not in started.take(measured(10.0, job="d")).summary


def test_a_new_level_defines_its_metrics_anew(series: Series) -> None:
    """Half the workers: reuse over two is not compared with reuse over four, yet two runs over two are alike."""
    series.take(*(open_capture(RECORDED / f"baseline_kv_{number}") for number in (1, 2, 3)))
    half = open_capture(RECORDED / "regressed_half_workers_1")
    assert series.gate(half).comparison("kv_reuse_fraction", 0.02).verdict == "not_comparable"
    done = series.take(half, reason="two workers are enough")
    assert done.written and "left out" not in done.summary
    assert series.gate(half).comparison("kv_reuse_fraction", 0.02).verdict in ("unchanged", "inconclusive")
    assert series.values("kv_reuse_fraction") != [None]
    assert "kv_reuse_fraction" not in series.document["carried"]


def test_an_undecided_run_that_takes_up_a_new_metric_needs_no_reason_and_claims_none(
    series: Series, measured: Measured
) -> None:
    series.take(measured(10.0, job="a"), measured(9.5, job="b"))
    run = measured(9.2, job="c")
    series.take(run, reason="more evidence")
    document = series.document
    del document["levels"][0]["runs"][2]["measurements"][DOWN]
    store.write(series.path, document)
    done = series.take(run)
    assert done.written and "accepted because" not in done.summary and done.changes == ()
    assert series.document["levels"][0]["runs"][2]["reason"] == "more evidence"
