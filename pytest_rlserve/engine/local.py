"""Work shared by this process and others of this machine: whoever is free takes the next task.

The others are fresh interpreters, which neither import the caller's main program, as a spawned process would, nor
inherit locks and threads, as a forked one would. They start before anybody knows the tasks, for their imports take
time, and nobody waits for them. What a process took and did not do (it was killed, ran out of memory, or hangs) is done
here in the end, so that no answer is ever missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pytest_rlserve.engine import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pytest_rlserve.engine.local import serve; serve()"
)
_SILENCE = 60.0
"""Seconds without a word after which a helper hangs: it tells of every megabyte that it reads."""


class Task(NamedTuple):
    """Something to do."""

    name: str
    """The function that does it; it returns what JSON can hold."""
    argument: Any
    """What it is given, which JSON can hold as well."""
    size: int
    """How much work it is, in any unit."""


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Crew:
    """This process and its helpers."""

    def __init__(self, module: str, processes: int) -> None:
        """Start every process but this one, or as many as there may be.

        They import `module`, which has the functions of all tasks.
        """
        self._module = module
        self._heard = 0.0
        self._helpers = list(_started(module, processes - 1))

    def __enter__(self) -> Self:
        """Return the crew, which leaving the context ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the helpers, whatever they do."""
        self._stop()
        for helper in self._helpers:
            with helper:  # closes its pipes
                pass

    def do(self, tasks: Sequence[Task]) -> list[Any]:
        """Do every task, the largest first; return the answers in the order of the tasks.

        What a task raises here is raised; what it raises in a helper ends that one, and the task is done here.
        """
        answers: dict[int, Any] = {}
        numbers = sorted(range(len(tasks)), key=lambda number: -tasks[number].size)
        with (
            tempfile.TemporaryDirectory(prefix="rlserve-") as taken,
            ThreadPoolExecutor(len(self._helpers) or 1) as threads,
        ):
            asked = [(number, tasks[number]) for number in numbers], taken

            def note(number: int, answer: Any) -> None:
                answers[number] = answer
                if len(answers) == len(tasks):
                    self._stop()  # nobody waits for one that still imports

            def hear(helper: subprocess.Popen[bytes]) -> None:
                for kind, *said in _said(helper, asked):
                    self._heard = time.monotonic()
                    (note if kind == "answer" else progress.advance)(*said)

            try:
                others = [threads.submit(hear, helper) for helper in self._helpers]
                for done in _done(self._module, *asked):
                    note(*done)
                self._heard = time.monotonic()
                while wait(others, _SILENCE / 10).not_done:
                    if time.monotonic() - self._heard > _SILENCE:
                        self._stop()
                for one in others:
                    one.result()
                for number in set(numbers) - set(answers):
                    answers[number] = _do(self._module, tasks[number])
            finally:
                self._stop()  # or Ctrl-C, of which they may not have heard, would wait for them
        return [answers[number] for number in range(len(tasks))]

    def _stop(self) -> None:
        for helper in self._helpers:
            helper.kill()


def _started(module: str, number: int) -> Iterator[subprocess.Popen[bytes]]:
    paths = [path for path in sys.path if isinstance(path, str)]  # Python passes over all others, too
    safe = "-I" if sys.flags.isolated else "-P"  # or a json.py where we happen to be would run
    command = [sys.executable or "", safe, "-c", _CHILD, json.dumps(paths), module]
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with contextlib.suppress(OSError):  # no more are allowed, or Python is part of another program
        for _ in range(number):
            yield subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)


def _do(module: str, task: Task) -> Any:
    return getattr(import_module(module), task.name)(task.argument)


def _done(module: str, tasks: Sequence[tuple[int, Task]], taken: str) -> Iterator[tuple[int, Any]]:
    """Do tasks that nobody has taken; taking one is making its folder, which only one process can."""
    for number, task in tasks:
        try:
            Path(taken, str(number)).mkdir()
        except FileExistsError:
            continue
        yield number, _do(module, task)


def _said(helper: subprocess.Popen[bytes], asked: Any) -> Iterator[list[Any]]:
    """Yield what a helper says until it ends, however it ends."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    with contextlib.suppress(BrokenPipeError), helper.stdin as told:
        told.write(json.dumps(asked).encode())
    for line in helper.stdout:
        # What is torn was written as it died. While it lives, its tasks are its own, whatever else writes there.
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, list) and said and said[0] in ("answer", "read"):
                yield said


def serve() -> None:
    """Do tasks as a helper: standard input says which, standard output takes the answers as JSON lines."""
    module = sys.argv[2]
    import_module(module)
    tasks, taken = json.load(sys.stdin)
    out = sys.stdout
    sys.stdout = sys.stderr  # nothing else may come between the lines

    def say(*what: Any) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    progress.report_to(lambda size, rows: say("read", size, rows))
    for number, answer in _done(module, [(number, Task(*task)) for number, task in tasks], taken):
        say("answer", number, answer)
