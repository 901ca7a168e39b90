"""What fsspec can open reads as the folder it was; here a store in memory, and the file system under its URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture
from pytest_rlserve.readers.discover import captures_in

from .conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "baseline_kv"


@pytest.fixture
def memory() -> Iterator[str]:
    store = pytest.importorskip("fsspec").filesystem("memory")
    for run in ("run-1", "run-2"):
        for file in EXAMPLE.iterdir():
            store.pipe(f"/runs/{run}/{file.name}", file.read_bytes())
    yield "memory://runs"
    store.rm("/runs", recursive=True)


def same(uri: str, folder: Path) -> bool:
    found, here = open_capture(uri), open_capture(folder)
    return found.requests.equals(here.requests) and (found.digest, found.sources) == (here.digest, here.sources)


def test_a_store_in_memory_reads_as_the_folder_it_was(memory: str) -> None:
    assert same(f"{memory}/run-1", EXAMPLE)


def test_its_prefixes_patterns_and_objects_are_found(memory: str) -> None:
    assert captures_in(memory) == captures_in(f"{memory}/run-*") == [f"{memory}/run-1", f"{memory}/run-2"]
    name = sorted(one.name for one in EXAMPLE.glob("request-trace*"))[0]
    assert same(f"{memory}/run-1/{name}", EXAMPLE / name)


def test_what_is_not_in_it_is_told_in_a_line(memory: str) -> None:
    with pytest.raises(UsageError, match="there is no object or prefix memory://runs/run-3"):
        captures_in(f"{memory}/run-3")


def test_a_folder_may_be_named_by_its_uri() -> None:
    pytest.importorskip("fsspec")
    assert same(EXAMPLE.as_uri(), EXAMPLE)
