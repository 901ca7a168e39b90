"""--rl-series=NAME: which baseline a run is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, error_lines, outcomes

if TYPE_CHECKING:
    from plugin.projects import ReadReport, Run, Write

REPORT = "--rl-report=json:report.json"


@both_ways
def test_it_names_the_baseline_file(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    capture("run-1")
    run("--rl-trace=run-1", "--rl-series=other", "--rl-baseline-update", REPORT, *workers)
    assert report_of()["series"] == "other"
    assert [path.name for path in (pytester.path / "baselines").iterdir()] == ["other.json"]


def test_it_wins_over_the_policy_which_wins_over_the_capture(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    capture("run-1")
    seen = []
    for flags in ((), ("--rl-policy=gate.toml",), ("--rl-policy=gate.toml", "--rl-series=of-the-flag")):
        (pytester.path / "gate.toml").write_text('series = "of-the-policy"')
        run("--rl-trace=run-1", REPORT, *flags)
        seen.append(report_of()["series"])
    assert seen == ["s", "of-the-policy", "of-the-flag"]


@both_ways
def test_captures_of_several_series_are_gated_one_at_a_time(run: Run, capture: Write, workers: tuple[str, ...]) -> None:
    capture("run-1", series="one")
    capture("run-2", series="two")
    result = run("--rl-trace=run-1", "--rl-trace=run-2", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = error_lines(result)
    assert line.startswith("ERROR: rlserve: the captures belong to several series (one, two)")


def test_without_any_name_the_message_says_where_to_give_one(run: Run, capture: Write) -> None:
    capture("run-1", series=None)
    result = run("--rl-trace=run-1", "-rs")
    assert outcomes(result) == {"passed": ALL - 2, "skipped": 2}
    result.stdout.fnmatch_lines(["*--rl-series=NAME*"])


def test_without_any_name_there_is_no_file_to_update(run: Run, capture: Write) -> None:
    capture("run-1", series=None)
    result = run("--rl-trace=run-1", "--rl-baseline-update")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: nothing names the series of these captures; *"])


@pytest.mark.parametrize("name", ["../escape", "a/b", ".hidden", "two words"])
def test_a_name_that_cannot_be_a_files_is_refused(
    run: Run, pytester: pytest.Pytester, capture: Write, name: str
) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", f"--rl-series={name}", "--rl-baseline-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in result.stdout.str()
    assert "cannot name a baseline file" in result.stdout.str() + result.stderr.str()
    assert not list(pytester.path.rglob("*.json.tmp"))
    assert not (pytester.path / "baselines").exists()


def test_an_empty_name_is_wrong_use(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-series=")
    assert error_lines(result) == ["ERROR: rlserve: --rl-series= names no series; is a variable empty?"]
