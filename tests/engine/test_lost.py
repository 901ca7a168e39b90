"""A node lost in mid-run changes nothing; a cluster lost ends the run, with a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl, members, request_end

from pytest_rlserve.engine import cluster
from pytest_rlserve.readers import on_ray, open_capture
from pytest_rlserve.readers.pieces import Piece, read_apart

from .test_ray import report_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own warnings are not ours to judge
_LARGE = 100 * 1024
"""Bytes above which Ray leaves a result on the node that made it."""


def capture_of(folder: Path) -> Path:
    """Write a capture whose every eighth is large enough to stay on its node: hashes that nobody shares."""
    for shard in range(8):
        rows = []
        for number in range(500):
            key = shard * 500 + number
            hashes = [(key * 64 + block) * 2**32 + 1 for block in range(64)]
            replay = {"trace_block_size": 16, "input_length": 1024, "input_sequence_hashes": hashes}
            rows.append(request_end(f"r{key}", key, key + 1, replay=replay))
        (folder / f"request-trace.{shard:06d}.jsonl.gz").write_bytes(members(jsonl(rows)))
    return folder


def test_a_node_that_is_lost_with_its_results_changes_nothing(
    mortal_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = capture_of(tmp_path)
    note = tmp_path.parent / f"{tmp_path.name}-note"
    ours = cluster.connect(mortal_nodes.address).get_runtime_context().get_node_id()

    def noted() -> list[str]:
        return note.read_text("ascii").split() if note.exists() else []

    def read(piece: Piece) -> tuple[Any, Any]:
        import ray

        node = ray.get_runtime_context().get_node_id()
        done = read_apart(piece)
        if node == ours:
            for _ in range(300):  # leaves the other one enough to do
                if any("ended" in line for line in noted()):
                    break
                time.sleep(0.1)
        elif noted():  # one is done, this one is under way: the node's end
            note.write_text(f"{noted()[0]}\nended::\n", encoding="ascii")
            for process in (os.getppid(), os.getpid()):
                os.kill(process, signal.SIGKILL)
        assert done[1].nbytes > _LARGE
        with note.open("a", encoding="ascii") as file:
            file.write(f"{node}:{piece.label}:{piece.start}\n")
        return done

    monkeypatch.setattr(on_ray, "read_apart", read)
    found, here = open_capture(folder, engine=f"ray:{mortal_nodes.address}"), open_capture(folder)
    assert report_of(found) == report_of(here)
    assert found.requests.equals(here.requests)
    first, ended, *others = (line.split(":", 1) for line in noted())
    assert ended == ["ended", ":"]
    assert first[0] != ours
    assert {node for node, _ in others} == {ours}
    assert first[1] in {piece for _, piece in others}, "what was lost was not read again"


PROGRAM = """
import sys, time
from pytest_rlserve.engine import cluster, watch
from pytest_rlserve.errors import UsageError
watch._GONE = 2.0
def work(number):
    print("begun", flush=True)
    time.sleep(300)
answers = cluster.run(work, range(2), sys.argv[1])
print("begun", flush=True)
try:
    next(answers)
except UsageError as error:
    print(error, flush=True)
    raise SystemExit(4) from None
"""


def left_by(nodes: Any, end: Any) -> tuple[int, str]:
    """Run a program on a cluster, end that, and return the program's end."""
    command = [sys.executable, "-c", PROGRAM, nodes.address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(1)
        end()
        try:
            return process.wait(timeout=90), process.stdout.read()
        finally:
            process.kill()


def test_a_head_that_is_gone_is_told(mortal_nodes: Any) -> None:
    head = mortal_nodes.address
    code, text = left_by(mortal_nodes, lambda: mortal_nodes.remove_node(mortal_nodes.head_node, allow_graceful=False))
    assert code == 4
    assert f"Ray's head at {head} is gone: it has not answered for 2 s" in text
    assert "Traceback" not in text


def test_a_cluster_that_is_gone_has_a_last_word(mortal_nodes: Any) -> None:
    code, text = left_by(mortal_nodes, mortal_nodes.shutdown)
    assert code in (1, 4)  # Ray's, or ours if we see it first
    said = (
        "is gone",
        "LocalRayletDiedError",
        "rlserve: this process was ended before it could report, as Ray ends one",
    )
    assert any(one in text for one in said), text
    assert "Traceback" not in text
