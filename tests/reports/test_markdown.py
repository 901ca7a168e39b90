"""The Markdown report decides in its first line, fits a comment and lets no name do anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from reports_data import (
    AWKWARD_IDS,
    HOSTILE,
    STORIES,
    Report,
    awkward,
    comparison,
    hostile,
    long,
    passed,
    regressed,
    report,
)

from pytest_rlserve.reports import encode, escape, render
from pytest_rlserve.reports.markdown import markdown

if TYPE_CHECKING:
    from pytest_regressions.file_regression import FileRegressionFixture

LEFT_OUT = re.compile(r"^… ([\d,]+) more rows in the full report$", re.MULTILINE)


def unfenced(text: str) -> str:
    """Return a Markdown text with each whole code block in one word."""
    return re.sub(r"^(`{3,})text\n[\s\S]*?^\1$", "FENCE", text, flags=re.MULTILINE)


def tables(text: str) -> list[list[str]]:
    """Return the tables of a Markdown text without code blocks, each as its lines."""
    return [lines.strip().split("\n") for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def assert_whole(text: str) -> None:
    """Hold that no row, fold or fence was cut in the middle."""
    assert text.endswith("\n")
    text = unfenced(text)
    assert not re.search(r"^`{3,}[^`]*$", text, re.MULTILINE)
    assert text.count("\n<details>") == text.count("\n</details>\n")
    for table in tables(text):
        assert {columns(line) for line in table} == {columns(table[0])}
        assert len(table) > 2, "a table without rows says nothing"


@pytest.mark.parametrize("story", STORIES)
def test_each_story_reads_well(story: str, file_regression: FileRegressionFixture) -> None:
    file_regression.check(markdown(STORIES[story]()), encoding="utf-8", extension=".md")


@pytest.mark.parametrize("story", STORIES)
def test_the_first_line_is_the_marker_and_the_second_decides(story: str) -> None:
    marker, heading = markdown(STORIES[story]()).split("\n")[:2]
    assert marker == "<!-- pytest-rlserve:sticky v1 series=qwen3-0.6b-4w -->"
    assert re.match(r"### [A-Z ]+: .*— `qwen3-0.6b-4w`$", heading)


def test_regressions_come_before_all_else_and_unchanged_rows_are_folded() -> None:
    text = markdown(regressed())
    order = ["REGRESSED |", "INCONCLUSIVE |", "WAIVED |", "<summary>Unchanged (1)", "UNCHANGED |"]
    assert sorted(order, key=text.index) == order


def test_a_new_baseline_is_announced_before_the_verdicts() -> None:
    text = markdown(regressed())
    assert text.index("#### This changes the baseline") < text.index("REGRESSED |")
    assert "safer sampling" in text


def test_each_awkward_id_has_a_row_of_its_own() -> None:
    (table,) = (table for table in tables(markdown(awkward())) if "found" in table[0])
    rows = table[2:]
    assert len(rows) == len(AWKWARD_IDS)
    for row, name in zip(rows, AWKWARD_IDS, strict=True):
        assert columns(row) == columns(table[0]) == 4
        assert f"({escape.code(name)})" in row


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
def test_hostile_names_change_no_structure(text: str) -> None:
    def shape(story: Report) -> list[str]:
        """Reduce a text to the marks that Markdown sees at the start of its lines."""
        lines = unfenced(markdown(story)).split("\n")
        return [re.sub(r"[^|]+", " ", line) if line.startswith("|") else line[:4] for line in lines]

    plain, foreign = shape(hostile("plain")), shape(hostile(text))
    assert_whole(markdown(hostile(text)))
    assert len(plain) == len(foreign)
    assert [line for line in plain if line[:1] in "|#<"] == [line for line in foreign if line[:1] in "|#<"]


@pytest.mark.parametrize("limit", [2_500, 5_000, 60_000, 300_000, 1_000_000])
def test_a_long_report_fits_and_counts_what_it_leaves_out(limit: int) -> None:
    story = long()
    text, everything = markdown(story, limit=limit), markdown(story, limit=10**9)
    assert_whole(text)
    assert len(text.encode()) <= limit
    rows = len([line for table in tables(text) for line in table[2:]])
    left_out = sum(int(count.replace(",", "")) for count in LEFT_OUT.findall(text))
    fences = text.count("```text")
    assert not LEFT_OUT.search(everything)
    listed = text.count("\n- ")
    total = sum(len(table) - 2 for table in tables(everything)) + everything.count("```text") + everything.count("\n- ")
    missing_provenance = "policy path" not in text
    assert rows + fences + listed + left_out == total + missing_provenance
    assert left_out > 0


def test_a_long_report_uses_the_room_it_has() -> None:
    assert len(markdown(long()).encode()) > 59_000


def test_unchanged_rows_go_first_then_details_then_regressions() -> None:
    story = long(300)
    seen = []
    for limit in range(120_000, 2_000, -1_000):
        text = markdown(story, limit=limit)
        seen.append(tuple(text.count(mark) > 0 for mark in ("| UNCHANGED", "```text", "| FAILED", "| REGRESSED")))
    order = list(dict.fromkeys(seen))
    assert order == [
        (True, True, True, True),
        (False, True, True, True),
        (False, False, True, True),
        (False, False, False, True),
    ] + ([(False, False, False, False)] if order[-1] == (False,) * 4 else [])


def test_the_limit_counts_bytes_not_characters() -> None:
    rows = [comparison("漢" * 40, "regressed", "s", 1.0, 2.0, message="漢字 " * 40) for _ in range(1_000)]
    text = markdown(report("regressed", comparisons=rows))
    assert len(text) < len(text.encode()) <= 60_000


def test_a_tiny_limit_still_gives_the_verdict() -> None:
    text = markdown(long(), limit=1)
    assert_whole(text)
    assert text.split("\n")[1].startswith("### REGRESSED: 3,334 regressed, 6,666 unchanged")
    assert len(text.encode()) < 2_000


def test_the_job_summary_is_the_same_report_with_more_room() -> None:
    assert render(passed(), "summary") == render(passed(), "markdown") == markdown(passed())
    assert 60_000 < len(encode(long(), "summary")) <= 1_000_000
