"""What the plugin costs a test run that judges no capture: its import, in fresh interpreters.

Every pytest of an environment loads every plugin that is installed there, so this is paid by all its test runs.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

ALLOWED_MS = 5.0
ROUNDS = 20
_PYTEST = "import pytest, _pytest.config, _pytest.main, _pytest.terminal, argparse"
_TIMED = f"{_PYTEST}; from time import perf_counter as now; t = now(); import pytest_rlserve.plugin; print(now() - t)"


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout


@pytest.mark.benchmark(group="import")
def test_pytest_alone(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, args=(_PYTEST,), rounds=ROUNDS, warmup_rounds=2)


@pytest.mark.benchmark(group="import")
def test_pytest_and_the_plugin(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(run, args=(f"{_PYTEST}, pytest_rlserve.plugin",), rounds=ROUNDS, warmup_rounds=2)

    # The difference of two start-ups drowns in their noise; inside one process the import itself can be timed.
    added = statistics.median(float(run(_TIMED)) * 1e3 for _ in range(ROUNDS))
    benchmark.extra_info["added by the plugin, ms"] = round(added, 2)
    benchmark.extra_info["of all, %"] = round(100 * added / (benchmark.stats.stats.median * 1e3), 2)
    assert added < ALLOWED_MS
