"""--rl-baseline-reason=TEXT: accepting another level, in the open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, PRIMARY, error_lines, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

ACCEPT = ("--rl-baseline-update", "--rl-baseline-reason=half the workers, see #12")
REASON = "half the workers, see #12"


@pytest.mark.parametrize(
    ("rate", "workers"), [(8.0, ()), (12.0, ()), (8.0, ("-n", "2"))], ids=["worse", "better", "worse-xdist"]
)
def test_a_reason_starts_a_new_level_that_the_next_run_is_compared_with(
    run: Run, capture: Write, three_runs: Path, rate: float, workers: tuple[str, ...]
) -> None:
    for number in range(3):
        capture(f"runs/{number}", rate=rate + number / 100)
    result = run("--rl-trace=runs", *ACCEPT, *workers)
    assert outcomes(result) == {"passed": ALL}
    document = json.loads(three_runs.read_text())
    assert [level["reason"] for level in document["levels"]] == [None, REASON]
    assert document["levels"][1]["moved"][PRIMARY]["delta"] == pytest.approx(rate / 10 - 1, abs=0.002)
    capture("next", rate=rate)
    assert outcomes(run("--rl-trace=next")) == {"passed": ALL}


def test_what_the_new_level_gives_up_stands_in_the_reports(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("run-1", rate=8.0)
    result = run("--rl-trace=run-1", *ACCEPT, "--rl-report=json:report.json", "--rl-report=markdown:report.md")
    (change,) = report_of()["baseline_changes"]
    assert change.pop("delta") == pytest.approx(-0.2, abs=0.001)
    assert (change["baseline"], change["current"]) == (pytest.approx(10.0, abs=0.001), pytest.approx(8.0))
    assert (change["metric"], change["reason"]) == (PRIMARY, REASON)
    for text in ((pytester.path / "report.md").read_text(), result.stdout.str()):
        assert PRIMARY in text
        assert "half the workers" in text
        assert "20.0 %" in text


def test_an_undecided_change_is_accepted_with_a_reason(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1", rate=9.7)
    assert outcomes(run("--rl-trace=run-1", *ACCEPT)) == {"passed": ALL}
    (level,) = json.loads(three_runs.read_text())["levels"]
    assert len(level["runs"]) == 4


def test_a_reason_does_not_excuse_a_missed_limit(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p50" = "<= 1ms"')
    capture("run-1", rate=8.0)
    assert outcomes(run("--rl-trace=run-1", *ACCEPT)) == {"passed": ALL, "failed": 1}


@pytest.mark.parametrize("figures", [{"prompt": 1}, {"identity": {"model": "another"}}], ids=str)
def test_a_reason_does_not_make_another_workload_comparable(
    run: Run, capture: Write, three_runs: Path, figures: dict[str, object]
) -> None:
    before = three_runs.read_bytes()
    capture("run-1", **figures)
    result = run("--rl-trace=run-1", *ACCEPT)
    assert outcomes(result) == {"passed": ALL - 2, "errors": 2}
    result.stdout.fnmatch_lines(["baseline s.json left as it is: * is not comparable"])
    assert three_runs.read_bytes() == before


def test_accepting_one_metric_with_k_keeps_the_baseline_of_the_others(
    run: Run, capture: Write, three_runs: Path
) -> None:
    capture("run-1", rate=8.0)
    run("--rl-trace=run-1", *ACCEPT, "-k", PRIMARY)
    capture("next", rate=8.0, downtime=5.0)
    result = run("--rl-trace=next", "-k", "update_downtime")
    assert outcomes(result) == {"failed": 1, "deselected": ALL - 1}


@pytest.mark.parametrize("flags", [(), ("--rl-baseline-update-new",)], ids=["alone", "with update-new"])
def test_a_reason_without_an_update_is_wrong_use(run: Run, capture: Write, flags: tuple[str, ...]) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-baseline-reason=because", *flags)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == ["ERROR: rlserve: --rl-baseline-reason goes with --rl-baseline-update"]


@pytest.mark.parametrize("reason", ["", "   "])
def test_an_empty_reason_is_no_reason(run: Run, capture: Write, reason: str) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-baseline-update", f"--rl-baseline-reason={reason}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == ["ERROR: rlserve: --rl-baseline-reason= is empty: say why the level is accepted"]
