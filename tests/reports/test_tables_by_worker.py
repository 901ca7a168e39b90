"""Tables of KV reuse and load: shown where a verdict asks for them, with the whole in the last row."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from reports_data import HOSTILE, Report, capture, check, comparison, limit, report

from pytest_rlserve import schema
from pytest_rlserve.reports.breakdown import asked, breakdowns
from pytest_rlserve.reports.markdown import markdown
from pytest_rlserve.reports.terminal import terminal

SHARES = ("kv_reuse_fraction", "kv_reuse_ceiling", "kv_worker_ceiling", "kv_reuse_efficiency")


def part(numerator: float, denominator: float) -> dict[str, float]:
    return {"numerator": numerator, "denominator": denominator}


def kv_row(key: str | None, reused: int, whole: int, ceiling: int | None) -> dict[str, Any]:
    known = None if ceiling is None else part(ceiling, whole)
    shares = {name: part(reused, whole) if name == "kv_reuse_fraction" else known for name in SHARES}
    shares["kv_reuse_efficiency"] = None if ceiling is None else part(reused, ceiling)
    return {"key": key, "requests": 1, "prompt_tokens": whole, "shares": shares}


def load_row(key: str | None, seconds: float | None, queue: dict[str, float] | None) -> dict[str, Any]:
    counts = dict.fromkeys(("completed", "prompt_tokens", "output_tokens"), 5)
    return {"key": key, "requests": 7, **counts, "serving_seconds": seconds, "queue_depth": queue}


def table(*rows: dict[str, Any], why: str | None = None) -> dict[str, Any]:
    return {"why": why, "rows": list(rows)}


TABLES = {
    "kv_by_worker": table(kv_row("17", 30, 100, 60), kv_row("4", 10, 300, 100)),
    "kv_by_step": table(why="no step has both step_started and step_finished"),
    "load_by_worker": table(load_row("17", 30.0, part(6, 4)), load_row("4", 10.0, None), load_row(None, 1.0, None)),
    "load_by_step": table(),
    "updates": table(
        {
            "update": "2",
            "worker": "17",
            "replaced_worker": None,
            "policy_version": "2",
            "reached": True,
            "phases": {"transfer_finished": 0.4, "cache_reset": 1.5, "gate_opened": 2.0},
        },
        {
            "update": "2",
            "worker": "4",
            "replaced_worker": "3",
            "policy_version": None,
            "reached": False,
            "phases": {"gate_opened": 2.0},
        },
    ),
}


def told(*more: Any, **fields: Any) -> Report:
    one = capture("run-1", **fields)
    one["tables"] = copy.deepcopy(TABLES)
    return report("pass", captures=[one, *more])


def cells(found: Report, title: str) -> list[tuple[Any, ...]]:
    (one,) = [table for table in breakdowns(found) if table.title == title]
    return one.rows


def test_a_report_with_tables_is_one() -> None:
    assert schema.problems("rlserve.report.v1", told()) == []


def test_the_whole_is_divided_only_after_it_was_added_up() -> None:
    rows = cells(told(), "KV reuse by worker")
    assert [row[:7] for row in rows] == [
        ("17", "1", "100", "30.0 %", "60.0 %", "60.0 %", "50.0 %"),
        ("4", "1", "300", "3.3 %", "33.3 %", "33.3 %", "10.0 %"),
        ("all", "2", "400", "10.0 %", "40.0 %", "40.0 %", "25.0 %"),
    ]


def test_load_is_shown_against_the_mean_of_the_known_workers() -> None:
    rows = cells(told(), "load by worker")
    assert [(row[0], row[5], row[6], row[7]) for row in rows] == [
        ("17", "30.00 s", "1.46 x", "1.50"),
        ("4", "10.00 s", "0.49 x", "n/a"),
        ("no worker known", "1.00 s", "", "n/a"),
        ("all", "41.00 s", "", "1.50"),
    ]


def test_an_update_shows_each_workers_phases_and_who_was_missed() -> None:
    first, second = cells(told(), "update (s)")
    assert first[:4] == ("2", "17", "", "2")
    assert second[:4] == ("2", "4", "3", "missed")
    assert [cell for cell in first[4:] if cell] == ["0.400", "1.500", "2.000"]
    assert [cell for cell in second[4:] if cell] == ["2.000"]


def test_what_nobody_knows_is_not_zero() -> None:
    found = told()
    found["captures"][0]["tables"] = {"kv_by_worker": table(kv_row("1", 1, 10, None), kv_row("2", 1, 10, None))}
    assert {row[4] for row in cells(found, "KV reuse by worker")} == {"n/a"}


def test_several_captures_have_a_column_of_their_names() -> None:
    other = capture("run-2") | {"tables": copy.deepcopy(TABLES)}
    assert [row[:2] for row in cells(told(other), "KV reuse by worker")] == [
        *(("17", "run-1"), ("4", "run-1"), ("all", "run-1")),
        *(("17", "run-2"), ("4", "run-2"), ("all", "run-2")),
    ]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, []),
        ({"comparisons": [comparison("kv_reuse_efficiency", "unchanged", "fraction", 0.8, 0.8)]}, []),
        ({"comparisons": [comparison("kv_reuse_efficiency", "regressed", "fraction", 0.8, 0.6)]}, ["kv"]),
        ({"limits": [limit("kv_reuse_fraction", ">= 60.0 %", 0.5, "fraction", "failed")]}, ["kv"]),
        ({"limits": [limit("queue_depth.mean", "<= 1", 3, "requests", "failed")]}, ["load"]),
        ({"captures": [capture("c", checks=[check("no_stale_kv", "fail")])]}, ["kv"]),
        ({"captures": [capture("c", checks=[check("updates_are_ordered", "fail")])]}, ["updates"]),
        ({"comparisons": [comparison("update_downtime", "regressed", "s", 1.0, 2.0)]}, ["updates"]),
        ({"comparisons": [comparison("update_downtime", "no_baseline", "s", None, 2.0)]}, []),
    ],
)
def test_the_terminal_shows_the_tables_that_a_verdict_asks_for(fields: dict[str, Any], names: list[str]) -> None:
    found = report("failed", **fields) if fields else report("pass")
    assert asked(found) == names
    found["captures"] = [one | {"tables": copy.deepcopy(TABLES)} for one in found["captures"] or [capture("c")]]
    text = terminal(found)
    assert ("KV reuse" in text) is ("kv" in names)
    assert ("missed" in text) is ("updates" in names)
    assert ("by worker" in terminal(found, verbose=True)) is True


def test_a_long_table_is_cut_on_a_terminal_and_its_whole_is_not() -> None:
    found = told()
    found["limits"] = [limit("kv_reuse_fraction", ">= 60.0 %", 0.5, "fraction", "failed")]
    found["captures"][0]["tables"] = {"kv_by_step": table(*(kv_row(str(n), 1, 10, 5) for n in range(100)))}
    text = terminal(found)
    assert "+92 more" in text
    assert "1,000" in text.split("+92 more")[1]
    assert "+92 more" not in terminal(found, verbose=True)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_figure_is_cut_to_fit_100_columns(columns: int) -> None:
    found = told()
    rows = [kv_row(str(2**64 - 1 - n), 1_000_000, 1_670_095, 1_200_000) for n in range(4)]
    found["captures"][0]["tables"] = {"kv_by_worker": table(*rows)}
    text = terminal(found, verbose=True, columns=columns)
    assert columns < 100 or ("1,670,095" in text and "6,680,380" in text)


def test_markdown_folds_them() -> None:
    text = markdown(told())
    assert "<details><summary>KV reuse by worker (3)</summary>" in text
    assert "| `17` | 1 | 100 | 30.0 % |" in text
    assert "| all | 2 | 400 | 10.0 % |" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_key_adds_no_row_and_no_command(text: str) -> None:
    found = told()
    found["captures"][0]["tables"] = {"kv_by_worker": table(kv_row(text, 1, 10, 5), kv_row("2", 1, 10, 5))}
    shown = markdown(found)
    start = shown.index("KV reuse by worker (3)")
    assert len([line for line in shown[start:].split("\n</details>")[0].split("\n") if line.startswith("|")]) == 5
    assert all(not line.lstrip().startswith("::") for line in terminal(found, verbose=True).split("\n"))
