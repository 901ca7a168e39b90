"""--rl-strict: what neither passed nor failed fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Run, Write


def test_an_inconclusive_comparison_fails(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1", rate=9.7)
    assert run("--rl-trace=run-1").ret == pytest.ExitCode.OK
    result = run("--rl-trace=run-1", "--rl-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"passed": ALL - 1, "failed": 1}
    result.stdout.fnmatch_lines(["*(--rl-strict: inconclusive is not a pass)"])


@both_ways
def test_a_run_that_left_something_out_fails(
    run: Run, capture: Write, three_runs: Path, workers: tuple[str, ...]
) -> None:
    capture("run-1")
    assert run("--rl-trace=run-1", "-k", "checks").ret == pytest.ExitCode.OK
    result = run("--rl-trace=run-1", "-k", "checks", "--rl-strict", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "--rl-strict: the verdict 'incomplete' is not a pass" in result.outlines


def test_a_run_without_a_baseline_fails(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "--rl-strict: the verdict 'no_baseline' is not a pass" in result.outlines


def test_a_run_that_judged_nothing_fails(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    pytester.makepyfile("def test_own(): pass")
    capture("run-1")
    assert run("--rl-trace=run-1", "--no-rl-suite", "--rl-strict").ret == pytest.ExitCode.TESTS_FAILED


def test_a_pass_is_a_pass(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-strict")
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result) == {"passed": ALL}


def test_an_inconclusive_check_of_a_test_of_ones_own_fails(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    pytester.makepyfile("def test_own(rl_baseline): rl_baseline.check('accepted_trajectory_throughput')")
    capture("run-1", rate=9.7)
    assert outcomes(run("--rl-trace=run-1", "--no-rl-suite", "--rl-strict")) == {"failed": 1}


def test_the_exit_code_of_a_worse_end_stays(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-strict", "-k", "nothing")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
