"""Kill processes that write a baseline, again and again, and say what they left: run by test_kills.py.

    python killing.py writes FOLDER KILLS SEED     a loop that does nothing but write
    python killing.py updates FOLDER KILLS SEED    the whole of `pytest --rl-baseline-update`
    python killing.py races FOLDER ROUNDS SEED     two such updates at once, none of them killed

Everything heavy is imported once, and each victim is forked from there. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gate.documents import document
from pytest_rlserve.gate import baseline as store

if TYPE_CHECKING:
    from collections.abc import Callable


def forked(work: Callable[[], int]) -> int:
    """Start a process that does some work, silently, and return its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        status = work()
    finally:
        os._exit(status)


def kill(pid: int) -> None:
    """Kill without a warning, and wait until it is dead; it may have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def litter(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.tmp"))


class Watch:
    """Looks at a baseline after each kill."""

    def __init__(self, path: Path, **allowed: bytes) -> None:
        self.path, self.allowed = path, allowed
        self.found: Counter[str] = Counter()

    def look(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else None
        self.found[next((name for name, one in self.allowed.items() if one == data), "broken")] += 1
        store.read(self.path)  # raises if it is not whole
        left = litter(self.path.parent)
        self.found["kills inside a write"] += bool(left)
        for one in left:
            one.unlink()


def writes(folder: Path, kills: int, draw: random.Random) -> dict[str, int]:
    path = folder / "s.json"
    documents = [document({f"job-{n}": [10.0 + n + turn] for n in range(20)}) for turn in (0, 1)]
    texts = []
    for one in documents:
        store.write(path, one)
        texts.append(path.read_bytes())
    watch = Watch(path, one=texts[0], other=texts[1])

    def write_on() -> int:
        while True:
            for one in documents:
                store.write(path, one)

    for _ in range(kills):
        victim = forked(write_on)
        time.sleep(draw.uniform(0.0, 0.03))
        kill(victim)
        watch.look()
    return dict(watch.found)


def session(folder: Path, capture: str) -> int:
    """Run the whole update in this process."""
    import pytest

    os.chdir(folder)
    plain = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "no:xdist", "-q")
    return int(pytest.main([*plain, "--rootdir=.", f"--rl-trace={capture}", "--rl-baseline-update"]))


def preload(folder: Path) -> None:
    """Import all that a session needs, by running one whose result is thrown away."""
    before = (folder / "baselines" / "s.json").read_bytes()
    os.waitpid(forked(lambda: session(folder, "new-0")), 0)
    (folder / "baselines" / "s.json").write_bytes(before)

    import pytest_rlserve.controller
    import pytest_rlserve.gate.refresh
    import pytest_rlserve.gate.report
    import pytest_rlserve.plugin
    import pytest_rlserve.readers.assemble
    import pytest_rlserve.reports.terminal
    import pytest_rlserve.suite  # noqa: F401


def updates(folder: Path, kills: int, draw: random.Random) -> dict[str, int]:
    path = folder / "baselines" / "s.json"
    preload(folder)
    old = path.read_bytes()
    began = time.monotonic()
    os.waitpid(forked(lambda: session(folder, "new-0")), 0)
    took = time.monotonic() - began
    new = path.read_bytes()
    assert new != old
    watch = Watch(path, old=old, new=new)
    for number in range(kills):
        path.write_bytes(old)
        victim = forked(lambda: session(folder, "new-0"))
        if number % 2:
            time.sleep(draw.uniform(0.0, 1.2 * took))
        else:  # as soon as something lies beside the file, or a little later
            until = time.monotonic() + 3 * took
            while not litter(path.parent) and time.monotonic() < until:
                time.sleep(0.0002)
            time.sleep(draw.uniform(0.0, 0.002))
        kill(victim)
        watch.look()
    return dict(watch.found)


def races(folder: Path, rounds: int, draw: random.Random) -> dict[str, Any]:
    """Let two updates run at once; each says by its exit status whether it was taken in."""
    path = folder / "baselines" / "s.json"
    preload(folder)
    old = path.read_bytes()
    seen: Counter[str] = Counter()
    for _ in range(rounds):
        path.write_bytes(old)
        names = ["new-0", "new-1"]
        draw.shuffle(names)
        pids = {}
        for name in names:
            pids[name] = forked(lambda name=name: session(folder, name))
            time.sleep(draw.uniform(0.0, 0.01))
        good = {name for name, pid in pids.items() if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0}
        stored = {run["name"] for run in json.loads(path.read_text())["levels"][-1]["runs"]}
        seen["both taken in" if len(good) == 2 else "one refused" if good else "both refused"] += 1
        seen["lost silently"] += bool(good - stored)
    return dict(seen)


if __name__ == "__main__":
    what, where, count, seed = sys.argv[1:]
    run = {"writes": writes, "updates": updates, "races": races}[what]
    print(json.dumps(run(Path(where), int(count), random.Random(int(seed)))))
