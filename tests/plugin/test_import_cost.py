"""Whoever judges no capture pays nothing for the plugin: it loads no heavy library."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from plugin.projects import Write

HEAVY = ["pyarrow", "numpy", "scipy", "jsonschema", "referencing", "tabulate", "msgspec", "isal"]
OWN = ["pytest_rlserve.readers", "pytest_rlserve.gate", "pytest_rlserve.session", "pytest_rlserve.suite"]
SAY = f"import json, sys; print(json.dumps([name for name in {[*HEAVY, *OWN]} if name in sys.modules]))"


def loaded(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}; {SAY}"], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


@pytest.mark.parametrize("module", ["pytest_rlserve", "pytest_rlserve.plugin", "pytest_rlserve.recorder"])
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    assert loaded(f"import {module}") == []


def test_a_run_without_a_capture_loads_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")
    assert loaded("import pytest; pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:hypothesispytest'])") == []


def test_help_and_the_lists_of_markers_and_fixtures_load_nothing_heavy(pytester: pytest.Pytester) -> None:
    runs = "; ".join(f"pytest.main([{flag!r}])" for flag in ("--help", "--markers", "--version"))
    assert loaded(f"import pytest; {runs}") == []


def test_the_guard_sees_what_a_run_with_a_capture_loads(pytester: pytest.Pytester, capture: Write) -> None:
    capture("run-1")
    assert set(loaded("import pytest; pytest.main(['-q', '--rl-trace=run-1'])")) >= {"pyarrow", "numpy", "tabulate"}


def test_a_public_name_is_loaded_when_it_is_first_used() -> None:
    assert loaded("import pytest_rlserve; pytest_rlserve.UsageError") == []
    assert "pyarrow" in loaded("import pytest_rlserve; pytest_rlserve.open_capture; pytest_rlserve.Capture")
