"""The terminal report says the verdict first, fits the terminal and hides nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from reports_data import (
    HOSTILE,
    MESSAGE,
    STORIES,
    capture,
    check,
    finding,
    hostile,
    long,
    metric,
    passed,
    regressed,
    report,
)

from pytest_rlserve.reports import render
from pytest_rlserve.reports.terminal import terminal

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture


@pytest.mark.parametrize("story", STORIES)
def test_each_story_reads_well(story: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(terminal(STORIES[story]()), encoding="utf-8")


def test_a_regression_in_full_reads_well(file_regression: FileRegressionFixture) -> None:
    file_regression.check(terminal(regressed(), verbose=True, columns=132), encoding="utf-8")


def test_a_regression_reads_well_on_80_columns(file_regression: FileRegressionFixture) -> None:
    file_regression.check(terminal(regressed(), columns=80), encoding="utf-8")


@pytest.mark.parametrize("columns", [72, 80, 100, 160])
@pytest.mark.parametrize("story", [*STORIES, *HOSTILE], ids=lambda text: ascii(text[:20]))
def test_no_line_is_wider_than_the_terminal(story: str, columns: int) -> None:
    text = terminal(STORIES[story]() if story in STORIES else hostile(story), columns=columns)
    assert max(map(len, text.split("\n"))) <= columns


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_names_move_no_cursor_and_command_no_runner(text: str, verbose: bool) -> None:
    for line in terminal(hostile(text), verbose=verbose).split("\n"):
        assert line.isprintable()
        assert not re.search(r"^\s*::|##\w*\[", line)


def test_a_fold_cannot_put_a_command_at_the_start_of_a_line() -> None:
    for width in range(60, 100):
        text = terminal(
            report("failed", captures=[capture("x", not_read=[{"path": "p", "why": "x" * width + "::error::y"}])])
        )
        assert not re.search(r"(?m)^\s*::", text)


def test_an_absent_count_is_not_available_rather_than_zero() -> None:
    lines = terminal(
        report("pass", captures=[capture("run_1", counts={"attempts": {"open": 0}, "requests": {}})])
    ).split("\n")
    counts = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("dispatched", "  open", "rows"))}
    assert counts == {"dispatched": ["n/a", "n/a"], "open": ["0", "n/a"], "rows": ["n/a"]}


def test_ids_that_look_like_numbers_print_as_they_are_spelt() -> None:
    for name in ("1e5", "2e7", "0012", "20200407_2", "12345678901234567890", "nan"):
        run = capture(name, checks=[{"name": name, "status": "fail", "findings": [finding("late", ids=[name])]}])
        text = terminal(report("failed", captures=[run, run], not_run=[name]))
        assert len(re.findall(rf"(?<!\S)\(?{name}\)?(?!\S)", text)) >= 7


def test_a_check_that_fails_in_one_of_three_captures_counts_once_as_failed() -> None:
    captures = [capture(f"run_{i}", checks=[check("c", status)]) for i, status in enumerate(["pass", "fail", "pass"])]
    assert terminal(report("failed", captures=captures)).startswith("FAILED: checks: 1 failed\n")


def test_few_metrics_are_listed_and_many_are_counted() -> None:
    def text(metrics: int, verbose: bool = False) -> str:
        run = capture("run_1", metrics=[metric(f"m{i}", i or None, "s", 5, why="no rows") for i in range(metrics)])
        return terminal(report("pass", captures=[run]), verbose=verbose)

    assert "m28" in text(29)
    assert "m0 not observable: no rows" in text(29)
    assert "m28" not in text(30)
    assert "measured: 29 values, 1 not observable" in text(30)
    assert "m29" in text(30, verbose=True)


def test_findings_and_missing_tests_are_cut_at_five_and_counted() -> None:
    missing = [f"rlserve.toml::metrics::m{i}" for i in range(12)]
    findings = [finding(f"torn line {i}") for i in range(12)]
    run = capture("run_1", checks=[{"name": "rows_fit_schema", "status": "error", "findings": findings}])
    story = report("invalid", captures=[run], not_run=missing)
    assert "torn line 4" in terminal(story)
    assert "torn line 5" not in terminal(story)
    assert "+7 more findings" in terminal(story)
    assert "m4\n  +7 more" in terminal(story)
    assert "torn line 11" in terminal(story, verbose=True)
    assert "m11" in terminal(story, verbose=True)


def test_passed_checks_sources_and_messages_appear_when_asked_for() -> None:
    brief, full = terminal(regressed()), terminal(regressed(), verbose=True)
    for text in (
        "rows_fit_schema",
        "trace.000000.jsonl.gz",
        "has a serving row: 821 of 825 requests",
        MESSAGE,
    ):
        assert text not in brief
        assert text in full


def test_what_a_passed_check_warns_of_is_shown_and_its_notes_are_not() -> None:
    found = [finding("a worker was lost", severity="warning"), finding("for what it is worth", severity="note")]
    text = terminal(report("pass", captures=[capture("c", checks=[check("updates", "pass", findings=found)])]))
    assert re.search("PASSED +updates.*\n +warning: a worker was lost", text)
    assert "for what it is worth" not in text


def test_the_registered_report_is_the_brief_one() -> None:
    assert render(passed(), "terminal") == terminal(passed())


def test_ten_thousand_rows_are_laid_out() -> None:
    assert terminal(long()).count("REGRESSED") == 1 + (10_000 + 2) // 3
