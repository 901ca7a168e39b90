from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from pytest_rlserve import recorder
from pytest_rlserve.readers import open_capture
from pytest_rlserve.recorder import AttemptRecorder, ControlRecorder

if TYPE_CHECKING:
    from io import FileIO

# From Python 3.12 on a fork beside any thread warns; here it is what the test is about.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ids(path: Path) -> list[object]:
    return [line["attempt_id"] for line in lines(path)]


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run `script` in a fresh interpreter that loads the recorder by path and finds no other package."""
    load = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('recorder', {recorder.__file__!r})\n"
        "recorder = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(recorder)\n"
        "path = sys.argv[1]\n"
    )
    command = [sys.executable, "-I", "-S", "-c", load + script, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture" / "attempts.jsonl"


def test_a_line_says_schema_event_time_run_and_fields(path: Path) -> None:
    begun = time.time()
    with AttemptRecorder(path, run="nightly-17") as rec:
        rec.emit("completed", attempt_id="a0", turns=4, tokens_by_version={"1": 40, "2": 7})
        rec.emit("accepted", t=12.5, attempt_id="a0", reward=1.0)
    now, given = lines(path)
    assert begun <= float(str(now.pop("t"))) <= time.time()
    head = {"schema": "rlserve.attempt.v1", "run": "nightly-17", "attempt_id": "a0"}
    assert now == {**head, "event": "completed", "turns": 4, "tokens_by_version": {"1": 40, "2": 7}}
    assert given == {**head, "event": "accepted", "t": 12.5, "reward": 1.0}


def test_control_events_keep_every_bit_of_a_worker_id(path: Path) -> None:
    with ControlRecorder(path) as rec:
        rec.emit("cache_reset", update=1, worker_id=2**64 - 1, status="ok")
    (line,) = lines(path)
    assert (line["schema"], line["worker_id"]) == ("rlserve.control.v1", 2**64 - 1)


def test_none_is_left_out_and_foreign_values_are_written_as_text(path: Path) -> None:
    with AttemptRecorder(path) as rec:
        rec.emit("failed", attempt_id=UUID(int=7), reason=None, artifact=Path("a/b"))
    (line,) = lines(path)
    assert line["attempt_id"] == "00000000-0000-0000-0000-000000000007"
    assert line["artifact"] == "a/b"
    assert not {"run", "reason"} & line.keys()


@pytest.mark.parametrize("kind", [AttemptRecorder, ControlRecorder])
def test_an_unknown_event_is_refused_with_the_known_ones(
    path: Path, kind: type[AttemptRecorder | ControlRecorder]
) -> None:
    with kind(path) as rec, pytest.raises(ValueError, match="unknown event 'cancelled'") as caught:
        rec.emit("cancelled", attempt_id="a0")
    assert all(event in str(caught.value) for event in kind.events)
    assert not path.exists()


def test_an_attempt_event_without_its_attempt_is_refused(path: Path) -> None:
    with AttemptRecorder(path) as rec:
        for fields in ({}, {"attempt_id": None}):
            with pytest.raises(ValueError, match="event 'failed' needs attempt_id"):
                rec.emit("failed", **fields)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_by_name(path: Path, number: float) -> None:
    with AttemptRecorder(path) as rec:
        with pytest.raises(ValueError, match="cannot record 'accepted': reward: not a finite number"):
            rec.emit("accepted", attempt_id="a0", reward=number)
        with pytest.raises(ValueError, match="cannot record 'accepted'"):
            rec.emit("accepted", attempt_id="a0", scores=[{"judge": number}])
        with pytest.raises(ValueError, match="cannot record 'accepted': t: not a finite number"):
            rec.emit("accepted", t=number, attempt_id="a0")
    assert not path.exists()


def test_threads_lose_nothing_and_keep_their_own_order(path: Path) -> None:
    def work(name: int) -> None:
        for turn in range(2000):
            rec.emit("dispatched", attempt_id=name, turn=turn)

    with AttemptRecorder(path) as rec:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = lines(path)
    for name in range(8):
        assert [line["turn"] for line in written if line["attempt_id"] == name] == list(range(2000))
    assert rec.lost == 0


def test_a_disk_that_stands_still_does_not_hold_the_caller(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    open_file = recorder._Writer._open
    monkeypatch.setattr(recorder._Writer, "_open", lambda self: disk.wait(10) and open_file(self))
    with AttemptRecorder(path) as rec:
        begun = time.monotonic()
        for i in range(1000):
            rec.emit("dispatched", attempt_id=i)
        assert time.monotonic() - begun < 5
        assert not path.exists()
        disk.set()
    assert ids(path) == list(range(1000))


def test_close_writes_all_that_was_emitted(path: Path) -> None:
    rec = AttemptRecorder(path)
    for i in range(20_000):
        rec.emit("dispatched", attempt_id=i)
    rec.close()
    rec.close()
    assert ids(path) == list(range(20_000))


def test_an_event_after_close_is_appended(path: Path) -> None:
    rec = AttemptRecorder(path)
    for i in range(3):
        rec.emit("dispatched", attempt_id=i)
        rec.close()
    assert ids(path) == [0, 1, 2]


def test_closing_while_others_emit_loses_nothing_and_tears_no_line(path: Path) -> None:
    rec = AttemptRecorder(path)
    done = threading.Event()

    def close() -> None:
        while not done.is_set():
            rec.close()

    closer = threading.Thread(target=close)
    closer.start()
    for i in range(2000):
        rec.emit("dispatched", attempt_id=i, note="x" * 5000)  # long enough to be caught half written
    done.set()
    closer.join()
    rec.close()
    assert ids(path) == list(range(2000))


def test_a_file_has_one_writer_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, opened = threading.Event(), threading.Event()
    open_file, close_file = recorder._Writer._open, recorder._Writer._close

    def slow_close(self: recorder._Writer) -> None:
        disk.wait(10)
        close_file(self)

    def watched_open(self: recorder._Writer) -> FileIO:
        opened.set()
        return open_file(self)

    monkeypatch.setattr(recorder._Writer, "_close", slow_close)
    rec = AttemptRecorder(path)
    rec.emit("dispatched", attempt_id="first")
    closing = threading.Thread(target=rec.close)
    closing.start()
    while rec._writer is not None or not path.exists():
        time.sleep(0.001)
    monkeypatch.setattr(recorder._Writer, "_open", watched_open)
    rec.emit("dispatched", attempt_id="second")
    assert not opened.wait(0.1)
    disk.set()
    closing.join()
    rec.close()
    assert ids(path) == ["first", "second"]


def test_leaving_the_interpreter_writes_all_that_was_emitted(path: Path) -> None:
    script = "rec = recorder.AttemptRecorder(path)\nfor i in range(20_000): rec.emit('dispatched', attempt_id=i)"
    assert run(script, path).stderr == ""
    assert ids(path) == list(range(20_000))


def test_a_path_that_cannot_be_written_warns_once_and_counts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rec = AttemptRecorder(tmp_path / "file" / "attempts.jsonl")
    with pytest.warns(RuntimeWarning, match=r"attempts\.jsonl: records are being lost") as warned:
        for i in range(100):
            rec.emit("dispatched", attempt_id=i)
            time.sleep(0.0005)  # several batches
        rec.close()
    assert (len(warned), rec.lost) == (1, 100)


def test_records_go_on_when_the_path_can_be_written_again(tmp_path: Path) -> None:
    (tmp_path / "capture").touch()
    rec = AttemptRecorder(tmp_path / "capture" / "attempts.jsonl")
    with pytest.warns(RuntimeWarning, match="records are being lost"):
        rec.emit("dispatched", attempt_id="too early")
        while not rec.lost:
            time.sleep(0.001)
    (tmp_path / "capture").unlink()
    with rec:
        rec.emit("dispatched", attempt_id="a1")
    assert ids(rec.path) == ["a1"]
    assert rec.lost == 1


def test_the_writer_outlives_warnings_as_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with AttemptRecorder(tmp_path / "file" / "attempts.jsonl") as rec:
            for i in range(2):
                rec.emit("dispatched", attempt_id=i)
    assert rec.lost == 2
    assert "records are being lost" in capsys.readouterr().err


def test_a_disk_that_fills_up_keeps_whole_lines_and_the_count_of_the_rest(path: Path) -> None:
    done = run(
        """
