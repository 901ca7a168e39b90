"""What the gate takes over reading a rollout: ``python benchmarks/compare_gate.py --megabytes 1000``.

Each round is a fresh process on one core, its clock started after the imports: it reads the capture, runs every check
of the built-in suite, takes every metric and, as a baseline needs it, the workload. Times are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate import write
from tabulate import tabulate

MOST = 1.5
"""Times the reading that a capture may take to be read and gated."""
SLOWEST = 8


def main() -> None:
    """Measure what the command line asks for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100, help="JSON before compression (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where captures are kept between runs")
    parser.add_argument("--once", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(once(arguments.once)))
        return
    with tempfile.TemporaryDirectory() as made:
        capture = (arguments.folder or Path(made)) / f"{arguments.megabytes:g}MB-rollout"
        if not capture.is_dir():
            write(capture, arguments.megabytes, rollout=True)
        found = [measured(capture) for _ in range(arguments.rounds)]
    print(f"a rollout of {arguments.megabytes:g} MB of JSON, one core, medians of {arguments.rounds} rounds\n")
    show({name: statistics.median(one[name] for one in found) for name in found[0]})


def measured(capture: Path) -> dict[str, float]:
    """Gate once in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--once", str(capture)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def once(capture: Path) -> dict[str, float]:
    """Gate a capture in this process: seconds by what they were spent on."""
    from pytest_rlserve.checks import CHECKS, default_checks, run_check
    from pytest_rlserve.engine import local
    from pytest_rlserve.gate.workload import workload_of
    from pytest_rlserve.metrics import METRICS
    from pytest_rlserve.metrics.measuring import all_keys, measure
    from pytest_rlserve.readers import READERS, assemble, discover, open_capture  # noqa: F401 - imports that opening makes

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    local.processors = lambda: 1
    for registry in (READERS, CHECKS, METRICS):
        registry.values()
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def spent(name: str) -> None:
        nonlocal clock
        before, clock = clock, time.perf_counter()
        seconds[name] = clock - before

    opened = open_capture(capture)
    spent("reading")
    for check in default_checks():
        run_check(opened, check)
        spent(f"check {check}")
    for metric in all_keys():
        measure(opened, metric)
        spent(f"metric {metric}")
    workload_of([opened])
    spent("workload")
    return seconds


def show(seconds: dict[str, float]) -> None:
    """Print what reading and each part of the gate take, and the slowest checks and metrics."""
    reading, whole = seconds["reading"], sum(seconds.values())
    parts = {
        part: sum(spent for name, spent in seconds.items() if name.startswith(part))
        for part in ("reading", "check", "metric", "workload")
    } | {"all": whole}
    rows = [[part, f"{spent:.2f}", f"{spent / reading:.2f}"] for part, spent in parts.items()]
    rows[-1].append("met" if whole <= MOST * reading else f"NOT MET (≤ {MOST:g})")
    print(tabulate(rows, ["", "s", "times the reading", "target"], disable_numparse=True))
    slowest = sorted(seconds.items(), key=lambda one: -one[1])
    some = [[name, f"{spent:.3f}"] for name, spent in slowest if name != "reading"][:SLOWEST]
    print("\nWhat was first to need a join pays for it.\n")
    print(tabulate(some, ["slowest", "s"], disable_numparse=True))


if __name__ == "__main__":
    main()
