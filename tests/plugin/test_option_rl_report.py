"""--rl-report=FORMAT:PATH: reports in files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from plugin.projects import both_ways, error_lines
from pytest_rlserve import cli, schema

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import ReadReport, Run, Write


@pytest.fixture(autouse=True)
def project(capture: Write, three_runs: Path) -> None:
    capture("run-1", rate=8.0)


def test_several_are_written_and_named(run: Run, pytester: pytest.Pytester) -> None:
    specs = ["json:report.json", "markdown:report.md", "summary:summary.md"]
    result = run("--rl-trace=run-1", *(f"--rl-report={spec}" for spec in specs))
    for spec in specs:
        name, _, path = spec.partition(":")
        assert f"{name} report written to {path}" in result.outlines
        assert "accepted_trajectory_throughput" in (pytester.path / path).read_text()


def test_the_json_report_fits_its_schema(run: Run, report_of: ReadReport) -> None:
    run("--rl-trace=run-1", "--rl-report=json:report.json")
    assert schema.problems("rlserve.report.v1", report_of()) == []
    assert report_of()["verdict"] == "regressed"


def test_folders_are_made(run: Run, report_of: ReadReport) -> None:
    run("--rl-trace=run-1", "--rl-report=json:out/of/here/report.json")
    assert report_of("out/of/here/report.json")["verdict"] == "regressed"


def test_the_report_names_no_path_of_the_machine(run: Run, pytester: pytest.Pytester) -> None:
    run("--rl-trace=run-1", "--rl-report=json:report.json", "--rl-report=markdown:report.md")
    for name in ("report.json", "report.md"):
        assert str(pytester.path) not in (pytester.path / name).read_text()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("jsn:report.json", "no report is named 'jsn'; did you mean 'json'?"),
        ("report.json", "--rl-report=report.json: write FORMAT:PATH, with one of "),
        ("json:", "--rl-report=json:: write FORMAT:PATH, with one of "),
        ("", "--rl-report=: write FORMAT:PATH, with one of "),
    ],
)
def test_a_format_that_is_not_there_is_wrong_use(run: Run, spec: str, said: str) -> None:
    result = run("--rl-trace=run-1", f"--rl-report={spec}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = error_lines(result)
    assert line.startswith(f"ERROR: rlserve: {said}")


@both_ways
def test_a_path_that_cannot_be_written_to_fails_the_run_and_stops_no_other_report(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    (pytester.path / "file").write_text("in the way")
    capture("good", rate=10.0)
    result = run("--rl-trace=good", "--rl-report=json:file/report.json", "--rl-report=json:report.json", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["error: the json report cannot be written to file/report.json: *"])
    assert report_of()["verdict"] == "pass"


def test_reports_are_written_where_the_evidence_is_broken(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("torn", torn=True)
    run("--rl-trace=torn", "--rl-report=json:report.json")
    assert report_of()["verdict"] == "invalid"
    broken = {one["name"]: one["status"] for one in report_of()["captures"][0]["checks"]}
    assert broken["rows_fit_schema"] == "error"


def test_nothing_is_written_where_nothing_ran(run: Run, pytester: pytest.Pytester) -> None:
    run("--rl-trace=run-1", "--rl-report=json:report.json", "--collect-only")
    run("--rl-trace=nowhere", "--rl-report=json:report.json")
    assert not (pytester.path / "report.json").exists()


def test_the_verdict_of_a_test_of_ones_own_is_in_the_report(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport
) -> None:
    pytester.makepyfile("def test_own(rl_trace): assert not 'as it should be'")
    capture("good", rate=10.0)
    run("--rl-trace=good", "--rl-report=json:report.json")
    assert report_of()["verdict"] == "failed"
    json.dumps(report_of())


@both_ways
def test_a_failing_test_of_ones_own_is_named_in_the_report(
    run: Run, pytester: pytest.Pytester, capture: Write, report_of: ReadReport, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.fixture
        def broken(): raise RuntimeError

        def test_fails(rl_trace): assert not 'as it should be'
        def test_errs(rl_trace, broken): ...
        def test_passes(rl_trace): ...
        def test_of_something_else(): assert 0
        """
    )
    capture("good", rate=10.0)
    result = run("--rl-trace=good", "--rl-report=json:report.json", "--rl-report=markdown:report.md", *workers)
    assert report_of()["failed_tests"] == [
        {"id": "test_own.py::test_errs[good]", "status": "error"},
        {"id": "test_own.py::test_fails[good]", "status": "failed"},
    ]
    assert schema.problems("rlserve.report.v1", report_of()) == []
    assert "tests: 1 in error, 1 failed" in " ".join(line.strip() for line in result.outlines)
    comment = (pytester.path / "report.md").read_text()
    named = "- `test_own.py::test_errs[good]` in error\n- `test_own.py::test_fails[good]` failed"
    assert f"#### Tests\n\n{named}" in comment


def test_a_regression_that_a_test_of_ones_own_found_is_a_comparison_and_not_listed_again(
    run: Run, pytester: pytest.Pytester, report_of: ReadReport
) -> None:
    pytester.makepyfile("def test_own(rl_baseline): rl_baseline.check('accepted_trajectory_throughput')")
    run("--rl-trace=run-1", "--rl-report=json:report.json")
    assert (report_of()["verdict"], report_of()["failed_tests"]) == ("regressed", [])


def test_a_comment_made_again_from_the_json_report_is_the_same(
    run: Run, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--rl-trace=run-1", "--rl-report=json:report.json", "--rl-report=markdown:report.md")
    capsys.readouterr()
    assert cli.main(["report", str(pytester.path / "report.json"), "--format=markdown"]) == 0
    assert capsys.readouterr().out == (pytester.path / "report.md").read_text()


def test_where_pytest_is_very_quiet_one_line_says_it(run: Run) -> None:
    said = run("--rl-trace=run-1", "-qq", "--rl-report=json:report.json").outlines
    after = said[said.index(next(line for line in said if "= rlserve =" in line)) + 1 :]
    assert after[0] == "REGRESSED: 1 regressed, 1 unchanged; checks: 13 passed"
    assert after[1] == "json report written to report.json"