import resource, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
rec = recorder.AttemptRecorder(path)
for i in range(100): rec.emit("dispatched", t=0.5, attempt_id=i)
while not Path(path).exists() or Path(path).read_bytes().count(b"\\n") + rec.lost < 100: time.sleep(0.001)
print(rec.lost)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
rec.emit("dispatched", attempt_id="room again")
""",
        path,
    )
    *whole, torn, after = path.read_text().splitlines()
    lost = int(done.stdout)
    assert [json.loads(line)["attempt_id"] for line in whole] == list(range(100 - lost))
    assert 0 < lost < 100
    with pytest.raises(ValueError, match=r"line 1 column"):
        json.loads(torn)
    assert json.loads(after)["attempt_id"] == "room again"


def test_a_killed_process_leaves_whole_lines_but_for_the_last(path: Path) -> None:
    script = f"import sys\nfrom pathlib import Path\nsys.path.insert(0, {str(Path(recorder.__file__).parent)!r})\n"
    script += "from recorder import AttemptRecorder\nrec = AttemptRecorder(sys.argv[1])\ni = 0\n"
    script += "while True: rec.emit('dispatched', attempt_id=i); i += 1\n"
    process = subprocess.Popen([sys.executable, "-c", script, path])
    try:
        while not path.exists() or path.stat().st_size < 200_000:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    *whole, last = path.read_bytes().split(b"\n")
    assert [json.loads(line)["attempt_id"] for line in whole] == list(range(len(whole)))
    with AttemptRecorder(path) as rec:
        rec.emit("dispatched", attempt_id="restarted")
    left = path.read_bytes().splitlines()
    assert len(left) == len(whole) + bool(last) + 1
    assert json.loads(left[-1])["attempt_id"] == "restarted"


def test_a_torn_last_line_of_an_earlier_process_spoils_no_other(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"event":"dispatched","attempt_id":"a0"}\n{"event":"dispat')
    with AttemptRecorder(path) as rec:
        rec.emit("dispatched", attempt_id="a1")
    first, torn, last = path.read_text().splitlines()
    assert (json.loads(first)["attempt_id"], torn) == ("a0", '{"event":"dispat')
    assert json.loads(last)["attempt_id"] == "a1"


KILLS = 100
_KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
from recorder import AttemptRecorder

draws, folder = random.Random(int(sys.argv[3])), Path(sys.argv[1])
for run in range(int(sys.argv[2])):
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        rec, number = AttemptRecorder(folder / f"attempts.{run}.jsonl", run=str(run)), 0
        while True:
            for _ in range(draws.choice((1, 30, 3000))):
                rec.emit("dispatched", attempt_id=f"{run}-{number}")
                number += 1
            if draws.random() < 0.3:
                rec.close()  # what was emitted so far is flushed
                os.write(tells, number.to_bytes(8, "big"))
    os.close(tells)
    time.sleep(draws.random() * 0.04)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    flushed = b""
    while part := os.read(told, 1 << 16):
        flushed += part
    os.close(told)
    print(json.dumps([run, int.from_bytes(flushed[-8:], "big")]), flush=True)
"""


