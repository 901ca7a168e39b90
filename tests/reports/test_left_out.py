"""What metrics leave out is shown with its reason, once for all that leave out the same."""

from __future__ import annotations

from reports_data import Report, capture, comparison, metric, report

from pytest_rlserve.reports.left_out import left_out
from pytest_rlserve.reports.markdown import markdown
from pytest_rlserve.reports.terminal import terminal

SHUT, WARM = "3.80 s in which the update gate was shut", "17 requests received within 0.5 s after a reset"
RATES = ("accepted_trajectory_throughput", "request_throughput")


def told(*captures: str, **more: object) -> Report:
    metrics = [metric(name, 1.0, "1/s", 9) | {"excluded": [SHUT]} for name in RATES]
    metrics += [metric("kv_reuse_fraction", 0.5, "fraction", 9) | {"excluded": [WARM]}]
    metrics += [metric("transfer_time", 0.5, "s", 9)]
    return report("pass", captures=[capture(name, metrics=metrics) for name in captures], **more)


def lines(found: Report, *, judged: bool = False) -> list[str]:
    return ["".join(cell) for cell in left_out(found, judged=judged)]


def test_metrics_that_leave_out_the_same_stand_together() -> None:
    assert lines(told("c")) == [f"left out of {RATES[0]}, {RATES[1]}: {SHUT}", f"left out of kv_reuse_fraction: {WARM}"]


def test_several_captures_are_named() -> None:
    assert [line.split()[1] for line in lines(told("one", "two"))] == ["one", "one", "two", "two"]


def test_a_terminal_shows_it_of_the_metrics_that_were_judged_and_markdown_of_all() -> None:
    found = told("c", comparisons=[comparison(RATES[0], "unchanged", "1/s", 1.0, 1.0)])
    assert lines(found, judged=True) == [f"left out of {RATES[0]}: {SHUT}"]
    assert f"left out of {RATES[0]}: {SHUT}" in terminal(found)
    assert WARM not in terminal(found)
    assert WARM in terminal(found, verbose=True)
    assert "<details><summary>Left out (2)</summary>" in markdown(found)
