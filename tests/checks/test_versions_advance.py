"""Versions only go up; a counter that starts anew is found, and a resumed run is not mistaken for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hand_made import Record, attempt, completed, control, opened

from pytest_rlserve.checks import run_check

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.checks import CheckResult


def version(t: float, number: Any, worker: int | None = 7, **fields: Any) -> Record:
    named = {} if worker is None else {"worker_id": worker}
    return control("version", t, policy_version=number, **named, **fields)


def judged(folder: Path, events: list[Record], attempts: list[Record] | None = None) -> CheckResult:
    return run_check(opened(folder, control=events, attempts=attempts or []), "versions_advance")


def test_rising_and_equal_versions_pass(tmp_path: Path) -> None:
    result = judged(tmp_path, [version(0, 1), version(1, 1), version(2, 2), version(3, 1, worker=8)])
    assert (result.status, result.observed, result.of) == ("pass", 4, 4)


def test_versions_have_an_order_of_numbers_and_not_of_letters(tmp_path: Path) -> None:
    assert judged(tmp_path, [version(0, "9"), version(1, "10")]).status == "pass"


def test_a_fall_names_both_versions_and_the_worker(tmp_path: Path) -> None:
    result = judged(tmp_path, [version(20, 57), version(40, 1)])
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    (finding,) = result.problems
    assert "policy_version went from 57 to 1 on worker 7" in finding.message
    assert (finding.path, finding.line) == ("control.jsonl", 2)


def test_a_worker_that_restarted_under_another_id_is_still_the_same(tmp_path: Path) -> None:
    restart = control("cache_reset", 30, worker_id=8, replaced_worker_id=7)
    result = judged(tmp_path, [version(20, 57), restart, version(40, 1, worker=8)])
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    assert "policy_version went from 57 to 1 on worker 8 (7 before it restarted), 20.0 s after" in result.message()


def test_the_order_is_that_of_time_and_not_of_lines(tmp_path: Path) -> None:
    assert judged(tmp_path, [version(40, 2), version(20, 1)]).status == "pass"


@pytest.mark.parametrize("event", ["step_started", "step_finished"])
def test_the_trainers_own_counter_may_not_fall_either(tmp_path: Path, event: str) -> None:
    steps = [control(event, t, step=t, policy_version=number) for t, number in ((1, 5), (2, 4))]
    result = judged(tmp_path, steps)
    assert "went from 5 to 4 in the trainer" in result.message()


@pytest.mark.parametrize("worker", [None, 8])
def test_fleet_and_worker_are_told_apart(tmp_path: Path, worker: int | None) -> None:
    assert judged(tmp_path, [version(0, 3), version(1, 2, worker=worker)]).status == "pass"


def test_a_restored_checkpoint_explains_a_fall(tmp_path: Path) -> None:
    events = [version(0, 5), control("checkpoint_restored", 1, step=3), version(2, 3)]
    result = judged(tmp_path, events)
    assert result.status == "pass"
    assert [(f.severity, "as the run was resumed" in f.message) for f in result.findings] == [("warning", True)]


def test_a_checkpoint_restored_before_the_rise_explains_nothing(tmp_path: Path) -> None:
    events = [control("checkpoint_restored", 0, step=3), version(1, 5), version(2, 3)]
    assert judged(tmp_path, events).status == "fail"


def test_a_new_run_explains_a_fall_and_a_run_that_is_only_named_once_does_not(tmp_path: Path) -> None:
    assert judged(tmp_path / "two", [version(0, 5, run="a"), version(1, 3, run="b")]).status == "pass"
    assert judged(tmp_path / "one", [version(0, 5, run="a"), version(1, 3)]).status == "fail"


def test_a_negative_lag_is_named_with_its_attempt(tmp_path: Path) -> None:
    attempts = completed("a", 0, 5, policy=57, trained_version=1) + completed("b", 0, 5, policy=1, trained_version=1)
    result = judged(tmp_path, [], attempts)
    assert (result.status, result.observed, result.of) == ("fail", 1, 2)
    assert "a: lag -56" in result.problems[0].message


def test_a_resumed_run_may_not_train_on_what_a_later_version_generated(tmp_path: Path) -> None:
    attempts = completed("a", 0, 5, policy=5, trained_version=3)
    result = judged(tmp_path, [version(0, 5, run="a"), version(1, 3, run="b")], attempts)
    assert [finding.severity for finding in result.findings] == ["warning", "failure"]


def test_names_have_no_order(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", [version(0, "initial"), version(1, 1), version(2, "unknown")]).of == 1
    result = judged(tmp_path / "b", [version(0, "initial")], [attempt("dispatched", "a")])
    assert (result.status, result.of) == ("inconclusive", 0)


def test_without_any_version_nothing_is_said(tmp_path: Path) -> None:
    assert judged(tmp_path, [control("gate_closed", 0)]).status == "inconclusive"
