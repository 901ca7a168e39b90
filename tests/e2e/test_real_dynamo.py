"""What the gate makes of captures recorded here and now from a real Dynamo with mock workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.dynamo

PRIMARY = "accepted_trajectory_throughput"
# Runs on a busy machine differ by several percent; half the workers cost more than 40 %.
POLICY = f"""
series = "tiny-qwen2-e2e"
primary = "{PRIMARY}"
[metrics.{PRIMARY}]
regression = "25%"
"""


@dataclass(frozen=True)
class Run:
    """A recorded capture, and what the client itself counted meanwhile."""

    capture: Path
    counts: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Session:
    """A pytest session that judged captures."""

    exit: int
    output: str
    report: dict[str, Any]

    def unsound(self) -> dict[str, str]:
        """The checks of all captures that did not pass."""
        checks = [check for capture in self.report["captures"] for check in capture["checks"]]
        return {check["name"]: check["status"] for check in checks if check["status"] != "pass"}

    def verdict(self, metric: str) -> str:
        """What the session said of a metric against its baseline."""
        (verdict,) = (each["verdict"] for each in self.report["comparisons"] if each["metric"] == metric)
        return str(verdict)


@pytest.fixture(scope="module")
def record(dynamo_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    folder = tmp_path_factory.mktemp("captures")
    script = Path(__file__).with_name("record.py")

    def record(name: str, workers: int) -> Run:
        capture = folder / name
        command = [str(dynamo_python), str(script), str(capture), f"--workers={workers}", f"--job={name}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return Run(capture, json.loads(done.stdout))

    return record


@pytest.fixture(scope="module")
def clean_runs(record: Callable[..., Run]) -> list[Run]:
    return [record(f"clean-{number}", workers=4) for number in range(4)]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Session]:
    """Judge runs by pytest in a project that has a policy and no tests."""
    project = tmp_path_factory.mktemp("project")
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "rlserve.toml").write_text(POLICY)
    # Without a baseline a session in CI fails by design, and this one's options are not that one's.
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}

    def gate(*runs: Run, options: tuple[str, ...] = ()) -> Session:
        report = project / "report.json"
        report.unlink(missing_ok=True)
        traces = [f"--rl-trace={run.capture}" for run in runs]
        where = ["--rl-baseline=baselines", "--rl-report=json:report.json"]
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *traces, *where, *options]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        assert report.exists(), output
        return Session(done.returncode, output, json.loads(report.read_text()))

    return gate


@pytest.fixture(scope="module")
def baseline(gate: Callable[..., Session], clean_runs: list[Run]) -> Session:
    """The session that made the first three clean runs the baseline."""
    return gate(*clean_runs[:3], options=("--rl-baseline-update",))


def test_a_clean_run_passes_and_its_counts_are_the_clients(gate: Callable[..., Session], clean_runs: list[Run]) -> None:
    run = clean_runs[0]
    session = gate(run)
    assert session.exit == 0, session.output
    assert session.unsound() == {}
    (capture,) = session.report["captures"]
    attempts, requests = capture["counts"]["attempts"], capture["counts"]["requests"]
    for name in ("dispatched", "completed", "canceled", "failed", "retried", "accepted", "rejected"):
        assert attempts[name] == run.counts["attempts"][name], name
    for name in ("dispatched", "completed", "canceled", "failed", "retried"):
        assert requests[name] == run.counts["requests"][name], name
    assert (attempts["open"], attempts["pending"], requests["open"]) == (0, 0, 0)


def test_every_traced_request_of_a_clean_run_is_joined(gate: Callable[..., Session], clean_runs: list[Run]) -> None:
    run = clean_runs[1]
    (capture,) = gate(run).report["captures"]
    requests, told = capture["counts"]["requests"], run.counts["requests"]
    rows = told["dispatched"] - told["n2"] - told["http_404"]
    # A request given up within milliseconds may end before Dynamo's tracer knows of it.
    assert rows - told["first_token_timeout"] <= requests["rows"] <= rows
    assert requests["joined"] == requests["rows"]


def test_clean_runs_become_a_baseline_that_another_clean_run_holds(
    gate: Callable[..., Session], baseline: Session, clean_runs: list[Run]
) -> None:
    assert baseline.exit == 0, baseline.output
    session = gate(clean_runs[3])
    assert session.exit == 0, session.output
    assert session.verdict(PRIMARY) != "regressed"


def test_half_the_workers_fail_the_build(
    gate: Callable[..., Session], baseline: Session, record: Callable[..., Run]
) -> None:
    session = gate(record("half-the-workers", workers=2))
    assert baseline.exit == 0, baseline.output
    assert session.exit == 1, session.output
    assert session.unsound() == {}  # fewer workers, not broken evidence
    assert session.report["verdict"] == "regressed"
    assert session.verdict(PRIMARY) == "regressed"
    assert f"metrics::{PRIMARY}" in session.output
    assert f"{PRIMARY} regressed by" in session.output
