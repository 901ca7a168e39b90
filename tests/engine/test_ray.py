"""Ray reads what this machine reads, also where it loses a worker on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl, members, request_end

from pytest_rlserve.capture import Capture
from pytest_rlserve.chains import Deferred
from pytest_rlserve.engine import cluster
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture

from .conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own warnings are not ours to judge
EXAMPLE = ROOT / "examples" / "baseline_kv"


def on_ray(folder: Path, nodes: Any) -> Capture:
    return open_capture(folder, engine=f"ray:{nodes.address}")


def test_two_nodes_read_what_one_process_reads(two_nodes: Any) -> None:
    found, here = on_ray(EXAMPLE, two_nodes), open_capture(EXAMPLE)
    assert isinstance(found.chains, Deferred)
    assert found.sources == here.sources
    assert (found.digest, found.findings) == (here.digest, here.findings)
    for (name, ours), (_, theirs) in zip(found.tables(), here.tables(), strict=True):
        assert ours.equals(theirs), name


def test_hashes_stay_with_the_workers_until_they_are_asked_for(two_nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_ray(EXAMPLE, two_nodes)
    monkeypatch.setattr(Deferred, "table", lambda self: pytest.fail("fetched"))
    assert found.has("requests")
    assert found.scalars["ttft_ms"].null_count < found.scalars.num_rows


def test_a_damaged_shard_is_told_as_here(two_nodes: Any, tmp_path: Path) -> None:
    shard = members(*(jsonl([request_end(f"r{number}")]) for number in range(30)))
    (tmp_path / "request-trace.000000.jsonl.gz").write_bytes(shard[:-10])
    assert on_ray(tmp_path, two_nodes).findings == open_capture(tmp_path).findings


def _slow(task: tuple[str, int]) -> tuple[int, int]:
    """Note the process's id, and the first time wait to be killed."""
    note, number = task
    again = os.path.exists(note)
    with open(note, "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    if not again:
        time.sleep(60)
    return number, 10 * number


def test_a_worker_that_is_killed_is_replaced(two_nodes: Any, tmp_path: Path) -> None:
    notes = [tmp_path / f"{number}" for number in range(2)]
    notes[1].touch()
    answers = cluster.run(_slow, [(str(note), number) for number, note in enumerate(notes)], two_nodes.address)
    first = next_soon(answers, notes[0])
    assert [(small, large()) for small, large in first] == [(0, 0), (1, 10)]
    assert len(notes[0].read_text(encoding="ascii").splitlines()) == 2


def next_soon(answers: Any, note: Path) -> list[Any]:
    """Start the tasks, kill the worker that waits, and return all answers."""
    import threading

    def kill() -> None:
        while not (note.exists() and note.read_text(encoding="ascii").strip()):
            time.sleep(0.05)
        os.kill(int(note.read_text(encoding="ascii").split()[0]), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = list(answers)
    killer.join()
    return found


def test_the_report_is_the_same_byte_for_byte(two_nodes: Any, tmp_path: Path) -> None:
    reports = []
    for engine in ("local", f"ray:{two_nodes.address}"):
        report = tmp_path / f"{len(reports)}.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rl-trace={EXAMPLE}"]
        where = [f"--rl-engine={engine}", f"--rl-report=json:{report}", "--rl-policy=pyproject.toml", "examples"]
        done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        assert report.exists(), done.stdout + done.stderr
        reports.append(report.read_bytes())
    assert reports[0] == reports[1]


def test_a_cluster_that_is_not_there_is_told_in_a_line() -> None:
    program = "from pytest_rlserve.engine.cluster import connect; connect('127.0.0.1:9')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert UsageError.__name__ in done.stderr.splitlines()[-1]
    assert "there is no Ray cluster at 127.0.0.1:9" in done.stderr.splitlines()[-1]
