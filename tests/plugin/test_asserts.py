"""The assert_* functions: each passes, and fails with numbers and without a line of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugin.projects import outcomes

if TYPE_CHECKING:
    from plugin.projects import Run, Write

HOLDS = {
    "assert_valid(rl_trace)",
    "assert_reconciled(rl_trace)",
    "assert_joined(rl_trace)",
    "assert_joined(rl_trace, rows=1.0, traceable=1.0)",
    "assert_kv_reuse(rl_trace, floor=0.75)",
    "assert_kv_reuse(rl_trace, floor='75%')",
    "assert_latency(rl_trace, 'ttft', p50='50ms')",
    "assert_latency(rl_trace, 'ttft', p50='1s', mean='1s', max='1s')",
    "assert_limit(rl_trace, 'ttft.p50', '<= 50ms')",
    "assert_limit(rl_trace, 'accepted_trajectory_throughput', '>= 10')",
}
FAILS: dict[str, tuple[dict[str, Any], str]] = {
    "assert_reconciled(rl_trace)": (
        {"open_attempts": 2},
        "attempts_reconcile does not hold for run-1: 80 of 82 dispatched attempts and requests",
    ),
    "assert_reconciled(rl_trace, open_attempts=2)": ({"open_attempts": 3}, "3 attempts were dispatched and never"),
    "assert_reconciled(rl_trace, open_attempts=0.02)": ({"open_attempts": 1}, "open0 was dispatched and never ended"),
    "assert_joined(rl_trace)": ({"lost_rows": 2}, "38 of 40 traceable ones have a row (99.9 % needed)"),
    "assert_kv_reuse(rl_trace, floor='76%')": ({}, "kv_reuse_fraction missed its limit: 75.0 %, must be >= 76.0 %"),
    "assert_latency(rl_trace, 'ttft', p50='49ms')": ({}, "ttft.p50 missed its limit: 50.00 ms, must be <= 49.00 ms"),
    "assert_latency(rl_trace, 'ttft', p50='49ms', max='1ms')": ({}, "ttft.max missed its limit: 50.00 ms"),
    "assert_latency(rl_trace, 'ttft', p95='1s')": ({}, "p95 needs 200 values, there are 40"),
    "assert_limit(rl_trace, 'accepted_trajectory_throughput', '>= 10.1')": ({}, "10.00 trajectories/s, must be"),
    "assert_limit(rl_trace, 'tool_time', '1s')": (
        {},
        "tool_time.p50 <= 1.00 s cannot be judged for run-1: needs tools",
    ),
}
WRONG = {
    "assert_limit('run-1', 'ttft', '1s')": "'run-1' is a path and no capture: give open_capture('run-1')",
    "assert_reconciled('run-1', by='step')": "'run-1' is a path and no capture: give open_capture('run-1')",
    "assert_latency(rl_trace, 'ttft')": "names no budget: write for example p95='1.5s'",
    "assert_limit(rl_trace, 'tfft', '1s')": "no metric is named 'tfft'; did you mean 'ttft'?",
    "assert_limit(rl_trace, 'ttft', '<= 3')": "'3' has no unit that fits s: write for example '800ms'",
    "assert_kv_reuse(rl_trace, floor=60)": "60 is more than the whole: write 60% if a percentage is meant",
}
ALONE = ("--rl-trace=run-1", "--no-rl-suite")


def write(pytester: pytest.Pytester, *calls: str) -> None:
    tests = "\n".join(f"def test_{number}(rl_trace):\n    {call}\n" for number, call in enumerate(calls))
    pytester.makepyfile(test_own=f"from pytest_rlserve import *\n\n{tests}")


def test_all_of_them_hold_for_a_healthy_capture(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    write(pytester, *sorted(HOLDS))
    assert outcomes(run(*ALONE)) == {"passed": len(HOLDS)}


@pytest.mark.parametrize("call", FAILS)
def test_it_fails_with_numbers_and_shows_the_users_line_alone(
    run: Run, pytester: pytest.Pytester, capture: Write, call: str
) -> None:
    figures, said = FAILS[call]
    capture("run-1", **figures)
    write(pytester, call)
    result = run(*ALONE)
    assert outcomes(result) == {"failed": 1}
    told = [line for line in result.outlines if line.startswith("E  ")]
    assert any(said in line for line in told)
    assert any(line.startswith(">") and line.endswith(call) for line in result.outlines)
    assert "asserts.py" not in result.stdout.str()


def test_every_budget_that_is_missed_is_told(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    write(pytester, "assert_latency(rl_trace, 'ttft', p50='1ms', mean='1s', max='2ms')")
    result = run(*ALONE)
    result.stdout.fnmatch_lines(["E  *ttft.p50 missed its limit: *", "E  *ttft.max missed its limit: *"])
    assert "ttft.mean" not in result.stdout.str().partition("short test summary")[0].partition("E  ")[2]


def test_assert_valid_fails_on_broken_evidence(run: Run, pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1", torn=True)
    pytester.makepyfile(
        test_own="""
        from pytest_rlserve import assert_valid, open_capture

        def test_own():
            assert_valid(open_capture("run-1"))
        """
    )
    result = run()
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines(["E  *rows_fit_schema found broken evidence in run-1: * of * rows"])
    assert "asserts.py" not in result.stdout.str()


@pytest.mark.parametrize("call", WRONG)
def test_what_is_written_wrongly_is_told(run: Run, pytester: pytest.Pytester, capture: Write, call: str) -> None:
    capture("run-1")
    write(pytester, call)
    result = run(*ALONE)
    assert outcomes(result) == {"failed": 1}
    assert WRONG[call] in result.stdout.str()


def test_what_is_written_wrongly_is_told_under_the_users_line(
    run: Run, pytester: pytest.Pytester, capture: Write
) -> None:
    capture("run-1")
    write(pytester, "assert_limit(rl_trace, 'tfft', '1s')")
    assert "measuring.py" not in run(*ALONE).stdout.str()
