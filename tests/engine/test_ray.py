"""Ray reads what this machine reads, also where it loses a worker on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl, members, request_end

from pytest_rlserve import recurring
from pytest_rlserve.checks import CHECKS, run_check, run_checks
from pytest_rlserve.engine import cluster
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.items import items
from pytest_rlserve.gate.policy_file import load
from pytest_rlserve.gate.report import build
from pytest_rlserve.gate.verdicts import Gate
from pytest_rlserve.gate.workload import workload_of
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import on_ray as reading
from pytest_rlserve.readers import open_capture
from pytest_rlserve.readers.pieces import Piece, read_apart
from pytest_rlserve.reports import render
from pytest_rlserve.scattered import Deferred

from .conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture

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


@pytest.fixture
def unfetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where hashes come here."""
    monkeypatch.setattr(Deferred, "table", lambda self: pytest.fail("fetched"))


@pytest.mark.usefixtures("unfetched")
def test_no_check_and_no_metric_fetches_hashes(two_nodes: Any) -> None:
    found, here = on_ray(EXAMPLE, two_nodes), open_capture(EXAMPLE)
    assert workload_of([found]) == workload_of([here])
    assert run_checks(found, names=CHECKS) == run_checks(here, names=CHECKS)
    for name in METRICS:
        assert measure(found, name) == measure(here, name)
    with pytest.raises(pytest.fail.Exception, match="fetched"):
        assert found.requests


@pytest.mark.usefixtures("unfetched")
def test_only_the_prompts_of_rows_with_one_id_are_asked_for(two_nodes: Any, tmp_path: Path) -> None:
    replay = {"trace_block_size": 16, "input_length": 48, "input_sequence_hashes": [2**64 - 1, 2, 3]}
    for shard, other in enumerate(([2**64 - 1, 2, 3], [2**64 - 1, 2, 4])):
        rows = [request_end(f"r{shard}{n}", replay=replay) for n in range(9)]
        rows.append(request_end("same", replay=replay | {"input_sequence_hashes": other}))
        file = tmp_path / f"request-trace.{shard:06d}.jsonl.gz"
        file.write_bytes(members(*(jsonl([row]) for row in rows)))
    found, here = on_ray(tmp_path, two_nodes), open_capture(tmp_path)
    result = run_check(found, "requests_are_unique")
    assert result == run_check(here, "requests_are_unique")
    assert "with other input_sequence_hashes" in result.message()
    assert isinstance(found.chains, Deferred)
    assert {row: len(hashes or ()) for row, hashes in found.chains.told.items()} == {9: 3, 19: 3}


def test_a_worker_that_is_killed_while_it_looks_for_equal_hashes_changes_nothing(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, usual = tmp_path / "note", recurring._again

    def again(*parts: Any) -> Any:
        if not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(*parts)

    found, here = on_ray(EXAMPLE, two_nodes), open_capture(EXAMPLE)
    monkeypatch.setattr(recurring, "_again", again)
    assert measure(found, "kv_reuse_ceiling") == measure(here, "kv_reuse_ceiling")
    assert note.exists()


def test_a_damaged_shard_is_told_as_here(two_nodes: Any, tmp_path: Path) -> None:
    shard = members(*(jsonl([request_end(f"r{number}")]) for number in range(30)))
    (tmp_path / "request-trace.000000.jsonl.gz").write_bytes(shard[:-10])
    assert on_ray(tmp_path, two_nodes).findings == open_capture(tmp_path).findings


def test_a_worker_that_is_killed_is_replaced(two_nodes: Any, tmp_path: Path) -> None:
    note = tmp_path / "note"

    def work(number: int) -> tuple[int, int]:
        # The first task notes its process and waits to be killed; when it is started again it does its work.
        again = note.exists()
        if number == 0:
            with note.open("a", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
            if not again:
                time.sleep(60)
        return number, 10 * number

    def kill() -> None:
        for _ in range(600):
            if note.exists() and (text := note.read_text(encoding="ascii")).endswith("\n"):
                os.kill(int(text.split()[0]), signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    answers = cluster.run(work, [0, 1], two_nodes.address)
    assert [(small, large.fetch()) for small, large in answers] == [(0, 0), (1, 10)]
    killer.join(timeout=5)
    assert len(set(note.read_text(encoding="ascii").split())) == 2


def test_a_worker_that_is_killed_while_it_reads_changes_nothing(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note"

    def read(piece: Piece) -> tuple[Any, Any]:
        done = read_apart(piece)
        if not note.exists():  # what it has read is lost with it
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    monkeypatch.setattr(reading, "read_apart", read)
    found, here = on_ray(EXAMPLE, two_nodes), open_capture(EXAMPLE)
    assert note.exists()
    assert found.requests.equals(here.requests)
    assert (found.sources, found.findings) == (here.sources, here.findings)


def report_of(capture: Capture) -> str:
    gate = Gate(captures=[capture], policy=load(ROOT / "pyproject.toml"), folder=ROOT / "baselines")
    judged = []
    for kind, name in items(gate.policy):
        found = gate.judge(kind, name)
        judged.append({"kind": kind, "name": name, "verdict": found.verdict, "records": found.records})
    return render(build(gate, judged), "json")


@pytest.mark.usefixtures("unfetched")
def test_the_report_is_the_same_byte_for_byte_without_any_hash_here(two_nodes: Any) -> None:
    assert report_of(on_ray(EXAMPLE, two_nodes)) == report_of(open_capture(EXAMPLE))


def test_a_run_of_pytest_reports_the_same_on_ray_and_on_ray_with_workers_of_its_own(
    two_nodes: Any, tmp_path: Path
) -> None:
    reports = []
    for more in ([], [f"--rl-engine=ray:{two_nodes.address}"], [f"--rl-engine=ray:{two_nodes.address}", "-n", "2"]):
        report = tmp_path / f"{len(reports)}.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rl-trace={EXAMPLE}"]
        where = [f"--rl-report=json:{report}", "--rl-policy=pyproject.toml", "examples", *more]
        done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        reports.append(report.read_bytes())
    assert reports[0] == reports[1] == reports[2]


def test_a_cluster_that_is_not_there_is_told_in_a_line() -> None:
    program = "from pytest_rlserve.engine.cluster import connect; connect('127.0.0.1:9')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert UsageError.__name__ in done.stderr.splitlines()[-1]
    assert "there is no Ray cluster at 127.0.0.1:9" in done.stderr.splitlines()[-1]
