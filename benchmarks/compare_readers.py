"""How fast, how large, against whom: ``python benchmarks/compare_readers.py``.

All are measured in one run, one after another and again, each time in a fresh process that is pinned to one core; the
clock starts after the imports. Ratios of medians survive a busy machine, megabytes a second do not. Peers that are not
installed (extra `peers`) are left out, by name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from generate import write
from peers import READERS
from tabulate import tabulate

DRAIN = {"rlserve_hashes": 0.33, "rlserve_lazy": 0.5}
"""Least share of the drain's speed."""
TIMES = {"json_stdlib": 2.2, "pyarrow_json": 1.7, "duckdb": 1.2, "polars": 2.0}
"""How often faster `rlserve_hashes` has to be."""
READY = 500_000_000
"""Bytes that are used and given back before a reader starts: those that a virtual machine has not used yet, or not of
late, come from its host, and take longer than reading does."""
NEEDS = {"orjson": "orjson", "polars": "polars", "duckdb": "duckdb", "pyarrow_json": "pyarrow.json"}


def main() -> None:
    """Measure what the command line asks for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100, help="JSON before compression (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=float, default=0, help="a second size, for memory and processes, e.g. 1000")
    parser.add_argument("--folder", type=Path, help="where traces are kept between runs")
    parser.add_argument("--once", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(once(*arguments.once)))
        return
    with tempfile.TemporaryDirectory() as made:
        home = arguments.folder or Path(made)
        print(f"{arguments.megabytes:g} MB of JSON, one core, medians of {arguments.rounds} interleaved rounds\n")
        against_peers(trace(home, arguments.megabytes), arguments.megabytes, arguments.rounds)
        print("\nShare of the drain for other traffic\n")
        by_traffic(home, arguments.megabytes, arguments.rounds)
        sizes = [size for size in (10, arguments.megabytes, arguments.large) if size]
        print("\nMemory over the imported baseline, and time a row\n")
        by_size(home, sizes, arguments.rounds)
        if len(os.sched_getaffinity(0)) > 1:
            print(f"\nTwo processes against one, {max(sizes):g} MB\n")
            by_processes(home, max(sizes), arguments.rounds)


def trace(home: Path, megabytes: float, kind: str = "", *, one_shard: bool = False) -> Path:
    """Return a folder with a trace of that size, and of a kind that the generator knows, made if it is not there."""
    folder = home / (f"{megabytes:g}MB-{kind}" if kind else f"{megabytes:g}MB")
    if not folder.is_dir():
        write(folder, megabytes, **({kind: True} if kind else {}))
    if not one_shard:
        return folder
    single = home / f"{megabytes:g}MB-one-shard"
    if not single.is_dir():
        single.mkdir()
        with (single / "request-trace.000000.jsonl.gz").open("wb") as out:
            for path in sorted(folder.iterdir()):
                out.write(path.read_bytes())
    return single


def measured(reader: str, folder: Path, processes: int = 1) -> dict[str, Any]:
    """Read once in a fresh process, with memory that is ready for whoever asks first."""
    bytearray(READY)[::4096] = bytes(len(range(0, READY, 4096)))
    command = [sys.executable, str(Path(__file__).resolve()), "--once", reader, str(folder), str(processes)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(f"{reader}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def once(reader: str, folder: str, processes: str) -> dict[str, Any]:
    """Read a trace in this process: seconds, rows, and megabytes of memory over what the imports take."""
    import numpy as np
    import pyarrow as pa

    from pytest_rlserve.engine import local
    from pytest_rlserve.readers import READERS as FORMATS
    from pytest_rlserve.readers import assemble, discover  # noqa: F401 - open_capture imports them when it is called

    count = int(processes)
    if count == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    local.processors = lambda: count
    FORMATS.values()
    if package := NEEDS.get(reader):
        importlib.import_module(package)
    if importlib.util.find_spec("simdjson"):
        importlib.import_module("simdjson")
    pa.set_cpu_count(1)
    pa.array(["a"])  # the first array imports what pyarrow needs,
    pa.array(np.zeros(1))  # and the first one of numpy's a little more
    before, start = peak(), time.perf_counter()
    rows = READERS[reader](Path(folder))
    return {"seconds": time.perf_counter() - start, "rows": rows, "megabytes": peak() - before}


def peak() -> float:
    """Return the most memory this process has had, in millions of bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def judged(value: float, least: float | None) -> str:
    """Say whether a target is met."""
    return "" if least is None else f"{'met' if value >= least else 'NOT MET'} (≥ {least:g})"


