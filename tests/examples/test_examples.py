"""What a user copies works: the example capture, its tests, its policy and baseline, in a project of their own."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CAPTURES = ROOT / "tests" / "data" / "captures"
PRIMARY = "accepted_trajectory_throughput"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A copy of examples/ and baselines/, with the project's policy in an rlserve.toml."""
    for name in ("CI", "PYTEST_ADDOPTS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("examples", "baselines"):
        shutil.copytree(ROOT / name, pytester.path / name, ignore=shutil.ignore_patterns("__pycache__"))
    policy = _policy(ROOT / "pyproject.toml")
    (pytester.path / "rlserve.toml").write_text(policy, encoding="utf-8")
    return pytester


def _policy(pyproject: Path) -> str:
    """Return `[tool.rlserve]` as a file of its own."""
    text = pyproject.read_text(encoding="utf-8")
    begun = text[text.index("[tool.rlserve]\n") :].removeprefix("[tool.rlserve]\n")
    policy = re.split(r"^\[(?!tool\.rlserve)", begun, maxsplit=1, flags=re.MULTILINE)[0].replace("[tool.rlserve.", "[")
    assert tomllib.loads(policy) == tomllib.loads(text)["tool"]["rlserve"]
    return policy


def test_the_examples_pass_on_their_own_capture(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("--rl-trace=examples/baseline_kv", "examples")

    done.assert_outcomes(passed=done.parseoutcomes()["passed"])
    done.stdout.fnmatch_lines(
        ["examples/test_capture.py *", "examples/test_regression.py *", "rlserve.toml *", "PASSED: *"]
    )
    assert done.ret == 0


def test_half_the_workers_fail_on_the_primary_metric(project: pytest.Pytester) -> None:
    trace = CAPTURES / "regressed_half_workers_1"
    reports = ("--rl-report=markdown:comment.md", "--rl-report=json:report.json")

    done = project.runpytest_subprocess(f"--rl-trace={trace}", *reports, "examples")

    assert done.ret == 1
    done.stdout.fnmatch_lines([f"FAILED rlserve.toml::metrics::{PRIMARY} *"])
    row = next(line for line in _lines(project, "comment.md") if line.startswith(f"| REGRESSED | `{PRIMARY}` |"))
    assert "8.81 trajectories/s" in row
    assert "6.17 trajectories/s" in row
    report = json.loads((project.path / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "regressed"


def test_the_examples_also_run_on_two_workers(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("-n", "2", "--rl-trace=examples/baseline_kv", "examples")

    assert done.ret == 0
    done.stdout.fnmatch_lines(["PASSED: *"])


def test_without_a_capture_the_examples_err_rather_than_skip(project: pytest.Pytester) -> None:
    done = project.runpytest_subprocess("examples")

    assert done.ret == 1
    assert set(done.parseoutcomes()) == {"errors"}


def test_the_example_is_the_recorded_run_and_small_enough_to_clone() -> None:
    example = {path.name: path.read_bytes() for path in (EXAMPLES / "baseline_kv").iterdir()}
    recorded = {path.name: path.read_bytes() for path in (CAPTURES / "baseline_kv_1").iterdir()}

    assert example == recorded
    assert sum(map(len, example.values())) < 1_000_000


def test_the_baseline_was_made_from_three_runs(project: pytest.Pytester) -> None:
    runs = [f"--rl-trace={CAPTURES / f'baseline_kv_{number}'}" for number in (1, 2, 3)]

    done = project.runpytest_subprocess(*runs, "--rl-baseline-update", "--rl-baseline=again", "rlserve.toml")

    assert done.ret == 0
    made, kept = (
        json.loads((project.path / name / "tiny-qwen2-4w.json").read_text()) for name in ("again", "baselines")
    )
    assert made == kept


def _lines(project: pytest.Pytester, name: str) -> list[str]:
    return (project.path / name).read_text(encoding="utf-8").splitlines()
