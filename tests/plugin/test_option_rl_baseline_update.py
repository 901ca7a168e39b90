"""--rl-baseline-update: the life of a baseline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugin.projects import ALL, PRIMARY, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

UPDATE = "--rl-baseline-update"


def levels(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["levels"]
    return found


@both_ways
def test_it_creates_a_baseline_that_the_next_run_is_compared_with(
    run: Run, pytester: pytest.Pytester, capture: Write, workers: tuple[str, ...]
) -> None:
    for number, rate in enumerate((10.0, 10.1, 9.9)):
        capture(f"runs/{number}", rate=rate)
    result = run("--rl-trace=runs", UPDATE, *workers)
    assert outcomes(result) == {"passed": ALL}
    result.stdout.fnmatch_lines(["baseline s.json created with 3 runs"])
    capture("next", rate=8.0)
    assert outcomes(run("--rl-trace=next")) == {"passed": ALL - 1, "failed": 1}


def test_the_same_run_again_changes_no_byte(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    run("--rl-trace=run-1", UPDATE)
    path = pytester.path / "baselines" / "s.json"
    before = path.read_bytes(), path.stat().st_mtime_ns
    result = run("--rl-trace=run-1", UPDATE)
    assert result.ret == pytest.ExitCode.OK
    assert "baseline s.json: nothing changed" in result.outlines
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_an_unchanged_run_joins_the_newest_level(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1", rate=10.05)
    result = run("--rl-trace=run-1", UPDATE)
    result.stdout.fnmatch_lines(["baseline s.json: 1 run added"])
    assert [len(level["runs"]) for level in levels(three_runs)] == [4]


def test_with_k_only_what_was_judged_is_taken(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", UPDATE, "-k", "update_downtime")
    assert result.ret == pytest.ExitCode.OK
    (level,) = levels(three_runs)
    assert [sorted(one["measurements"]) for one in level["runs"] if one["name"] == "run-1"] == [["update_downtime"]]
    assert sum(PRIMARY in one["measurements"] for one in level["runs"]) == 3


def test_with_a_test_named_only_what_it_judged_is_taken(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    pytester.makepyfile(test_own="def test_own(rl_baseline): rl_baseline.check('ttft.p50')")
    capture("run-1")
    run("--rl-trace=run-1", UPDATE, "test_own.py::test_own")
    (level,) = levels(three_runs)
    assert [sorted(one["measurements"]) for one in level["runs"] if one["name"] == "run-1"] == [["ttft.p50"]]


def test_in_ci_it_is_loud(run: Run, capture: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    capture("run-1")
    result = run("--rl-trace=run-1", UPDATE)
    result.stdout.fnmatch_lines(["warning: the baseline is being changed inside CI: *"])


def test_a_folder_that_cannot_be_written_to_fails_the_run_and_the_report_is_still_written(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    (pytester.path / "baselines").write_text("a file is in the way")
    capture("run-1")
    result = run("--rl-trace=run-1", UPDATE, "--rl-report=json:report.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: baseline *s.json cannot be written: *"])
    assert report_of()["captures"][0]["name"] == "run-1"


def test_one_that_cannot_be_read_is_replaced_and_the_user_is_told(run: Run, capture: Write, three_runs: Path) -> None:
    three_runs.write_text("<<<<<<< ours")
    capture("run-1")
    result = run("--rl-trace=run-1", UPDATE)
    result.stdout.fnmatch_lines(["baseline s.json created *replaced*it holds the marks of a merge conflict*"])
    assert [len(level["runs"]) for level in levels(three_runs)] == [1]
