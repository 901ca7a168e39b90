"""Work in processes on this machine, each a fresh interpreter that takes tasks and gives answers as JSON lines.

A fresh interpreter imports neither the caller's main program, which a spawned process would, nor inherits locks
and threads, which a forked one would. What a process cannot do (it was killed, or ran out of memory) is left to
the caller, so that no answer is ever missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_rlserve.engine import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Task = dict[str, Any]
Answer = dict[str, Any]
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from pytest_rlserve.engine.local import serve; serve()"
)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(function: str, tasks: Sequence[Task], sizes: Sequence[int], *, processes: int) -> list[Answer | None]:
    """Do every task in one of several processes.

    Args:
        function: where to find what does a task, as "module:name"; it takes and returns what JSON can hold.
        tasks: what is to be done.
        sizes: how much work each is, in any unit.
        processes: how many to start.

    Returns:
        The answers in the order of the tasks, None for a task that no process could do.
    """
    answers: list[Answer | None] = [None] * len(tasks)
    started: list[subprocess.Popen[bytes]] = []

    def work(share: list[int]) -> None:
        for number, answer in _served(function, [(number, tasks[number]) for number in share], started):
            answers[number] = answer

    with ThreadPoolExecutor(processes) as threads:
        try:
            for done in [threads.submit(work, share) for share in shares(sizes, processes) if share]:
                done.result()
        except BaseException:  # Ctrl-C, of which the processes may not have heard
            for process in started:
                process.kill()
            raise
    return answers


def shares(sizes: Sequence[int], processes: int) -> list[list[int]]:
    """Deal out tasks by their size, the largest first, each to whom has least."""
    dealt: list[list[int]] = [[] for _ in range(processes)]
    load = [0] * processes
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        least = load.index(min(load))
        dealt[least].append(number)
        load[least] += sizes[number]
    return [sorted(share) for share in dealt]


def _served(
    function: str, tasks: list[tuple[int, Task]], started: list[subprocess.Popen[bytes]]
) -> Iterator[tuple[int, Answer]]:
    """Let one process, noted in `started`, do some tasks; yield what it answers until it ends, however it ends."""
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({"function": function, "tasks": tasks}).encode())
            process.stdin.close()
        for line in process.stdout:
            try:
                kind, *said = json.loads(line)
            except ValueError:
                return  # it died while writing
            if kind == "answer":
                yield said[0], said[1]
            else:
                progress.advance(*said)


def serve() -> None:
    """Do the tasks that standard input holds and write an answer for each; the other side of `run`."""
    asked = json.load(sys.stdin)
    module, _, name = asked["function"].partition(":")
    function: Callable[[Task], Answer] = getattr(import_module(module), name)
    out = sys.stdout
    sys.stdout = sys.stderr  # nothing else may come between the lines

    def say(*what: Any) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    progress.report_to(lambda size, rows: say("read", size, rows))
    for number, task in asked["tasks"]:
        say("answer", number, function(task))
