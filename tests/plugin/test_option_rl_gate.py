"""--rl-gate=report: regressions are told and do not fail the run; broken evidence does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

REPORT_ONLY = ("--rl-gate=report", "--rl-report=json:report.json")


@both_ways
def test_a_regression_and_a_missed_limit_are_expected_failures_and_stay_in_the_report(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p50" = "<= 1ms"')
    capture("run-1", rate=8.0)
    result = run("--rl-trace=run-1", *REPORT_ONLY, *workers)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result) == {"passed": ALL - 1, "xfailed": 2}
    assert report_of()["verdict"] == "regressed"


def test_broken_evidence_still_errs(run: Run, capture: Write) -> None:
    capture("torn", torn=True)
    result = run("--rl-trace=torn", *REPORT_ONLY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result)["errors"] >= 3


def test_what_cannot_be_compared_still_errs(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1", prompt=1)
    assert outcomes(run("--rl-trace=run-1", *REPORT_ONLY)) == {"passed": ALL - 2, "errors": 2}


def test_a_check_that_does_not_hold_still_fails(run: Run, capture: Write) -> None:
    capture("run-1", open_attempts=1)
    assert outcomes(run("--rl-trace=run-1", *REPORT_ONLY)) == {"passed": ALL - 3, "failed": 1, "skipped": 2}


def test_a_test_of_ones_own_follows(run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path) -> None:
    pytester.makepyfile("def test_own(rl_baseline): rl_baseline.check('accepted_trajectory_throughput')")
    capture("run-1", rate=8.0)
    assert outcomes(run("--rl-trace=run-1", "--no-rl-suite", *REPORT_ONLY)) == {"xfailed": 1}


def test_another_word_is_wrong_use(run: Run, capture: Write) -> None:
    capture("run-1")
    assert run("--rl-trace=run-1", "--rl-gate=off").ret == pytest.ExitCode.USAGE_ERROR
