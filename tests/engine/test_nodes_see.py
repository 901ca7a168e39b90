"""What the nodes of a cluster do not see, or see otherwise, is told in a line; a wrong report never is."""

from __future__ import annotations

import os
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hand_made import jsonl, request_end

from pytest_rlserve.engine import cluster
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture
from pytest_rlserve.version import __version__

from .conftest import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own warnings are not ours to judge
EXAMPLE = ROOT / "examples" / "baseline_kv"


@pytest.fixture
def elsewhere(two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """A path that leads elsewhere on a node than here, and where it leads there: a process's own folder."""
    if not Path("/proc/self/cwd").exists():
        pytest.skip("needs /proc")

    def where(task: None) -> tuple[str, None]:
        return os.getcwd(), None

    ((there, _),) = cluster.run(where, [None], two_nodes.address)
    here = tmp_path / "here"
    shutil.copytree(EXAMPLE, here / "rlserve-run")
    monkeypatch.chdir(here)
    return "/proc/self/cwd/rlserve-run", Path(there) / "rlserve-run"


def told(path: str, nodes: Any) -> str:
    with pytest.raises(UsageError) as error:
        open_capture(path, engine=f"ray:{nodes.address}")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_path_that_only_this_machine_sees(two_nodes: Any, elsewhere: tuple[str, Path]) -> None:
    text = told(elsewhere[0], two_nodes)
    assert text.startswith("node ")
    assert f"of Ray: {elsewhere[0]}/request-trace.000000.jsonl.gz is not there, and every node has to see it" in text
    assert "share the folder under this path" in text


@pytest.mark.parametrize(
    ("rows", "reason"), [(2, r"bytes there and [\d,]+ where pytest runs"), (1, "another file under")]
)
def test_another_file_under_the_same_name(
    two_nodes: Any, tmp_path: Path, elsewhere: tuple[str, Path], rows: int, reason: str
) -> None:
    path, there = elsewhere
    shutil.rmtree(tmp_path / "here" / "rlserve-run")
    for folder, name in ((tmp_path / "here" / "rlserve-run", "a"), (there, "b")):
        folder.mkdir()
        text = jsonl([request_end(f"{name}{number}") for number in range(1 if name == "a" else rows)])
        (folder / "request-trace.jsonl").write_bytes(text)
    try:
        with pytest.raises(UsageError, match=reason):
            open_capture(path, engine=f"ray:{two_nodes.address}")
    finally:
        shutil.rmtree(there)


def test_a_node_without_the_package(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("only_here")
    exec("def work(task): return task, task", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(UsageError, match=r"node [\d.]+ of Ray lacks only_here: install pytest-rlserve") as error:
        next(cluster.run(module.work, [1], two_nodes.address))
    assert "\n" not in str(error.value)


def test_a_node_with_another_version(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "0.0.0")
    assert f"it has pytest-rlserve {__version__} and was asked by 0.0.0" in told(str(EXAMPLE), two_nodes)
