"""Requests of workers that an update had missed, and the accepted attempts they went into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fleets import parts, served, started, update
from hand_made import Record, attempt, control, opened
from oracle import CAPTURES

from pytest_rlserve.checks import CheckResult, run_check
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = [*started(1, 2), *update(1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def judged(folder: Path, events: list[Record], *requests: Any, attempts: list[Record] | None = None) -> CheckResult:
    made = parts(*requests, control=events)
    made["attempts"] += attempts or []
    return run_check(opened(folder, **made), "workers_are_current")


def test_every_request_of_workers_that_were_reached_is_current(folder: Path) -> None:
    rows = [served(f"r{n}", t, worker, [n]) for n, (t, worker) in enumerate([(1, 1), (1, 2), (12, 1), (12, 2)])]
    result = judged(folder, [*started(1, 2), *update(1, 2)], *rows)
    assert (result.status, result.observed, result.of) == ("pass", 4, 4)


def test_a_worker_behind_is_named_with_its_requests_and_both_versions(folder: Path) -> None:
    rows = [served("early", 1, 2, [1]), served("late", 12, 2, [1]), served("good", 12, 1, [1])]
    result = judged(folder, EVENTS, *rows)
    assert (result.status, result.observed, result.of) == ("fail", 2, 3)
    (finding,) = result.problems
    assert finding.ids == ("late",)
    assert "worker 2 was missed by update u1 and served 1 request with version 0 instead of 1" in finding.message


def turns(name: str, *workers: int) -> tuple[list[Any], list[Record]]:
    """An accepted attempt whose turns were served by those workers after the update."""
    rows = []
    for turn, worker in enumerate(workers):
        row, events = served(f"{name}{turn}", 12.0 + turn, worker, [turn])
        rows.append((row, [event | {"attempt_id": name} for event in events]))
    ends = [("dispatched", 11.9), ("completed", 20.0), ("accepted", 20.0)]
    return rows, [attempt(event, name, t) for event, t in ends]


@pytest.mark.parametrize(
    ("workers", "kinds"),
    [
        ((2, 1, 1), "start 1, end 0, worst 1, token mean 1"),
        ((1, 1, 2), "start 0, end 1, worst 1, token mean 1"),
        ((1, 2, 1), "start 0, end 0, worst 1, token mean 1"),
    ],
)
def test_accepted_attempts_are_counted_under_each_kind_of_lag(
    folder: Path, workers: tuple[int, ...], kinds: str
) -> None:
    rows, attempts = turns("a", *workers)
    others, more = turns("b", 1, 1)
    early, _ = served("before", 1, 2, [9])
    result = judged(folder, EVENTS, (early, []), *rows, *others, attempts=[*attempts, *more])
    assert f"went into 1 accepted attempts, older by that at {kinds}" in result.problems[0].message


def test_a_worker_of_unknown_version_is_a_warning_and_not_counted(folder: Path) -> None:
    rows = [served("r1", 12, 1, [1]), served("r2", 12, 5, [1])]
    result = judged(folder, [*started(1), *update(1)], *rows)
    assert (result.status, result.of) == ("pass", 1)
    assert "no record says which version worker 5 had loaded; it served 1 request" in result.findings[0].message


@pytest.mark.parametrize("events", [[], started(1), [control("step_started", 1, step=0)]])
def test_without_an_update_nobody_can_be_behind(folder: Path, events: list[Record]) -> None:
    result = judged(folder, events, served("r", 12, 1, [1]))
    assert result.status == "inconclusive"
    assert "no weight update" in str(result.why)


def test_68_requests_of_stale_worker_1_went_into_11_accepted_attempts() -> None:
    result = run_check(open_capture(CAPTURES / "stale_worker_1"), "workers_are_current")
    (finding,) = result.problems
    assert (result.status, result.of - result.observed, len(finding.ids)) == ("fail", 68, 68)
    assert "worker 3264423129048537586 was missed by update 2" in finding.message
    assert "with version 1 instead of 2" in finding.message
    assert "11 accepted attempts, older by that at start 4, end 5, worst 11, token mean 11" in finding.message


@pytest.mark.parametrize("name", ["baseline_kv_1", "regressed_half_workers_1", "payload_1", "small_cache_1"])
def test_no_worker_of_a_healthy_run_is_behind(name: str) -> None:
    result = run_check(open_capture(CAPTURES / name), "workers_are_current")
    assert result.status == "pass", result.message()
