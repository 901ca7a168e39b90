"""Leading blocks that others hold: 40 million hashes with 80 % reuse, and the worst case without any.

    pip install -e '.[test,peers]' && taskset -c 0 pytest benchmarks/test_kv.py -s

The peers run in processes of their own, on one core, in turn with ours: Python sets element by element, and polars'
`is_first_distinct` over all hashes. Times are medians of three, in seconds of processor time, which other jobs on the
machine do not add to; the clock's are printed beside them. RLSERVE_BENCH_PEERS names another virtual environment that
has numpy and polars.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_rlserve import blocks

HASHES = int(os.environ.get("RLSERVE_BENCH_HASHES", "40_000_000"))
ROUNDS = 3
PEERS = os.environ.get("RLSERVE_BENCH_PEERS", sys.prefix if find_spec("polars") else None)
Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def traffic(total: int, *, seed: int = 1, sessions: int = 64) -> Arrays:
    """Sessions of growing prompts, some hundred blocks each: about 80 % of all hashes were sent before."""
    draws = np.random.default_rng(seed)

    def fresh(low: int, high: int) -> np.ndarray[Any, Any]:
        return draws.integers(0, 2**64, int(draws.integers(low, high)), dtype=np.uint64)

    current: list[np.ndarray[Any, Any]] = []
    rows: list[np.ndarray[Any, Any]] = []
    count = 0
    while count < total:
        if len(current) < sessions:
            current.append(fresh(100, 400))
            place = len(current) - 1
        else:
            place = int(draws.integers(0, sessions))
            current[place] = np.concatenate([current[place], fresh(60, 220)])
        rows.append(current[place])
        count += len(current[place])
        if len(current[place]) > 1200:
            del current[place]
    return np.concatenate(rows), np.cumsum([0, *map(len, rows)], dtype=np.int64)


def ours(hashes: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], wait: float = 0.0) -> np.ndarray[Any, Any]:
    arrival = np.arange(len(offsets) - 1, dtype=np.float64)
    return blocks.held_by_others(hashes, offsets[:-1], offsets[1:], arrival, arrival + wait)


def timed(run: Any, *arguments: Any) -> tuple[float, float, Any]:
    """Return seconds of processor time, seconds on the clock, and what was found."""
    used, start = time.process_time(), time.perf_counter()
    found = run(*arguments)
    return time.process_time() - used, time.perf_counter() - start, found


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


PEER = """
import json, sys, time
import numpy as np
hashes, offsets = np.load(sys.argv[1]), np.load(sys.argv[2])
def sets():
    seen, found = set(), []
    values = hashes.tolist()
    for a, b in zip(offsets.tolist(), offsets[1:].tolist()):
        row, count = values[a:b], 0
        for one in row:
            if one not in seen:
                break
            count += 1
        seen.update(row[count:])
        found.append(count)
    return np.array(found)
def distinct():
    import polars
    unknown = np.append(np.flatnonzero(polars.Series(hashes).is_first_distinct().to_numpy()), len(hashes))
    first = unknown[np.searchsorted(unknown, offsets[:-1])]
    return np.minimum(first, offsets[1:]) - offsets[:-1]
used, start = time.process_time(), time.perf_counter()
found = {"sets": sets, "polars": distinct}[sys.argv[3]]()
times = time.process_time() - used, time.perf_counter() - start
print(json.dumps({"times": times, "sum": int(found.sum()), "check": int((found * np.arange(len(found))).sum())}))
"""


def peer(name: str, folder: Path) -> dict[str, Any]:
    arguments = [str(folder / "hashes.npy"), str(folder / "offsets.npy"), name]
    python = Path(str(PEERS)) / "bin" / "python"
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    out = subprocess.run([str(python), "-c", PEER, *arguments], check=True, capture_output=True, env=environment)
    found: dict[str, Any] = json.loads(out.stdout)
    return found


@pytest.mark.skipif(PEERS is None, reason="needs polars: pip install -e '.[peers]'")
def test_40_million_hashes_against_sets_and_polars(tmp_path: Path) -> None:
    hashes, offsets = traffic(HASHES)
    np.save(tmp_path / "hashes.npy", hashes)
    np.save(tmp_path / "offsets.npy", offsets)
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "polars": [], "sets": []}
    before = peak()
    for _ in range(ROUNDS):
        used, clock, found = timed(ours, hashes, offsets)
        times["ours"].append((used, clock))
        check = (int(found.sum()), int((found * np.arange(len(found))).sum()))
        for name in ("polars", "sets"):
            answer = peer(name, tmp_path)
            assert (answer["sum"], answer["check"]) == check
            times[name].append(tuple(answer["times"]))
    extra = (peak() - before) / len(hashes)
    median = {name: statistics.median(used for used, _ in some) for name, some in times.items()}
    clocks = {name: statistics.median(clock for _, clock in some) for name, some in times.items()}
    reused = found.sum() / len(hashes)
    print(f"\n{len(hashes):,} hashes, {reused:.0%} reused, Python {sys.version.split()[0]}, numpy {np.__version__}")
    for name, seconds in median.items():
        print(f"  {name:7} {seconds:6.2f} s  {seconds / median['ours']:5.1f} x   ({clocks[name]:.2f} s on the clock)")
    print(f"  {extra:.1f} bytes a hash above the input")
    assert median["sets"] >= 8 * median["ours"]
    assert median["polars"] >= 1.5 * median["ours"]
    assert extra <= 8


def worst(count: int) -> None:
    """Print seconds and bytes a hash, above the input, of rows that share nothing."""
    hashes = np.random.default_rng(2).integers(0, 2**64, count, dtype=np.uint64)
    offsets = np.append(np.arange(0, count, 700, dtype=np.int64), count)
    before = peak()
    seconds, _, found = timed(ours, hashes, offsets)
    assert not found.any()
    print(json.dumps({"seconds": seconds, "bytes": (peak() - before) / count}))


def test_the_worst_case_is_that_nothing_is_reused() -> None:
    code = f"import test_kv; test_kv.worst({HASHES})"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parent)
    found = json.loads(out.stdout)
    print(f"\n{HASHES:,} hashes, none reused: {found['seconds']:.2f} s, {found['bytes']:.0f} bytes a hash more")


def test_waiting_for_the_first_token_costs_little() -> None:
    hashes, offsets = traffic(HASHES // 8)
    plain, _, _ = timed(ours, hashes, offsets)
    seconds, _, found = timed(ours, hashes, offsets, 20.0)
    print(f"\n{len(hashes):,} hashes, later rows until the first token as well: {seconds:.2f} s, without {plain:.2f} s")
    assert found.sum() > 0
