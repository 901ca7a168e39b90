"""Leading blocks that others hold: 40 million hashes with 80 % reuse, and the worst case without any.

    pip install -e '.[test,peers]' && taskset -c 0 pytest benchmarks/test_kv.py -s

The peers run in processes of their own, on one core, in turn with ours: Python sets element by element, and polars'
`is_first_distinct` over all hashes. Ours starts from hashes that are packed as a reader packs them, and, in a second
line, from whole lists. Times are medians of three, in seconds of processor time, which other jobs on the machine do not
add to; the clock's are printed beside them. Memory is what Linux says. RLSERVE_BENCH_PEERS names another virtual
environment that has numpy and polars.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pytest_rlserve.capture import Capture
from pytest_rlserve.chains import CHAINS
from pytest_rlserve.model import SCALARS
from pytest_rlserve.prefixes import available_blocks, prefixes
from pytest_rlserve.prompts import by_worker, prompts

HASHES = int(os.environ.get("RLSERVE_BENCH_HASHES", "40_000_000"))
ROUNDS = 3
PEERS = os.environ.get("RLSERVE_BENCH_PEERS", sys.prefix if find_spec("polars") else None)
BLOCK = 16
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Traffic:
    """Rows one after another, and the row above each whose prompt it goes on from."""

    hashes: Array
    offsets: Array
    back: Array
    shared: Array

    def chains(self, *, packed: bool) -> pa.Table:
        shared = self.shared if packed else np.zeros_like(self.shared)
        starts, ends = self.offsets[:-1] + shared, self.offsets[1:]
        if packed:
            values = np.concatenate([self.hashes[start:end] for start, end in zip(starts, ends, strict=True)])
        else:
            values = self.hashes
        own = pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(ends - starts)), pa.int32()), pa.array(values))
        return pa.table([pa.array(np.where(shared > 0, self.back, 0)), pa.array(shared), own], schema=CHAINS)


def traffic(total: int, *, seed: int = 1, sessions: int = 64) -> Traffic:
    """Sessions of growing prompts, some hundred blocks each: about 80 % of all hashes were sent before."""
    draws = np.random.default_rng(seed)

    def fresh(low: int, high: int) -> Array:
        return draws.integers(0, 2**64, int(draws.integers(low, high)), dtype=np.uint64)

    current: list[Array] = []
    last: list[int] = []
    rows: list[Array] = []
    back, shared = [], []
    count = 0
    while count < total:
        if len(current) < sessions:
            current.append(fresh(100, 400))
            last.append(len(rows))
            place = len(current) - 1
            shared.append(0)
        else:
            place = int(draws.integers(0, sessions))
            shared.append(len(current[place]))
            current[place] = np.concatenate([current[place], fresh(60, 220)])
        back.append(len(rows) - last[place])
        last[place] = len(rows)
        rows.append(current[place])
        count += len(current[place])
        if len(current[place]) > 1200:
            del current[place], last[place]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Traffic(np.concatenate(rows), offsets, np.array(back), np.array(shared))


def ours(chains: pa.Table, sizes: Array, wait: float = 0.0) -> Array:
    """Count as the gate does; rows come one a second, and the first token comes `wait` seconds after each."""
    count = len(sizes)
    columns = {
        "received_at": np.arange(count, dtype=np.float64),
        "ttft_ms": np.full(count, wait * 1e3),
        "trace_block_size": np.full(count, BLOCK),
        "input_length": sizes * BLOCK,
        "decode_worker_id": np.zeros(count, dtype=np.uint64),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in SCALARS]
    capture = Capture(name="c", scalars=pa.table(list(map(pa.array, arrays)), schema=SCALARS), hashes=chains)
    known = capture.derive(prompts)
    return available_blocks(prefixes(capture), known, by_worker(known, lambda worker: []))


def timed(run: Any, *arguments: Any) -> tuple[float, float, Any]:
    """Return seconds of processor time, seconds on the clock, and what was found."""
    used, start = time.process_time(), time.perf_counter()
    found = run(*arguments)
    return time.process_time() - used, time.perf_counter() - start, found


def peak(*, anew: bool = False) -> int:
    """Return the most memory that this process had, in bytes; `anew` forgets it first, and gives what it has now."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


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
    rows = traffic(HASHES)
    np.save(tmp_path / "hashes.npy", rows.hashes)
    np.save(tmp_path / "offsets.npy", rows.offsets)
    sizes = np.diff(rows.offsets)
    chains = {"ours": rows.chains(packed=True), "lists": rows.chains(packed=False)}
    times: dict[str, list[tuple[float, float]]] = {"ours": [], "lists": [], "polars": [], "sets": []}
    extra = {}
    for round_number in range(ROUNDS):
        for name, table in chains.items():
            before = peak(anew=True)
            used, clock, found = timed(ours, table, sizes)
            if not round_number:
                extra[name] = (peak() - before) / len(rows.hashes)
            times[name].append((used, clock))
            check = (int(found.sum()), int((found * np.arange(len(found))).sum()))
        for name in ("polars", "sets"):
            answer = peer(name, tmp_path)
            assert (answer["sum"], answer["check"]) == check
            times[name].append(tuple(answer["times"]))
    median = {name: statistics.median(used for used, _ in some) for name, some in times.items()}
    clocks = {name: statistics.median(clock for _, clock in some) for name, some in times.items()}
    reused = found.sum() / len(rows.hashes)
    print(
        f"\n{len(rows.hashes):,} hashes, {reused:.0%} reused, Python {sys.version.split()[0]}, numpy {np.__version__}"
    )
    for name, seconds in median.items():
        print(f"  {name:7} {seconds:6.2f} s  {seconds / median['ours']:5.1f} x   ({clocks[name]:.2f} s on the clock)")
    print("  bytes a hash above the input: " + ", ".join(f"{name} {more:.1f}" for name, more in extra.items()))
    assert median["sets"] >= 8 * median["ours"]
    assert median["polars"] >= 1.5 * median["ours"]
    assert extra["ours"] <= 8
    assert extra["lists"] <= 24


def worst(count: int) -> None:
    """Print seconds and bytes a hash, above the input, of rows that share nothing."""
    hashes = np.random.default_rng(2).integers(0, 2**64, count, dtype=np.uint64)
    offsets = np.append(np.arange(0, count, 700, dtype=np.int64), count)
    none = np.zeros(len(offsets) - 1, dtype=np.int64)
    chains, sizes = Traffic(hashes, offsets, none, none).chains(packed=False), np.diff(offsets)
    before = peak(anew=True)
    seconds, _, found = timed(ours, chains, sizes)
    assert not found.any()
    print(json.dumps({"seconds": seconds, "bytes": (peak() - before) / count}))


def test_the_worst_case_is_that_nothing_is_reused() -> None:
    code = f"import test_kv; test_kv.worst({HASHES})"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=Path(__file__).parent)
    found = json.loads(out.stdout)
    print(f"\n{HASHES:,} hashes, none reused: {found['seconds']:.2f} s, {found['bytes']:.0f} bytes a hash more")


def test_waiting_for_the_first_token_costs_little() -> None:
    rows = traffic(HASHES // 8)
    chains, sizes = rows.chains(packed=True), np.diff(rows.offsets)
    plain, _, _ = timed(ours, chains, sizes)
    seconds, _, found = timed(ours, chains, sizes, 20.0)
    print(f"\n{HASHES // 8:,} hashes, later rows until the first token as well: {seconds:.2f} s, without {plain:.2f} s")
    assert found.sum() > 0
