"""More than one factor differs: a warning, however green the run, and a failure where warnings are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, outcomes

if TYPE_CHECKING:
    from plugin.projects import ReadReport, Run, Write

SAID = "2 factors differ at once, so the cause is unclear"
BEFORE, AFTER = {"router": "least", "cache": "small"}, {"router": "random", "cache": "large"}


@pytest.fixture
def changed(run: Run, capture: Write) -> None:
    for number in range(3):
        capture(f"before/{number}", rate=10 + number / 100, factors=BEFORE)
    assert run("--rl-trace=before", "--rl-baseline-update").ret == pytest.ExitCode.OK
    capture("now", factors=AFTER)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_it_warns_though_all_is_unchanged_and_stands_in_every_report(
    run: Run, pytester: pytest.Pytester, changed: None, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    result = run("--rl-trace=now", "--rl-report=json:report.json", "--rl-report=markdown:report.md", *workers)
    assert result.ret == pytest.ExitCode.OK
    assert outcomes(result)["passed"] == ALL
    assert any("FactorsWarning" in line and SAID in line for line in result.outlines)
    assert {SAID in one["caution"] for one in report_of()["comparisons"]} == {True}
    assert SAID in (pytester.path / "report.md").read_text()


def test_where_warnings_are_errors_it_fails(run: Run, changed: None) -> None:
    result = run("--rl-trace=now", "-W", "error")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert any(SAID in line for line in result.outlines)


def test_a_test_of_ones_own_warns_too(run: Run, pytester: pytest.Pytester, changed: None) -> None:
    pytester.makepyfile('def test_rate(rl_baseline): rl_baseline.check("accepted_trajectory_throughput")')
    result = run("--rl-trace=now", "--no-rl-suite")
    assert result.ret == pytest.ExitCode.OK
    assert any("FactorsWarning" in line and SAID in line for line in result.outlines)
