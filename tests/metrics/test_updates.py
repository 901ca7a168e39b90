"""What updates cost: each phase, from the records of each worker, and the way back to a warm cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import parts, served, started, update, without
from hand_made import Record, control, opened
from oracle import CAPTURES

from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

PHASES = {"transfer_time": 0.3, "reset_time": 0.1, "verify_time": 0.1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_is_measured_for_each_worker_of_each_update(folder: Path, name: str) -> None:
    capture = opened(folder, control=[*started(1, 2), *update(1, 2), *update(1, t=30, version=2)])
    measured = measure(capture, name)
    assert (measured.n, measured.value) == (3, pytest.approx(PHASES[name], abs=1e-6))


@pytest.mark.parametrize(
    ("name", "step"),
    [("transfer_time", "transfer_finished"), ("reset_time", "cache_reset"), ("verify_time", "version")],
)
def test_a_phase_whose_ends_are_not_recorded_is_not_observable(folder: Path, name: str, step: str) -> None:
    measured = measure(opened(folder, control=[*started(1), *without(update(1), step, 1)]), name)
    assert measured.value is None
    assert "no worker of an update has both" in str(measured.why)


def test_a_step_that_failed_gives_no_time(folder: Path) -> None:
    events = [event | ({"status": "error"} if event["event"] == "transfer_finished" else {}) for event in update(1, 2)]
    good = [event for event in events if event.get("worker_id") == 2 and event["event"] == "transfer_finished"]
    events[events.index(good[0])] = {key: value for key, value in good[0].items() if key != "status"}
    assert measure(opened(folder, control=[*started(1, 2), *events]), "transfer_time").n == 1


def test_verified_ends_the_verification_before_ready_does(folder: Path) -> None:
    verified = control("verified", 10.65, worker_id=1, update="u1")
    measured = measure(opened(folder, control=[*started(1), *update(1), verified]), "verify_time")
    assert measured.value == pytest.approx(0.05, abs=1e-6)


def test_phases_of_a_recorded_run() -> None:
    capture = open_capture(CAPTURES / "baseline_kv_1")
    found = {name: measure(capture, name) for name in (*PHASES, "update_downtime")}
    assert {name: one.n for name, one in found.items()} == dict.fromkeys(PHASES, 8) | {"update_downtime": 2}
    assert found["transfer_time"].value == pytest.approx(0.402, abs=0.001)
    assert found["reset_time"].value == pytest.approx(1.499, abs=0.001)


def after(t: float, shares: list[int]) -> list[tuple[Record, list[Record]]]:
    """Requests of ten blocks, the first cold, one a second; `shares` are the blocks each found cached."""
    prompt = list(range(1, 11))
    return [served(f"r{t}{n:02d}", t + n, 1, prompt, cached=share) for n, share in enumerate([0, *shares])]


def test_warm_is_when_efficiency_is_back_at_90_percent_of_its_steady_value(folder: Path) -> None:
    rows = after(12.0, [1] * 10 + [10] * 60)  # ten requests find little; then all is there
    capture = opened(folder, **parts(*rows, control=[*started(1), *update(1)]))
    measured = measure(capture, "warmup_time")
    # Of 20 requests in a row, two that found little are the most at 0.9 × steady: 18.2 of 20 blocks.
    assert (measured.n, measured.value) == (1, pytest.approx(1.0 + 9, abs=1e-6))


@pytest.mark.parametrize("count", [38, 39])
def test_an_update_with_few_requests_after_it_says_nothing(folder: Path, count: int) -> None:
    capture = opened(folder, **parts(*after(12.0, [10] * count), control=[*started(1), *update(1)]))
    measured = measure(capture, "warmup_time")
    assert (measured.value is None) is (count == 38)
    assert count == 39 or "no update is followed by 40 requests" in str(measured.why)
