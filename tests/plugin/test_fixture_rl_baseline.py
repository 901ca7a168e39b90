"""rl_baseline.check(): comparisons in tests of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import PRIMARY, both_ways, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

OWN = ("--no-rl-suite", "--rl-report=json:report.json")
CHECKS = [
    ("'ttft.p50', 'itl.p50'", {"passed": 1}, "pass"),
    (f"'ttft.p50', '{PRIMARY}'", {"failed": 1}, "regressed"),
    (f"'{PRIMARY}', regression='25%'", {"passed": 1}, "pass"),
    (f"'{PRIMARY}', regression=0.25", {"passed": 1}, "pass"),
    ("'request_latency'", {"failed": 1}, "regressed"),
    ("'request_latency', 'ttft.p95'", {"failed": 1}, "regressed"),
    ("'tool_time'", {"inconclusive": 1}, "inconclusive"),
]


@pytest.mark.parametrize(("args", "counts", "verdict"), CHECKS, ids=[args for args, _, _ in CHECKS])
def test_rl_baseline_check_is_judged_as_an_item_of_the_suite_is(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    args: str,
    counts: dict[str, int],
    verdict: str,
) -> None:
    capture("slow", rate=8.0)
    pytester.makepyfile(f"def test_own(rl_baseline): rl_baseline.check({args})")
    assert outcomes(run("--rl-trace=slow", *OWN)) == counts
    assert report_of()["verdict"] == verdict


@both_ways
def test_all_metrics_of_a_check_are_compared_before_the_first_failure_is_told(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    capture("slow", rate=8.0, ttft_ms=80.0)
    pytester.makepyfile(f"def test_own(rl_baseline): rl_baseline.check('{PRIMARY}', 'itl.p50', 'ttft.p50')")
    result = run("--rl-trace=slow", *OWN, *workers)
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines([f"{PRIMARY} regressed by 20.0 %*", "ttft.p50 regressed by 60.0 %*"])
    verdicts = {one["metric"]: one["verdict"] for one in report_of()["comparisons"]}
    assert verdicts == {PRIMARY: "regressed", "itl.p50": "unchanged", "ttft.p50": "regressed"}
    assert "fixtures.py" not in result.stdout.str()


def test_without_a_baseline_a_check_is_skipped_and_fails_in_ci(
    run: Run, pytester: pytest.Pytester, capture: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture("one")
    pytester.makepyfile("def test_own(rl_baseline): rl_baseline.check('ttft')")
    assert outcomes(run("--rl-trace=one", *OWN)) == {"skipped": 1}
    monkeypatch.setenv("CI", "1")
    assert outcomes(run("--rl-trace=one", *OWN)) == {"failed": 1}


def test_what_cannot_be_compared_fails_in_the_body_of_a_test(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, report_of: ReadReport
) -> None:
    capture("other", prompt=1)
    pytester.makepyfile("def test_own(rl_baseline): rl_baseline.check('ttft')")
    assert outcomes(run("--rl-trace=other", *OWN)) == {"failed": 1}
    assert report_of()["verdict"] == "not_comparable"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("", "rl_baseline.check() names no metric"),
        ("'tfft'", "no metric is named 'tfft'; did you mean 'ttft'?"),
        ("'ttft', regression=3", "3 is more than the whole: write 3% if a percentage is meant"),
        ("'ttft', regression='often'", "'often' is not a quantity in fraction"),
    ],
)
def test_a_check_that_is_written_wrongly_says_so_under_the_users_line(
    run: Run, pytester: pytest.Pytester, capture: Write, args: str, said: str
) -> None:
    capture("one")
    pytester.makepyfile(test_own=f"def test_own(rl_baseline): rl_baseline.check({args})")
    result = run("--rl-trace=one", *OWN)
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines([f"E  *{said.replace('[', '[[]')}*", "", "test_own.py:1: UsageError"])
    assert "measuring.py" not in result.stdout.str()