def test_of_a_hundred_processes_killed_at_any_moment_nothing_is_lost_but_what_was_not_flushed(tmp_path: Path) -> None:
    folder = tmp_path / "capture"
    command = [sys.executable, "-c", _KILLED, str(folder), str(KILLS), "4"]
    paths = {"PYTHONPATH": str(Path(recorder.__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | paths)
    flushed = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(flushed) == KILLS
    broken = written = 0
    for run_, least in flushed.items():
        file = folder / f"attempts.{run_}.jsonl"
        content = file.read_bytes() if file.exists() else b""
        *whole, last = content.split(b"\n")
        assert [json.loads(line)["attempt_id"] for line in whole] == [f"{run_}-{n}" for n in range(len(whole))]
        assert len(whole) >= least
        broken, written = broken + (bool(last) or (not whole and file.exists())), written + len(whole)
    assert sum(flushed.values()) > 0
    capture = open_capture(folder)
    assert capture.attempt_events.num_rows == written
    assert (
        len({finding.path for finding in capture.findings}) == broken
    )  # each half line, and each file that was opened and never written to


def test_of_files_that_end_in_half_a_line_the_rest_is_merged_and_each_half_counted(tmp_path: Path) -> None:
    for process in range(3):
        with AttemptRecorder(tmp_path / f"attempts.{process}.jsonl") as rec:
            for number in range(10):
                rec.emit("dispatched", attempt_id=f"{process}-{number}")
    for process in range(2):
        file = tmp_path / f"attempts.{process}.jsonl"
        file.write_bytes(file.read_bytes()[:-20])
    capture = open_capture(tmp_path)
    names = {f"{process}-{number}" for process in range(3) for number in range(10)} - {"0-9", "1-9"}
    assert set(capture.attempt_events["attempt_id"].to_pylist()) == names
    assert sorted(str(finding.path) for finding in capture.findings) == ["attempts.0.jsonl", "attempts.1.jsonl"]
    assert {finding.line for finding in capture.findings} == {10}


def test_a_copy_in_another_process_writes_a_file_of_its_own(path: Path) -> None:
    with AttemptRecorder(path, run="r") as rec:
        rec.emit("dispatched", attempt_id="here")
        with pickle.loads(pickle.dumps(rec)) as copy:
            copy.emit("dispatched", attempt_id="there")
    assert ids(path) == ["here"]
    (other,) = [one for one in path.parent.iterdir() if one != path]
    assert (ids(other), lines(other)[0]["run"]) == (["there"], "r")
    assert open_capture(path.parent).attempt_events.num_rows == 2


@pytest.mark.filterwarnings("ignore")
def test_an_actor_of_ray_records_as_any_process_does(path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:

        @ray.remote
        class Rollout:  # type: ignore[misc]  # what ray makes of a class is not known
            def __init__(self, attempts: AttemptRecorder) -> None:
                self.attempts = attempts

            def work(self, name: str) -> None:
                for number in range(1000):
                    self.attempts.emit("dispatched", attempt_id=f"{name}-{number}")

        with AttemptRecorder(path) as rec:
            rec.emit("dispatched", attempt_id="driver")
            actors = {name: Rollout.remote(rec) for name in ("a", "b")}
            ray.get([actor.work.remote(name) for name, actor in actors.items()])
            for actor in actors.values():
                actor.__ray_terminate__.remote()
        wanted = {f"{name}-{number}" for name in actors for number in range(1000)} | {"driver"}
        for _ in range(200):  # an actor that leaves writes what it still has
            found = open_capture(path.parent).attempt_events["attempt_id"].to_pylist()
            if set(found) == wanted:
                break
            time.sleep(0.05)
    finally:
        ray.shutdown()
    assert sorted(found) == sorted(wanted)


@forks
def test_a_forked_child_writes_a_file_of_its_own(path: Path) -> None:
    rec = AttemptRecorder(path)
    for i in range(5000):  # many are still in the queue when the process forks
        rec.emit("dispatched", attempt_id=i)
    child = os.fork()
    if child == 0:
        rec.emit("dispatched", attempt_id="child")
        rec.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    rec.close()
    assert status == 0
    assert ids(path) == list(range(5000))
    assert ids(path.with_name(f"attempts.{child}.jsonl")) == ["child"]


@forks
def test_a_multiprocessing_child_leaves_nothing_in_its_queue(path: Path) -> None:
    def work() -> None:
        for i in range(5000):
            rec.emit("dispatched", attempt_id=i)

    with AttemptRecorder(path) as rec:
        rec.emit("dispatched", attempt_id="parent")
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join(20)
    assert child.exitcode == 0
    assert ids(path.with_name(f"attempts.{child.pid}.jsonl")) == list(range(5000))
    assert ids(path) == ["parent"]


@forks
def test_a_fork_that_records_nothing_makes_no_file(path: Path) -> None:
    with AttemptRecorder(path) as rec:
        rec.emit("dispatched", attempt_id="a0")
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["attempts.jsonl"]


def test_a_signal_handler_may_record_too(path: Path) -> None:
    done = run(
        """
import signal
rec = recorder.AttemptRecorder(path)
handled = 0
def handler(*_):
    global handled
    handled += 1
    rec.emit("canceled", attempt_id="signal")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for i in range(20_000): rec.emit("dispatched", attempt_id="main")
signal.setitimer(signal.ITIMER_REAL, 0)
print(handled)
""",
        path,
    )
    written = ids(path)
    assert (written.count("main"), written.count("signal")) == (20_000, int(done.stdout))
    assert int(done.stdout) > 0


def test_the_path_stays_where_it_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with AttemptRecorder("attempts.jsonl") as rec:
        monkeypatch.chdir(tmp_path / "elsewhere")
        rec.emit("dispatched", attempt_id="a0")
    assert ids(tmp_path / "attempts.jsonl") == ["a0"]
