"""--rl-baseline=DIR: where baselines lie, and what their absence or their state means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write


def test_without_a_baseline_metrics_are_skipped_with_what_to_type(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "-rs")
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result) == {"passed": ALL - 2, "skipped": 2}
    result.stdout.fnmatch_lines(["SKIPPED *accepted_trajectory_throughput has no baseline yet"])
    result.stdout.fnmatch_lines(["*to record one: pytest --rl-trace=* --rl-baseline-update"])


def test_a_missing_baseline_is_named_with_the_nearest_there_is(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "-rs", f"--rl-series={three_runs.stem}x")
    looked_for = f"  looked for baselines/{three_runs.stem}x.json; did you mean '{three_runs.name}'?"
    assert looked_for in result.outlines
    result = run("--rl-trace=run-1", "-rs", "--rl-baseline=elsewhere")
    assert f"  looked for elsewhere/{three_runs.name}" in result.outlines


@both_ways
def test_without_a_baseline_metrics_fail_in_ci(
    run: Run, capture: Write, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CI", "true")
    capture("run-1")
    result = run("--rl-trace=run-1", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"passed": ALL - 2, "failed": 2}


@pytest.mark.parametrize(
    ("ci", "policy", "outcome"), [("true", "skip", "skipped"), ("", "fail", "failed"), ("0", None, "skipped")]
)
def test_the_policy_has_the_last_word_on_a_missing_baseline(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    policy: str | None,
    outcome: str,
) -> None:
    monkeypatch.setenv("CI", ci)
    capture("run-1")
    (pytester.path / "rlserve.toml").write_text(f'no_baseline = "{policy}"' if policy else "")
    assert outcomes(run("--rl-trace=run-1")) == {"passed": ALL - 2, outcome: 2}


def test_baselines_lie_in_the_folder_baselines(run: Run, capture: Write, three_runs: Path) -> None:
    assert three_runs.parent.name == "baselines"
    capture("run-1")
    assert outcomes(run("--rl-trace=run-1")) == {"passed": ALL}


def test_the_flag_names_another_folder(run: Run, capture: Write, baseline: Write) -> None:
    baseline(10.0, 10.1, 9.9, folder="stored/here")
    capture("run-1")
    assert outcomes(run("--rl-trace=run-1")) == {"passed": ALL - 2, "skipped": 2}
    assert outcomes(run("--rl-trace=run-1", "--rl-baseline=stored/here")) == {"passed": ALL}


def test_an_empty_flag_is_refused(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-baseline=")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == "ERROR: rlserve: --rl-baseline= names no path; is a variable empty?"


def test_a_baseline_that_cannot_be_read_is_an_error_and_never_taken_for_none(
    run: Run, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    three_runs.write_text(three_runs.read_text()[:-20])
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-report=json:report.json")
    assert outcomes(result) == {"passed": ALL - 2, "errors": 2}
    result.stdout.fnmatch_lines(["baseline s.json cannot be read: it is not whole JSON*"])
    assert report_of()["verdict"] == "invalid"


def test_a_metric_that_the_baseline_lacks_is_new(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    text = three_runs.read_text()
    assert "kv_reuse_fraction" in text
    capture("run-1")
    (pytester.path / "rlserve.toml").write_text(
        '[limits]\n"itl.p50" = "<= 1s"\n[metrics.served_within_budget_fraction]'
    )
    result = run("--rl-trace=run-1", "-rs", "-k", "metrics")
    assert outcomes(result) == {"passed": 1, "skipped": 1, "deselected": ALL - 1}
    result.stdout.fnmatch_lines(["*served_within_budget_fraction is new: s.json has no value of it*"])
