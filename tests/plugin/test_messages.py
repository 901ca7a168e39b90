"""The main messages, word for word: what, where, why, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import RECORDED, error_lines

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from plugin.projects import Plain, Run, Write

STORIES: dict[str, tuple[str, ...]] = {
    "regressed": ("baseline_kv_1", "baseline_kv_2", "baseline_kv_3", "regressed_half_workers_1"),
    "lost_rows": ("baseline_kv_1", "killed_2"),
    "cut_off": ("baseline_kv_1", "killed_1"),
    "not_comparable": ("baseline_kv_1", "lossy_1"),
}


@pytest.mark.parametrize("story", STORIES)
def test_each_story_of_a_recorded_run_reads_well(
    run: Run, messages: Plain, story: str, file_regression: FileRegressionFixture
) -> None:
    *before, now = STORIES[story]
    assert run(*(f"--rl-trace={RECORDED / name}" for name in before), "--rl-baseline-update").ret == 0
    result = run(f"--rl-trace={RECORDED / now}", "-q", "--no-header")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    file_regression.check(messages(result), encoding="utf-8")


def test_no_baseline_reads_well(
    run: Run, capture: Write, monkeypatch: pytest.MonkeyPatch, messages: Plain, file_regression: FileRegressionFixture
) -> None:
    monkeypatch.setenv("CI", "true")
    capture("run-1")
    file_regression.check(messages(run("--rl-trace=run-1", "-q", "--no-header")), encoding="utf-8")


def test_an_undecided_comparison_reads_well(
    run: Run, capture: Write, three_runs: Path, messages: Plain, file_regression: FileRegressionFixture
) -> None:
    capture("run-1", rate=9.7)
    result = run("--rl-trace=run-1", "--rl-strict", "-q", "--no-header")
    file_regression.check(messages(result), encoding="utf-8")


WRONG = [
    "-rl-trace=run-1",
    "--rl-trace run-1",
    "--rl-trace=",
    "--rl-trace=nowhere",
    "--rl-trace=run-1 --rl-trace=run-1",
    "--rl-trace=run-1 --rl-policy=nowhere.toml",
    "--rl-trace=run-1 --rl-policy=policy.toml",
    "--rl-trace=run-1 --rl-report=jsn:report.json",
    "--rl-trace=run-1 --rl-baseline-reason=because",
    "--rl-baseline-update",
]


def test_wrong_use_reads_well(
    run: Run, pytester: pytest.Pytester, capture: Write, file_regression: FileRegressionFixture
) -> None:
    capture("run-1")
    (pytester.path / "policy.toml").write_text('[metrics.accepted_trajectory_througput]\nregression = "5%"')
    said = [[f"$ pytest {typed}", *error_lines(run(*typed.split(" ")))] for typed in WRONG]
    text = "\n\n".join("\n".join(lines) for lines in said) + "\n"
    file_regression.check(text.replace(str(pytester.path), "PROJECT"), encoding="utf-8")