def against_peers(folder: Path, megabytes: float, rounds: int) -> None:
    """Print the table of ratios."""
    there = [name for name in READERS if importlib.util.find_spec(NEEDS.get(name, "pytest_rlserve"))]
    found = interleaved(there, folder, rounds)
    seconds = {name: statistics.median(one["seconds"] for one in some) for name, some in found.items()}
    rows = []
    for name, median in sorted(seconds.items(), key=lambda pair: pair[1]):
        spread = [one["seconds"] for one in found[name]]
        drain, times = seconds["igzip_drain"] / median, median / seconds["rlserve_hashes"]
        rows.append(
            [
                name,
                f"{megabytes / median:.0f}",
                f"{megabytes / max(spread):.0f} … {megabytes / min(spread):.0f}",
                f"{drain:.2f}",
                f"{times:.2f}",
                judged(drain, DRAIN.get(name)) or judged(times, TIMES.get(name)),
                f"{statistics.median(one['megabytes'] for one in found[name]):.0f}",
            ]
        )
    heads = ["reader", "MB/s", "range", "of the drain", "rlserve_hashes is faster by", "target", "memory, MB"]
    print(tabulate(rows, heads, disable_numparse=True))
    if left_out := [name for name in READERS if name not in there]:
        print(f"not installed: {', '.join(left_out)}")


def interleaved(readers: list[str], folder: Path, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Read with each reader, one after another and again."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name in random.sample(readers, len(readers)):
            found[name].append(measured(name, folder))
    return found


def by_traffic(home: Path, megabytes: float, rounds: int) -> None:
    """Print our share of the drain for longer prompts, and where most rows are no requests, which no peer reads."""
    rows = []
    for kind, about in (("long", "prompts of 11,000 tokens"), ("tools", "tool calls and payloads too")):
        found = interleaved(["igzip_drain", *DRAIN, "rlserve"], trace(home, megabytes, kind), rounds)
        drain, *ours = (statistics.median(one["seconds"] for one in some) for some in found.values())
        rows.append([about, *(f"{drain / seconds:.2f}" for seconds in ours)])
    print(tabulate(rows, ["traffic", *DRAIN, "rlserve"], disable_numparse=True))


def by_size(home: Path, sizes: list[float], rounds: int) -> None:
    """Print memory and time a row for traces of several sizes."""
    rows = []
    for size in dict.fromkeys(sizes):
        for name in ("rlserve_lazy", "rlserve", "rlserve_hashes"):
            found = [measured(name, trace(home, size)) for _ in range(rounds)]
            seconds = statistics.median(one["seconds"] for one in found)
            memory = statistics.median(one["megabytes"] for one in found)
            a_row = seconds / found[0]["rows"] * 1e6
            rows.append([f"{size:g}", name, f"{memory:.0f}", f"{memory / size:.2f}", f"{a_row:.1f}"])
    heads = ["JSON, MB", "reader", "memory, MB", "of the JSON", "µs a row"]
    print(tabulate(rows, heads, disable_numparse=True))


def by_processes(home: Path, size: float, rounds: int) -> None:
    """Print what a second process gains, on many shards and on one."""
    rows = []
    for name, one_shard in (("many shards", False), ("one shard", True)):
        folder = trace(home, size, one_shard=one_shard)
        found: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(rounds):
            for processes, some in found.items():
                some.append(measured("rlserve", folder, processes)["seconds"])
        one, two = (statistics.median(some) for some in found.values())
        rows.append([name, f"{one:.2f}", f"{two:.2f}", f"{one / two:.2f}", judged(one / two, 1.4)])
    print(tabulate(rows, ["", "one, s", "two, s", "ratio", "target"], disable_numparse=True))


if __name__ == "__main__":
    main()
