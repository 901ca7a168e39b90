"""--rl-policy=FILE: what is gated; what is wrong with a policy in one line; and waivers."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, error_lines, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

POLICY = "--rl-policy=gate.toml"
TODAY = datetime.datetime.now(tz=datetime.UTC).date()
WAIVER = """
[[waivers]]
metric = "{metric}"
until = {until}
owner = "serving-oncall"
reason = "tracked in #123"
"""


@pytest.fixture
def gate(pytester: pytest.Pytester, capture: Write) -> Path:
    capture("run-1", rate=8.0)
    return pytester.path / "gate.toml"


def test_the_file_says_what_is_gated(run: Run, gate: Path) -> None:
    gate.write_text('[limits]\n"ttft.p50" = "<= 40ms"\n[metrics.ttft]')
    result = run("--rl-trace=run-1", POLICY)
    assert outcomes(result) == {"passed": ALL - 2, "failed": 1, "skipped": 2}
    result.stdout.fnmatch_lines(["ttft.p50 missed its limit: 50.00 ms, must be <= 40.00 ms (n=40, run-1)"])


def test_a_policy_that_is_not_there_is_wrong_use(run: Run, gate: Path) -> None:
    result = run("--rl-trace=run-1", POLICY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == [f"ERROR: rlserve: there is no policy file {gate}"]


@pytest.mark.parametrize("quiet", [(), ("-q", "--no-header"), ("-n", "2"), ("--collect-only",)], ids=str)
def test_an_unknown_key_is_one_line_with_the_nearest_right_name(run: Run, gate: Path, quiet: tuple[str, ...]) -> None:
    gate.write_text('sries = "s"')
    result = run("--rl-trace=run-1", POLICY, *quiet)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == [f"ERROR: rlserve: {gate}: unknown key 'sries'; did you mean 'series'?"]
    assert "collecting" not in result.stdout.str()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("series =", "the policy cannot be read: "),
        ("series = 3", "series must be "),
        ('[limits]\n"tfft.p99" = "<= 1s"', "no metric is named 'tfft'; did you mean 'ttft'?"),
        ('[limits]\n"ttft.p90" = "<= 3"', "limit of ttft.p90: "),
        ('[metrics.ttft]\nregresion = "5%"', "unknown key 'metrics.ttft.regresion'; did you mean 'regression'?"),
        ("[[waivers]]\nmetric = 'ttft'", "a waiver needs until, owner, reason"),
    ],
)
def test_whatever_is_wrong_with_it_is_one_line_that_names_the_file(run: Run, gate: Path, text: str, said: str) -> None:
    gate.write_text(text)
    result = run("--rl-trace=run-1", POLICY)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = error_lines(result)
    assert line.startswith(f"ERROR: rlserve: {gate}: {said}")


def test_a_policy_inside_a_capture_is_not_taken(run: Run, pytester: pytest.Pytester, gate: Path) -> None:
    (pytester.path / "run-1" / "rlserve.toml").write_text("nonsense")
    assert outcomes(run("--rl-trace=run-1")) == {"passed": ALL - 2, "skipped": 2}


@both_ways
def test_a_waiver_turns_a_regression_into_an_expected_failure_with_its_owner_and_date(
    run: Run, gate: Path, three_runs: Path, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    gate.write_text(WAIVER.format(metric="accepted_trajectory_throughput", until=TODAY))
    result = run("--rl-trace=run-1", POLICY, "-rx", "--rl-report=json:report.json", *workers)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result) == {"passed": ALL - 1, "xfailed": 1}
    result.stdout.fnmatch_lines([f"XFAIL *waived by serving-oncall until {TODAY}: tracked in #123"])
    assert [one["verdict"] for one in report_of()["comparisons"]] == ["waived", "unchanged"]


def test_a_waiver_that_has_expired_waives_nothing(run: Run, gate: Path, three_runs: Path) -> None:
    gate.write_text(WAIVER.format(metric="accepted_trajectory_throughput", until=TODAY - datetime.timedelta(days=2)))
    result = run("--rl-trace=run-1", POLICY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outcomes(result) == {"passed": ALL - 1, "failed": 1}


def test_a_waiver_covers_a_missed_limit_too(run: Run, gate: Path) -> None:
    gate.write_text('[limits]\n"ttft.p50" = "<= 1ms"\n' + WAIVER.format(metric="ttft.p50", until=TODAY))
    assert outcomes(run("--rl-trace=run-1", POLICY, "-k", "limits")) == {"xfailed": 1, "deselected": ALL}


def test_a_waiver_does_not_hide_broken_evidence(run: Run, gate: Path, three_runs: Path, capture: Write) -> None:
    capture("torn", torn=True)
    gate.write_text(WAIVER.format(metric="accepted_trajectory_throughput", until=TODAY))
    result = run("--rl-trace=torn", POLICY)
    assert outcomes(result)["errors"] >= 3
    assert "xfailed" not in outcomes(result)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=str)
def test_the_policy_tells_readers_what_names_mean(
    run: Run, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    lines = [
        {"event": "trace_opened"},
        *({"event": name, "group_id": "g", "generation_index": 0} for name in ("go", "end")),
    ]
    text = "".join(json.dumps({"t": 1_790_000_000 + n, "run": "r", **line}) + "\n" for n, line in enumerate(lines))
    pytester.path.joinpath("rollout_trace.jsonl").write_text(text)
    names = {"go": "dispatched", "end": "completed", "stop": "canceled", "fault": "failed"}
    meanings = "".join(f'{name} = "{meaning}"\n' for name, meaning in names.items())
    pytester.path.joinpath("gate.toml").write_text("[readers.nemo_rl.events]\n" + meanings)
    pytester.makepyfile(
        """
        from pytest_rlserve import assert_reconciled
        def test_own(rl_trace):
            assert_reconciled(rl_trace, by="run")
        """
    )
    flags = ("--rl-trace=rollout_trace.jsonl", "--no-rl-suite", *workers)
    assert outcomes(run(POLICY, *flags)) == {"passed": 1}
    assert outcomes(run(*flags)) == {"failed": 1}


def test_a_folder_in_the_policys_place_is_refused(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    """Passed over, it would leave the run with the defaults."""
    capture("run-1")
    (pytester.path / "rlserve.toml").mkdir()
    result = run("--rl-trace=run-1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*rlserve.toml: the policy cannot be read: Is a directory"])
