"""When a baseline file is not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugin.projects import PRIMARY

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Run, Write

UPDATE = "--rl-baseline-update"


@pytest.mark.parametrize("rate", [8.0, 9.7, 12.0], ids=["worse", "undecided", "better"])
def test_a_level_that_is_not_unchanged_needs_a_reason_and_leaves_the_file_alone(
    run: Run, capture: Write, three_runs: Path, rate: float
) -> None:
    before = three_runs.read_bytes()
    capture("run-1", rate=rate)
    result = run("--rl-trace=run-1", UPDATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"baseline s.json left as it is: *--rl-baseline-reason=*{PRIMARY}*"])
    assert three_runs.read_bytes() == before


def test_without_the_flag_no_verdict_touches_the_file(run: Run, capture: Write, three_runs: Path) -> None:
    before = three_runs.read_bytes()
    for number, rate in enumerate((8.0, 9.7, 10.0, 12.0)):
        capture(f"run-{number}", rate=rate)
        run(f"--rl-trace=run-{number}")
    assert three_runs.read_bytes() == before


@pytest.mark.parametrize("damage", [{"torn": True}, {"open_attempts": 1}, {"lost_rows": 2}], ids=str)
def test_broken_or_incomplete_evidence_never_becomes_a_baseline(
    run: Run, pytester: pytest.Pytester, capture: Write, damage: dict[str, Any]
) -> None:
    capture("run-1", **damage)
    result = run("--rl-trace=run-1", UPDATE)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["baseline s.json left as it is: * does not hold for run-1"])
    assert not (pytester.path / "baselines").exists()


@pytest.mark.parametrize("flag", ["-x", "--maxfail=1"])
def test_a_session_that_stopped_early_takes_nothing(
    run: Run, pytester: pytest.Pytester, capture: Write, three_runs: Path, flag: str
) -> None:
    before = three_runs.read_bytes()
    (pytester.path / "rlserve.toml").write_text('[limits]\n"ttft.p50" = "<= 1ms"')
    capture("run-1")
    result = run("--rl-trace=run-1", UPDATE, flag)
    assert "baseline left as it is: the session did not run to its end" in result.outlines
    assert three_runs.read_bytes() == before
