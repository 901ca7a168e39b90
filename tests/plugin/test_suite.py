"""The built-in suite joins the user's run whatever was typed, and says so where it does not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_rlserve
from plugin.projects import ALL, CHECKS, ITEMS, PRIMARY, both_ways, ids, outcomes
from pytest_rlserve import schema

if TYPE_CHECKING:
    from plugin.projects import Run, Write

SUITE = [f"rlserve.toml::{item}" for item in ITEMS]
LISTING = ("--rl-trace=run-1", "--collect-only", "-q")


@pytest.fixture(autouse=True)
def project(pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    pytester.mkdir("tests").joinpath("test_own.py").write_text("def test_own(): pass")


def test_it_joins_a_run_without_arguments(run: Run) -> None:
    assert ids(run(*LISTING)) == ["tests/test_own.py::test_own", *SUITE]


@both_ways
def test_it_does_not_vanish_when_a_path_argument_does_not_contain_the_policy_file(
    run: Run, pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    (pytester.path / "rlserve.toml").write_text("")
    result = run("--rl-trace=run-1", "tests", *workers)
    assert outcomes(result) == {"passed": ALL - 1, "skipped": 2}


def test_it_does_not_vanish_when_a_virtual_environment_lies_inside_the_project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest leaves virtual environments out, so nothing of the suite may be collected from the installed package."""
    packages = pytester.path / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    here = Path(pytest_rlserve.__file__).parent
    shutil.copytree(here, packages / "pytest_rlserve", ignore=shutil.ignore_patterns("__pycache__", "schemas"))
    shutil.copytree(str(schema.ROOT), packages / "pytest_rlserve" / "schemas")
    (pytester.path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    pytester.makeconftest("def pytest_report_header(): return __import__('pytest_rlserve').__file__")
    result = pytester.runpytest_subprocess("--rl-trace=run-1", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*/.venv/lib/*/site-packages/pytest_rlserve/__init__.py"])
    assert outcomes(result) == {"passed": ALL - 1, "skipped": 2}


def test_it_joins_testpaths(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntestpaths = tests")
    assert ids(run(*LISTING)) == ["tests/test_own.py::test_own", *SUITE]


def test_it_joins_a_run_from_a_folder_below(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    monkeypatch.chdir(pytester.path / "tests")
    assert ids(run("--rl-trace=../run-1", "--collect-only", "-q")) == ["tests/test_own.py::test_own", *SUITE]


def test_it_obeys_k(run: Run) -> None:
    assert outcomes(run("--rl-trace=run-1", "-k", "update_downtime")).pop("skipped") == 1


def test_it_obeys_m(run: Run) -> None:
    assert outcomes(run("--rl-trace=run-1", "-m", "not rlserve")) == {"passed": 1, "deselected": ALL}


def test_lf_runs_what_failed_again(run: Run, pytester: pytest.Pytester, three_runs: Path, capture: Write) -> None:
    capture("slow", rate=8.0)
    assert outcomes(run("--rl-trace=slow")) == {"passed": ALL, "failed": 1}
    assert outcomes(run("--rl-trace=slow", "--lf")) == {"failed": 1, "deselected": ALL}


def test_collecting_reads_no_capture(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "run-1" / "request-trace.jsonl").write_text("not JSON")
    (pytester.path / "run-1" / "rlserve.json").write_text("not JSON")
    result = run(*LISTING)
    assert result.ret == pytest.ExitCode.OK
    assert ids(result) == ["tests/test_own.py::test_own", *SUITE]


@pytest.mark.parametrize("plugin", ["terminal", "xdist", "cacheprovider", "junitxml", "warnings", "logging"])
def test_it_needs_none_of_the_plugins_that_can_be_switched_off(
    run: Run, pytester: pytest.Pytester, plugin: str
) -> None:
    run("--rl-trace=run-1", "-p", f"no:{plugin}", "--rl-report=json:report.json")
    assert '"verdict": "no_baseline"' in (pytester.path / "report.json").read_text()


def test_it_joins_where_the_plugin_is_loaded_by_its_module(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with PYTEST_DISABLE_PLUGIN_AUTOLOAD=1, where the plugin goes by another name."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess("-p", "pytest_rlserve.plugin", *LISTING)
    assert ids(result) == ["tests/test_own.py::test_own", *SUITE]


def test_a_conftest_beside_the_policy_acts_on_its_tests_even_where_there_is_no_policy_file(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("def pytest_runtest_setup(item): print('seen', item.nodeid)")
    lines = run("--rl-trace=run-1", "-s").outlines
    assert [line.partition("seen ")[2] for line in lines if "seen rlserve" in line] == SUITE


def test_without_the_plugin_its_flags_are_unknown(run: Run) -> None:
    assert run("--rl-trace=run-1", "-p", "no:rlserve").ret == pytest.ExitCode.USAGE_ERROR


def test_its_checks_come_first_foundations_ahead(run: Run) -> None:
    names = [line.rpartition("::")[2] for line in ids(run(*LISTING, "-k", "rlserve"))]
    assert names == [*CHECKS, PRIMARY, "update_downtime"]
    assert set(names[:3]) == {"requests_are_unique", "rows_fit_schema", "shards_are_whole"}
