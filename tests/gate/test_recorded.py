"""The gate on captures of a real Dynamo: what it must call regressed, what it must not, and on what noise."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING

import pytest
from oracle import CAPTURES

from gate.series import Series, recorded
from pytest_rlserve import compare
from pytest_rlserve.errors import EvidenceError
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.gate.compare import Comparison

RATE = "accepted_trajectory_throughput"
REPEATS = ("baseline_kv_1", "baseline_kv_2", "baseline_kv_3")
OTHER_JOBS = ("baseline_jobb_1", "baseline_jobb_2", "baseline_jobc_1", "baseline_jobc_2")


@cache
def opened(name: str) -> Capture:
    return open_capture(recorded()[name])


def need(*names: str) -> None:
    """Skip where captures beside the checkout are not there."""
    if missing := [name for name in names if name not in recorded()]:
        pytest.skip(f"{', '.join(missing)} not here: recorded beside the checkout")


def series(folder: Path, *names: str) -> Series:
    found = Series(folder)
    assert found.take(*map(opened, names)).written
    return found


def compared(found: Series, capture: Capture) -> Comparison:
    return found.gate(capture).comparison(RATE, 0.05)


def as_job(name: str, job: str) -> Capture:
    capture = opened(name)
    return capture.replace(manifest=dataclasses.replace(capture.manifest, job=job))


@pytest.mark.parametrize("name", REPEATS)
def test_a_repeat_against_the_other_two_is_never_regressed(tmp_path: Path, name: str) -> None:
    found = compared(series(tmp_path, *(one for one in REPEATS if one != name)), opened(name))
    assert found.verdict in ("unchanged", "inconclusive")
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "same job"


@pytest.mark.parametrize(
    ("name", "change", "factor"),
    [
        ("regressed_half_workers_1", -0.30, "workers: baseline 4, current 2"),
        ("regressed_round_robin_1", -0.07, "router: baseline 'kv', current 'round-robin'"),
        ("small_cache_1", -0.42, "kv_blocks: baseline 768, current 192"),
    ],
)
def test_a_known_loss_is_regressed_against_the_three_repeats(
    tmp_path: Path, name: str, change: float, factor: str
) -> None:
    need(name)
    found = compared(series(tmp_path, *REPEATS), opened(name))
    assert found.verdict == "regressed"
    assert found.result is not None and found.result.noise is not None
    assert found.result.delta == pytest.approx(change, abs=0.015)
    assert found.result.noise.origin == "same job"
    assert found.result.noise.sd == pytest.approx(0.009, abs=0.001)
    assert found.why == f"factor under test: {factor}"


def test_three_jobs_show_their_own_noise(tmp_path: Path) -> None:
    need(*OTHER_JOBS)
    found = compared(series(tmp_path, *REPEATS, *OTHER_JOBS), as_job("baseline_kv_1", "job-d"))
    assert found.verdict == "unchanged"
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "measured"


def test_a_copy_under_a_new_job_is_compared_between_jobs_and_named_as_known(tmp_path: Path) -> None:
    stored = series(tmp_path, *REPEATS)
    found = compared(stored, as_job("baseline_kv_1", "job-copied"))
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "assumed"
    assert "baseline_kv_1 is itself one of the baseline's runs" in str(found.why)


@pytest.mark.parametrize("name", ["killed_1", "lossy_1", "payload_1"])
def test_a_capture_that_is_broken_or_other_work_gets_no_verdict_on_its_rate(tmp_path: Path, name: str) -> None:
    found = compared(series(tmp_path, *REPEATS), opened(name))
    assert found.verdict in ("not_comparable", "invalid")


def test_in_one_job_the_two_values_shown_differ_by_the_change_shown(tmp_path: Path) -> None:
    need(*OTHER_JOBS)
    found = compared(series(tmp_path, *REPEATS, *OTHER_JOBS), opened("baseline_kv_3"))
    assert found.result is not None and found.result.noise is not None
    assert found.result.noise.origin == "same job"
    assert found.result.current / found.result.baseline - 1 == pytest.approx(found.result.delta, abs=1e-6)


def test_one_request_that_queued_is_no_regression_of_a_queue_of_none(tmp_path: Path) -> None:
    need("baseline_jobb_1")
    found = series(tmp_path, *REPEATS).gate(opened("baseline_jobb_1")).comparison("queue_depth.mean", 0.2)
    assert found.verdict == "unchanged"
    assert "baseline  0 requests" in found.message and "current   0.0013 requests" in found.message
    assert found.result is not None and (found.result.baseline, found.result.delta) == (
        pytest.approx(0.0, abs=1e-9), pytest.approx(1 / 784, rel=0.1),
    )  # fmt: skip


def test_a_queue_as_the_primary_is_held_against_its_anchor_too(tmp_path: Path) -> None:
    found = series(tmp_path, *REPEATS)
    found.policy = dataclasses.replace(found.policy, primary="queue_depth.mean", gated={"queue_depth.mean": 0.2})
    for number in range(3):
        found.take(as_job("baseline_kv_1", f"job-{number}"))
    assert found.gate(as_job("baseline_kv_2", "job-z")).compare("queue_depth.mean").verdict == "pass"


def test_a_broken_capture_is_compared_with_nothing() -> None:
    with pytest.raises(EvidenceError, match="not judged: killed_1 cannot be trusted, see checks::shards_are_whole"):
        compare(open_capture(CAPTURES / "killed_1"), CAPTURES.parents[2] / "baselines" / "tiny-qwen2-4w.json")
