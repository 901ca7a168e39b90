"""--rl-selftest: a gate that cannot fail is found out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plugin.projects import ALL, outcomes

if TYPE_CHECKING:
    from plugin.projects import Run, Write


def test_every_item_of_a_gate_with_a_baseline_can_fail(run: Run) -> None:
    recorded = Path(__file__).parents[1] / "data" / "captures"
    run(
        *(f"--rl-trace={recorded / name}" for name in ("baseline_kv_1", "baseline_kv_2", "baseline_kv_3")),
        "--rl-baseline-update",
    )
    result = run(f"--rl-trace={recorded / 'baseline_kv_1'}", "--rl-selftest")
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.OK, {"passed": ALL})
    assert f"selftest: {ALL} of {ALL} items can fail" in result.outlines


def test_a_limit_that_nothing_can_miss_fails_the_run(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p50" = "<= 9h"')
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-selftest")
    assert (result.ret, outcomes(result)) == (pytest.ExitCode.TESTS_FAILED, {"passed": ALL + 1})
    result.stdout.fnmatch_lines(["limits::ttft.p50 *NOTHING *", f"selftest: * of {ALL + 1} items can fail"])


def test_metrics_without_a_baseline_cannot_fail(run: Run, capture: Write) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-selftest")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["metrics::update_downtime *NOTHING (no_baseline: *"])


def test_it_leaves_verdicts_and_reports_as_they_are(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    capture("run-1", rate=8.0)
    run("--rl-trace=run-1", "--rl-report=json:without.json")
    result = run("--rl-trace=run-1", "--rl-report=json:with.json", "--rl-selftest")
    assert outcomes(result) == {"passed": ALL - 1, "failed": 1}
    assert (pytester.path / "with.json").read_bytes() == (pytester.path / "without.json").read_bytes()


def test_a_waived_item_is_said_to_be_waived(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path
) -> None:
    (pytester.path / "rlserve.toml").write_text(
        '[[waivers]]\nmetric = "accepted_trajectory_throughput"\nuntil = 2999-01-31\nowner = "oncall"\nreason = "#1"'
    )
    capture("run-1")
    result = run("--rl-trace=run-1", "--rl-selftest")
    result.stdout.fnmatch_lines(
        ["metrics::accepted_trajectory_throughput *, but is waived by oncall until 2999-01-31*"]
    )


def test_an_item_that_fails_already_is_not_credited_to_a_damage(run: Run, capture: Write, three_runs: Path) -> None:
    capture("run-1", rate=8.0)
    result = run("--rl-trace=run-1", "--rl-selftest")
    result.stdout.fnmatch_lines(["metrics::accepted_trajectory_throughput * the captures as they are"])
    assert not any("the captures as they are" in line for line in result.outlines if "update_downtime" in line)
