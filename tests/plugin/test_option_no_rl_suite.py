"""--no-rl-suite: only tests of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, ids, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write

OWN = """
    def test_of_a_capture(rl_trace): assert rl_trace.has("requests")
    def test_of_the_baseline(rl_baseline): rl_baseline.check("ttft.p50")
"""
HEADER = "rlserve: run-1; the default policy; the built-in suite is left out"


@both_ways
def test_only_tests_of_ones_own_run_and_the_header_says_so(
    run: Run,
    pytester: pytest.Pytester,
    capture: Write,
    three_runs: Path,
    report_of: ReadReport,
    workers: tuple[str, ...],
) -> None:
    pytester.makepyfile(test_own=OWN)
    capture("run-1")
    result = run("--rl-trace=run-1", "--no-rl-suite", "--rl-report=json:report.json", *workers)
    assert outcomes(result) == {"passed": 2}
    assert HEADER in result.outlines
    assert report_of()["not_run"] == []
    assert [one["metric"] for one in report_of()["comparisons"]] == ["ttft.p50"]


def test_a_run_with_nothing_else_is_not_green(run: Run, capture: Write) -> None:
    capture("run-1")
    assert run("--rl-trace=run-1", "--no-rl-suite").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_policy_file_is_still_collected_where_it_is_named(
    run: Run, pytester: pytest.Pytester, capture: Write
) -> None:
    (pytester.path / "rlserve.toml").write_text("")
    capture("run-1")
    assert len(ids(run("--rl-trace=run-1", "--no-rl-suite", "rlserve.toml", "--collect-only", "-q"))) == ALL


def test_broken_evidence_is_told_in_full_where_no_check_of_the_suite_tells_it(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    pytester.makepyfile(test_own=OWN)
    capture("torn", torn=True)
    result = run("--rl-trace=torn", "--no-rl-suite", "--rl-report=json:report.json")
    assert outcomes(result) == {"errors": 2}
    result.stdout.fnmatch_lines(
        ["not judged: rows_fit_schema found broken evidence in torn: *", "  request-trace.jsonl:40: *"]
    )
    assert report_of()["verdict"] == "invalid"
