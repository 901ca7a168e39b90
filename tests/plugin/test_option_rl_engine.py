"""--rl-engine: where traces are read. What it reads on Ray is shown in tests/engine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from plugin.projects import Run, Write


@pytest.mark.parametrize("engine", ["spark", "rays", "xray:1", "local:2", "ray:", ""])
def test_an_engine_that_is_none_is_refused(run: Run, capture: Write, engine: str) -> None:
    capture("run-1")
    result = run("--rl-trace=run-1", f"--rl-engine={engine}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--rl-engine={engine}: write local, ray, or ray:ADDRESS" in result.stderr.str()


def test_without_ray_one_line_says_what_to_install(run: Run, capture: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    capture("run-1")
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]
    result = run("--rl-trace=run-1", "--rl-engine=ray")
    assert result.ret != pytest.ExitCode.OK
    assert "the engine 'ray' needs Ray: pip install 'pytest-rlserve[ray]'" in result.stdout.str() + result.stderr.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_local_is_what_happens_anyway(run: Run, capture: Write) -> None:
    capture("run-1")
    assert run("--rl-trace=run-1", "--rl-engine=local").parseoutcomes() == run("--rl-trace=run-1").parseoutcomes()
