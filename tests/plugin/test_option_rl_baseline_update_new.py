"""--rl-baseline-update-new: add what the baseline lacks, and change nothing that it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, PRIMARY, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Run, Write

NEW = "--rl-baseline-update-new"
BUDGET = '[limits]\n"itl.p50" = "<= 1s"\n[metrics.served_within_budget_fraction]'


@both_ways
def test_it_creates_a_baseline_where_there_is_none(
    run: Run, pytester: pytest.Pytester, capture: Write, workers: tuple[str, ...]
) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", NEW, *workers)
    assert outcomes(result) == {"passed": ALL}
    assert (pytester.path / "baselines" / "s.json").is_file()


def test_it_adds_a_metric_that_is_new(run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path) -> None:
    before = json.loads(three_runs.read_text())["levels"][0]["runs"]
    (pytester.path / "rlserve.toml").write_text(BUDGET)
    capture("run-1")
    result = run("--rl-trace=run-1", NEW)
    assert result.ret == pytest.ExitCode.OK
    (level,) = json.loads(three_runs.read_text())["levels"]
    assert [one for one in level["runs"] if one["name"] != "run-1"] == before
    (added,) = [one for one in level["runs"] if one["name"] == "run-1"]
    assert sorted(added["measurements"]) == ["request_goodput", "served_within_budget_fraction"]
    result = run("--rl-trace=run-1", "-k", "metrics and within_budget")
    assert "skipped" not in outcomes(result), "it has a baseline now"


def test_a_regression_still_fails_and_its_value_is_not_taken(run: Run, capture: Write, three_runs: Path) -> None:
    before = three_runs.read_bytes()
    capture("run-1", rate=8.0)
    result = run("--rl-trace=run-1", NEW)
    assert outcomes(result) == {"passed": ALL - 1, "failed": 1}
    assert three_runs.read_bytes() == before
    assert PRIMARY in result.stdout.str()


def test_it_never_replaces_a_file_that_it_cannot_read(run: Run, capture: Write, three_runs: Path) -> None:
    three_runs.write_text("{}")
    capture("run-1")
    result = run("--rl-trace=run-1", NEW)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"passed": ALL - 2, "errors": 2}
    assert three_runs.read_text() == "{}"


def test_twice_is_once(run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path) -> None:
    (pytester.path / "rlserve.toml").write_text(BUDGET)
    capture("run-1")
    run("--rl-trace=run-1", NEW)
    before = three_runs.read_bytes()
    assert run("--rl-trace=run-1", NEW).ret == pytest.ExitCode.OK
    assert three_runs.read_bytes() == before


@pytest.mark.parametrize("damage", [{"torn": True}, {"open_attempts": 1}], ids=str)
def test_broken_evidence_adds_nothing(
    run: Run, pytester: pytest.Pytester, capture: Write, damage: dict[str, object]
) -> None:
    capture("run-1", **damage)
    assert run("--rl-trace=run-1", NEW).ret == pytest.ExitCode.TESTS_FAILED
    assert not (pytester.path / "baselines").exists()
