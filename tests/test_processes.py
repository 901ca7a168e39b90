"""Work shared by processes of this machine: who is free takes the next task, and nothing is lost or waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pytest_rlserve.engine import local, progress
from pytest_rlserve.engine.local import Crew, Task

if TYPE_CHECKING:
    from pathlib import Path

CHORES = """
import os, time
from pathlib import Path
from pytest_rlserve.engine import progress

def until(seen):
    for _ in range(1200):
        if seen():
            return
        time.sleep(0.05)
    raise TimeoutError

def meet(folder):
    Path(folder, str(os.getpid())).touch()
    until(lambda: len(os.listdir(folder)) == 2)
    progress.advance(size=5, rows=2)
    return os.getpid()

def fail(asked):
    fallen = Path(asked["fallen"])
    if os.getpid() == asked["caller"]:
        until(fallen.exists)
        return "done"
    fallen.touch()
    os.kill(os.getpid(), asked["signal"]) if asked["signal"] else 1 / 0

def read(asked):
    meet(asked["met"])
    for _ in range(0 if os.getpid() == asked["caller"] else 20):
        time.sleep(0.05)
        progress.advance(size=1)
    return os.getpid()

def write(line):
    with open(line["to"], "a") as file:
        file.write(line["text"])
"""


@pytest.fixture
def chores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that helpers find as well."""
    (tmp_path / "chores.py").write_text(CHORES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "chores"


def ended(crew: Crew) -> list[int | None]:
    return [helper.returncode for helper in crew._helpers]


def test_the_caller_works_beside_its_helper_and_counts_what_both_read(chores: str, tmp_path: Path) -> None:
    counted: list[tuple[int, int]] = []
    progress.report_to(lambda size, rows: counted.append((size, rows)))
    (tmp_path / "met").mkdir()
    try:
        with Crew(chores, 2) as crew:
            found = crew.do([Task("meet", str(tmp_path / "met"), 1)] * 2)
    finally:
        progress.report_to(None)
    assert sorted(found) == sorted([os.getpid(), crew._helpers[0].pid])
    assert counted == [(5, 2)] * 2


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP, None], ids=["killed", "stopped", "failed"])
def test_what_a_helper_took_and_did_not_do_is_done_here(
    chores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int | None
) -> None:
    monkeypatch.setattr(local, "_SILENCE", 0.2)
    asked = {"fallen": str(tmp_path / "fallen"), "caller": os.getpid(), "signal": sent}
    with Crew(chores, 2) as crew:
        assert crew.do([Task("fail", asked, 1)] * 3) == ["done"] * 3
    assert ended(crew) == [-signal.SIGKILL if sent else 1]


def test_a_helper_that_tells_of_what_it_reads_is_waited_for(
    chores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SILENCE", 0.5)
    asked = {"met": str(tmp_path / "met"), "caller": os.getpid()}
    (tmp_path / "met").mkdir()
    with Crew(chores, 2) as crew:
        assert sorted(crew.do([Task("read", asked, 1)] * 2)) == sorted([os.getpid(), crew._helpers[0].pid])


def test_the_largest_task_is_the_first_and_answers_keep_the_order_of_the_tasks(chores: str, tmp_path: Path) -> None:
    place = tmp_path / "lines"
    sizes = [2, 9, 5, 9]
    with Crew(chores, 1) as crew:
        crew.do([Task("write", {"to": str(place), "text": f"{n}"}, size) for n, size in enumerate(sizes)])
    assert place.read_text(encoding="ascii") == "1320"
    with Crew("operator", 1) as crew:
        assert crew.do([Task("neg", size, size) for size in sizes]) == [-2, -9, -5, -9]


def test_nobody_waits_for_a_helper_that_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_CHILD", "import time; time.sleep(30)")
    with Crew("operator", 3) as crew:
        assert crew.do([Task("neg", 1, 1)]) == [-1]
    assert ended(crew) == [-signal.SIGKILL] * 2


def test_a_helper_that_ended_before_it_was_asked_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_CHILD", "import os; os._exit(3)")
    with Crew("builtins", 2) as crew:
        assert crew._helpers[0].wait() == 3
        assert crew.do([Task("len", "x" * 1_000_000, 1)] * 3) == [1_000_000] * 3  # more than a pipe holds


def test_an_error_here_ends_the_helpers_and_is_the_callers(chores: str, tmp_path: Path) -> None:
    nowhere = {"to": str(tmp_path / "nowhere" / "lines"), "text": ""}
    with pytest.raises(FileNotFoundError), Crew(chores, 2) as crew:
        crew.do([Task("write", nowhere, 2), Task("write", nowhere, 1)])
    assert all(ended(crew))


def test_an_interrupt_ends_the_helpers_too() -> None:
    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
    try:
        threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), Crew("time", 2) as crew:
            crew.do([Task("sleep", 60, 1)] * 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended(crew) == [-signal.SIGKILL]


@pytest.mark.parametrize("executable", ["/nowhere/python", "", None])
def test_without_other_processes_this_one_does_everything(
    executable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with Crew("operator", 3) as crew:
        assert crew.do([Task("neg", 1, 1), Task("neg", 2, 1)]) == [-1, -2]
    assert ended(crew) == []


def test_helpers_that_could_start_help_where_no_more_may(
    chores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[object]()

    class Few(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: object, **kwargs: object) -> None:
            if started:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            started.append(self)
            super().__init__(*args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", Few)
    (tmp_path / "met").mkdir()
    with Crew(chores, 3) as crew:
        assert len(set(crew.do([Task("meet", str(tmp_path / "met"), 1)] * 2))) == 2


def test_a_helper_runs_nothing_of_the_folder_that_it_starts_in(
    chores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "met").mkdir(parents=True)
    (tmp_path / "here" / "json.py").write_text("open('ran', 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])  # no text, which Python passes over
    with Crew(chores, 2) as crew:
        assert len(set(crew.do([Task("meet", "met", 1)] * 2))) == 2
    assert not (tmp_path / "here" / "ran").exists()


def test_what_else_is_written_between_the_answers_of_a_helper_is_passed_over(
    chores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_CHILD", "print('welcome'); print(5); print('[]'); print('\"abc\"'); " + local._CHILD)
    (tmp_path / "met").mkdir()
    with Crew(chores, 2) as crew:
        found = crew.do([Task("meet", str(tmp_path / "met"), 1)] * 2)
    assert sorted(found) == sorted([os.getpid(), crew._helpers[0].pid])
