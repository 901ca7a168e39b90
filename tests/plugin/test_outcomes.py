"""What each verdict becomes in pytest, in JUnit's XML and in the exit code."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from plugin.projects import ALL, CHECKS, PRIMARY, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

REPORT = "--rl-report=json:report.json"
JUNIT = "--junitxml=junit.xml"


def junit(pytester: pytest.Pytester) -> dict[str, str]:
    """Return the test cases that did not pass: name → element."""
    cases = ET.parse(pytester.path / "junit.xml").iter("testcase")
    return {case.get("name", ""): child.tag for case in cases for child in case if child.tag != "properties"}


def test_a_regression_is_a_failure(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("run-1", rate=8.0)
    result = run("--rl-trace=run-1", REPORT, JUNIT)
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL - 1, "failed": 1})
    assert junit(pytester) == {PRIMARY: "failure"}
    assert report_of()["verdict"] == "regressed"


def test_a_missed_limit_is_a_failure(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p50" = "<= 40ms"')
    capture("run-1")
    result = run("--rl-trace=run-1", REPORT, JUNIT)
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL, "failed": 1})
    assert junit(pytester) == {"ttft.p50": "failure"}
    assert report_of()["verdict"] == "failed"


def test_a_check_that_does_not_hold_is_a_failure(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("run-1", open_attempts=1)
    result = run("--rl-trace=run-1", REPORT, JUNIT)
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL - 1, "failed": 1})
    assert junit(pytester) == {"attempts_reconcile": "failure"}
    assert report_of()["verdict"] == "failed"


@both_ways
def test_inconclusive_has_a_status_of_its_own(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    capture("run-1", rate=9.7)
    result = run("--rl-trace=run-1", "-v", REPORT, JUNIT, *workers)
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.OK, {"passed": ALL - 1, "inconclusive": 1})
    result.stdout.fnmatch_lines([f"*{PRIMARY}*INCONCLUSIVE*" if not workers else f"*INCONCLUSIVE*{PRIMARY}*"])
    result.stdout.fnmatch_lines([f"*InconclusiveWarning: {PRIMARY} is inconclusive, underpowered: -3.0 %*"])
    assert junit(pytester) == {PRIMARY: "skipped"}
    assert report_of()["verdict"] == "inconclusive"


@pytest.mark.parametrize("category", ["pytest_rlserve.InconclusiveWarning", "pytest_rlserve.RlserveWarning", ""])
def test_where_warnings_are_errors_inconclusive_fails(
    run: Run, capture: Write, three_runs: Path, category: str
) -> None:
    capture("run-1", rate=9.7)
    result = run("--rl-trace=run-1", "-W", f"error::{category}" if category else "error")
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL - 1, "failed": 1})
    result.stdout.fnmatch_lines(["*(warnings are errors in this run)"])


@both_ways
def test_broken_evidence_is_an_error_and_all_that_rests_on_it_errs_in_one_line(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    capture("run-1", torn=True)
    result = run("--rl-trace=run-1", REPORT, JUNIT, *workers)
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": 2, "errors": ALL - 2})
    dependents = [*CHECKS[3:], PRIMARY, "update_downtime"]
    assert junit(pytester) == dict.fromkeys(["rows_fit_schema", *dependents], "error")
    see = "not judged: run-1 cannot be trusted, see checks::rows_fit_schema"
    assert result.outlines.count(see) == len(dependents)
    assert report_of()["verdict"] == "invalid"


@pytest.mark.parametrize("figures", [{"prompt": 1}, {"identity": {"model": "other"}}, {"kind": "rollout"}], ids=str)
def test_what_cannot_be_compared_is_an_error(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    figures: dict[str, Any],
) -> None:
    capture("run-1", **figures)
    result = run("--rl-trace=run-1", REPORT, JUNIT)
    if figures == {"kind": "rollout"}:  # what every capture is that does not say
        assert result.ret == pytest.ExitCode.OK
        return
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL - 2, "errors": 2})
    assert junit(pytester) == {PRIMARY: "error", "update_downtime": "error"}
    assert report_of()["verdict"] == "not_comparable"


def test_a_value_that_the_baseline_has_and_the_run_lacks_is_an_error(
    run: Run, capture: Write, three_runs: Path
) -> None:
    control = capture("run-1") / "control.jsonl"
    rows = control.read_text().splitlines(keepends=True)
    control.write_text("".join(row for row in rows if "gate_opened" not in row))
    result = run("--rl-trace=run-1", "-k", "update_downtime")
    assert outcomes(result) == {"errors": 1, "deselected": ALL - 1}
    result.stdout.fnmatch_lines(["update_downtime is in the baseline but was not measured in run-1: *"])
