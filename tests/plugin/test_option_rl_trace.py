"""--rl-trace=PATH: a directory, a file, a glob, several, a directory of several; and what is none of these."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, both_ways, error_lines, outcomes

if TYPE_CHECKING:
    from plugin.projects import ReadReport, Run, Write

REPORT = "--rl-report=json:report.json"


def names(report: dict[str, list[dict[str, str]]]) -> list[str]:
    return [capture["name"] for capture in report["captures"]]


@both_ways
def test_a_directory_is_one_capture(run: Run, capture: Write, report_of: ReadReport, workers: tuple[str, ...]) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", REPORT, *workers)
    assert outcomes(result) == {"passed": ALL - 2, "skipped": 2}
    assert names(report_of()) == ["run-1"]


def test_a_file_is_a_capture_of_its_own(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("run-1")
    run("--rl-trace=run-1/request-trace.jsonl", REPORT)
    (found,) = report_of()["captures"]
    assert [source["path"] for source in found["sources"]] == ["request-trace.jsonl"]


def test_a_glob_of_files_is_one_capture(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("run-1")
    run("--rl-trace=run-1/*.jsonl", REPORT)
    (found,) = report_of()["captures"]
    assert [source["path"] for source in found["sources"]] == [
        "attempts.jsonl",
        "control.jsonl",
        "request-trace.jsonl",
    ]


def test_a_glob_of_directories_is_several_captures(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("run-1")
    capture("run-2")
    run("--rl-trace=run-*", REPORT)
    assert names(report_of()) == ["run-1", "run-2"]


def test_several_captures_keep_the_order_in_which_they_were_typed(
    run: Run, capture: Write, report_of: ReadReport
) -> None:
    capture("b")
    capture("a")
    run("--rl-trace=b", "--rl-trace=a", REPORT)
    assert names(report_of()) == ["b", "a"]


def test_a_directory_of_captures_counts_as_several(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("runs/one")
    capture("runs/two")
    run("--rl-trace=runs", REPORT)
    assert names(report_of()) == ["one", "two"]


def test_captures_of_one_name_are_told_apart(run: Run, capture: Write, report_of: ReadReport) -> None:
    capture("monday/run")
    capture("tuesday/run")
    run("--rl-trace=monday/run", "--rl-trace=tuesday/run", REPORT)
    assert names(report_of()) == ["run", "run-2"]


def test_the_same_run_given_twice_is_refused(run: Run, capture: Write) -> None:
    capture("runs/one")
    capture("runs/two")
    result = run("--rl-trace=runs", "--rl-trace=runs/two")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = error_lines(result)
    assert "hold the same files" in line


@both_ways
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "there is no file or directory PROJECT/nowhere"),
        ("none*", "no file matches PROJECT/none*"),
        ("empty", "PROJECT/empty is empty: no request_end rows and no other record to judge"),
        ("zero.jsonl", "PROJECT/zero.jsonl is empty: no request_end rows and no other record to judge"),
        ("", "--rl-trace= names no path; is a variable empty?"),
    ],
    ids=["unknown path", "glob without match", "empty directory", "zero-byte file", "no path"],
)
def test_a_path_with_nothing_to_judge_is_one_line_and_exit_4(
    run: Run, pytester: pytest.Pytester, path: str, said: str, workers: tuple[str, ...]
) -> None:
    pytester.mkdir("empty")
    (pytester.path / "zero.jsonl").touch()
    result = run(f"--rl-trace={path}", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert error_lines(result) == [f"ERROR: rlserve: {said}".replace("PROJECT", str(pytester.path))]


def test_files_that_no_reader_knows_are_named_with_the_formats_that_are_known(
    run: Run, pytester: pytest.Pytester
) -> None:
    (pytester.path / "notes.txt").write_text("no capture")
    result = run("--rl-trace=notes.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    first, second = error_lines(result)
    assert "notes.txt holds no file that this version can read" in first
    assert "dynamo.request.trace.v1" in second


def test_a_compressed_shard_without_a_row_is_broken_evidence(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "request-trace.jsonl.gz").write_bytes(gzip.compress(b""))
    result = run("--rl-trace=request-trace.jsonl.gz", "-k", "rows_fit_schema")
    assert outcomes(result) == {"errors": 1, "deselected": ALL - 1}
    result.stdout.fnmatch_lines(["*no request_end rows*"])
