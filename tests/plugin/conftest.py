"""Projects to run the plugin in: captures written by hand, baselines of them, and pytest itself."""

from __future__ import annotations

import itertools
import json
import re
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import scipy.special  # noqa: F401 - see below

import pytest_rlserve.controller
import pytest_rlserve.engine.share
import pytest_rlserve.fixtures
import pytest_rlserve.gate.selftest
import pytest_rlserve.readers.assemble
import pytest_rlserve.readers.discover
import pytest_rlserve.suite  # noqa: F401
from plugin.projects import RECORDED
from plugin.rollout import FIRST_START, write_rollout
from pytest_rlserve.checks import CHECKS
from pytest_rlserve.gate import refresh, report  # noqa: F401
from pytest_rlserve.gate.policy import Policy
from pytest_rlserve.gate.verdicts import Gate, Update
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.readers import READERS, open_capture
from pytest_rlserve.reports import REPORTS

if TYPE_CHECKING:
    from pathlib import Path

    from plugin.projects import Plain, ReadReport, Run, Write

# A run inside this process forgets the modules it imported, and numpy and pyarrow must not be imported twice.
for registry in (CHECKS, METRICS, READERS, REPORTS):
    list(registry)

_QUICKLY = ("-p", "no:hypothesispytest", "-p", "no:benchmark")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep CI and the surrounding run's options from the projects."""
    for name in ("CI", "PYTEST_ADDOPTS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Run pytest in the project, inside this process: ``run("--rl-trace=run-1", "-n", 2)``."""

    def in_process(*args: object) -> pytest.RunResult:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # the surrounding run makes errors of them
            return pytester.runpytest_inprocess(*_QUICKLY, *map(str, args))

    return in_process


@pytest.fixture
def capture(pytester: pytest.Pytester) -> Write:
    """Write a capture into the project: ``capture("run-1", rate=9.5)``; see `write_rollout`."""
    starts = itertools.count(FIRST_START, 1000.0)

    def write(name: str, **figures: Any) -> Path:
        return write_rollout(pytester.path / name, **{"start": next(starts), **figures})

    return write


@pytest.fixture
def baseline(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Store a baseline of one run for each rate: ``baseline(10.0, 10.1, 9.9)``; all runs are of job "job-a"."""

    def store(*rates: float, folder: str = "baselines", policy: Policy | None = None, **figures: Any) -> Path:
        home = tmp_path_factory.mktemp("baseline")
        captures = [
            open_capture(write_rollout(home / f"base-{n}", rate=rate, start=FIRST_START - 1e6 + 1000.0 * n, **figures))
            for n, rate in enumerate(rates)
        ]
        wanted = Update(wanted=True)
        gate = Gate(captures=captures, policy=policy or Policy(), folder=pytester.path / folder, update=wanted)
        assert refresh.refresh(gate).written
        return gate.baseline_path()

    return store


@pytest.fixture
def three_runs(baseline: Write) -> Path:
    """Store a baseline of three runs around 10 accepted attempts a second."""
    return baseline(10.0, 10.1, 9.9)


@pytest.fixture
def messages(pytester: pytest.Pytester) -> Plain:
    """Return what a run with ``-q --no-header`` says up to its verdict, the same on every machine."""

    def plain(result: pytest.RunResult) -> str:
        sections: list[list[str]] = [[]]
        for line in (*result.outlines, *result.errlines):
            if re.fullmatch("=+ .+ =+", line):
                sections.append([])
            if not re.fullmatch(r"\S+ +\[ *\d+%\]", line):
                sections[-1].append(line)
        said = {section[0].strip("= ") if section else "": section for section in sections}
        said.pop("warnings summary", None)
        said.pop("short test summary info", None)
        if verdict := said.pop("rlserve", None):
            said["rlserve"] = [verdict[0], next(filter(None, verdict[1:]))]
        text = "\n".join(line for section in said.values() for line in section)
        return text.replace(str(pytester.path), "PROJECT").replace(str(RECORDED), "RECORDED").strip() + "\n"

    return plain


@pytest.fixture
def report_of(pytester: pytest.Pytester) -> ReadReport:
    """Read the JSON report that a run has written to ``report.json``."""

    def read(path: str = "report.json") -> dict[str, Any]:
        document: dict[str, Any] = json.loads((pytester.path / path).read_text())
        return document

    return read
