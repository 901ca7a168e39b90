"""How fast a trace is read, against decoding the same rows with the standard library and keeping nothing.

open_capture decompresses, validates every row against its schema, and fills typed columns with exact 64-bit integers.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from generate import write

from pytest_rlserve import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

MEGABYTES = 20
ROUNDS = {"rounds": 5, "warmup_rounds": 1}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    folder = tmp_path_factory.mktemp("trace")
    return folder, write(folder, MEGABYTES)


def with_the_standard_library(folder: Path) -> int:
    count = 0
    for path in sorted(folder.iterdir()):
        with gzip.open(path) as lines:
            for line in lines:
                json.loads(line)
                count += 1
    return count


@pytest.mark.benchmark(group="read 20 MB")
def test_open_capture(benchmark: BenchmarkFixture, trace: tuple[Path, int]) -> None:
    folder, rows = trace

    capture = benchmark.pedantic(open_capture, args=(folder,), **ROUNDS)

    assert (capture.requests.num_rows, capture.findings) == (rows, ())
    note_rate(benchmark, rows)


@pytest.mark.benchmark(group="read 20 MB")
def test_json_of_the_standard_library(benchmark: BenchmarkFixture, trace: tuple[Path, int]) -> None:
    folder, rows = trace

    count = benchmark.pedantic(with_the_standard_library, args=(folder,), **ROUNDS)

    assert count == rows
    note_rate(benchmark, rows)


def note_rate(benchmark: BenchmarkFixture, rows: int) -> None:
    benchmark.extra_info["rows/s"] = round(rows / benchmark.stats.stats.median)
    benchmark.extra_info["MB/s"] = round(MEGABYTES / benchmark.stats.stats.median, 1)
