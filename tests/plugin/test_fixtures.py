"""rl_trace, rl_captures and rl_baseline in tests of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, ids, outcomes

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Run, Write

OWN = ("--no-rl-suite", "--rl-report=json:report.json")


def test_rl_trace_is_each_capture_in_turn(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("runs/one")
    capture("runs/two")
    pytester.makepyfile(test_own="def test_own(rl_trace): assert rl_trace.requests.num_rows == 40")
    assert outcomes(run("--rl-trace=runs", "--no-rl-suite")) == {"passed": 2}
    assert ids(run("--rl-trace=runs", "--no-rl-suite", "--collect-only", "-q")) == [
        "test_own.py::test_own[one]",
        "test_own.py::test_own[two]",
    ]


def test_rl_captures_are_all_of_them_in_order(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("two")
    capture("one")
    pytester.makepyfile("def test_own(rl_captures): assert [c.name for c in rl_captures] == ['two', 'one']")
    assert outcomes(run("--rl-trace=two", "--rl-trace=one", "--no-rl-suite")) == {"passed": 1}


@pytest.mark.parametrize("fixture", ["rl_trace", "rl_captures", "rl_baseline"])
def test_each_of_them_errs_in_one_line_on_broken_evidence(
    run: Run, pytester: pytest.Pytester, capture: Write, fixture: str
) -> None:
    capture("torn", torn=True)
    pytester.makepyfile(test_own=f"def test_own({fixture}): pass")
    result = run("--rl-trace=torn", "-k", "test_own")
    assert outcomes(result) == {"errors": 1, "deselected": ALL}
    result.stdout.fnmatch_lines(["not judged: rows_fit_schema found broken evidence in torn: * of * rows"])
    assert "request-trace.jsonl:40" not in result.stdout.str(), "the suite's own check says where"


def test_a_baseline_that_cannot_be_read_errs_in_set_up(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    three_runs.write_text("")
    capture("one")
    pytester.makepyfile("def test_own(rl_baseline): pass")
    assert outcomes(run("--rl-trace=one", *OWN)) == {"errors": 1}


def test_the_fixtures_explain_themselves(run: Run) -> None:
    result = run("--fixtures")
    result.stdout.fnmatch_lines(["rl_trace [[]session scope]*", "    The capture under test*"])
    result.stdout.fnmatch_lines(["rl_baseline -- *", "    The baseline of the captures' series*"])
