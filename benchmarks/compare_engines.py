"""Local processes, Ray and an object store, side by side: ``python benchmarks/compare_engines.py CAPTURE``.

One and two processes, Ray with one and with two nodes of one processor each, and the same files from an S3 server; all
on this machine's loopback. Rounds are interleaved, and every measurement is a fresh process. The clock starts when
everything is imported and Ray's workers are warm.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from pytest_rlserve import open_capture
from pytest_rlserve.checks import default_checks, run_check
from pytest_rlserve.engine import local
from pytest_rlserve.engine.cluster import ON_LOOPBACK
from pytest_rlserve.gate.workload import workload_of
from pytest_rlserve.metrics.measuring import all_keys, measure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

NOTE = """
read: until the scalar columns are here; hashes stay where they were read. gate: every check, every metric and the
workload for the baseline, after that. MB: the most memory of the process where pytest would run, over what it had
before, what it maps included; workers have their own. The S3 server is moto, one Python process of a test kit, on the
same processors: its rows show that a capture streams from a store within the same memory, not how fast a store is."""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("capture", type=Path, help="a folder, as generate.py makes it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-store", action="store_true", help="leave out the rows of the S3 server")
    parser.add_argument("--once", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(once(arguments.capture.name, *arguments.once)))
        return
    with ExitStack() as running:
        cases = started(arguments.capture, running, store=not arguments.without_store)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
        for _ in range(arguments.rounds):
            for name, case in cases.items():
                found[name].append(measured(arguments.capture, *case))
    if len({one["digest"] for some in found.values() for one in some}) > 1:
        raise SystemExit("the engines have read different captures")
    show(found)


def started(capture: Path, running: ExitStack, *, store: bool) -> dict[str, tuple[str, str, str]]:
    """Start what is needed and return the cases: where the capture is, the engine, how many processes."""
    one, two = (f"ray:{running.enter_context(cluster(nodes))}" for nodes in (1, 2))
    here = str(capture.resolve())
    cases = {
        "local, 1 process": (here, "local", "1"),
        "local, 2 processes": (here, "local", "2"),
        "Ray, 1 node": (here, one, "1"),
        "Ray, 2 nodes": (here, two, "1"),
    }
    if store:
        uri = running.enter_context(in_store(capture))
        cases |= {"S3, 1 process": (uri, "local", "1"), "S3, Ray, 2 nodes": (uri, two, "1")}
    return cases


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print the medians."""
    middle = {
        name: {key: statistics.median(one[key] for one in some) for key in some[0] if key != "digest"}
        for name, some in found.items()
    }
    alone = next(iter(middle.values()))
    rows = [
        [
            name,
            f"{one['read']:.2f}",
            f"{alone['read'] / one['read']:.2f}",
            f"{one['read_memory']:.0f}",
            f"{one['read'] + one['gate']:.2f}",
            f"{(alone['read'] + alone['gate']) / (one['read'] + one['gate']):.2f}",
            f"{one['gate_memory']:.0f}",
        ]
        for name, one in middle.items()
    ]
    names = ["engine", "read, s", "times one process", "MB", "read and gate, s", "times one process", "MB"]
    print(f"{alone['rows']:,.0f} rows, medians of {len(next(iter(found.values())))} interleaved rounds\n")
    print(tabulate(rows, names, disable_numparse=True))
    print(NOTE)


def measured(capture: Path, place: str, engine: str, processes: str) -> dict[str, Any]:
    """Read and judge once in a fresh process."""
    small = min(capture.glob("request-trace*"), key=lambda file: file.stat().st_size)
    command = [sys.executable, __file__, small.name, "--once", place, engine, processes]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(f"{place}, {engine}: {done.stderr.strip()}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def once(small: str, place: str, engine: str, processes: str) -> dict[str, Any]:
    """Read and judge a capture in this process, warmed up by one small file of it."""
    local.processors = lambda: int(processes)
    judged(open_capture(f"{place}/{small}", engine=engine))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the most memory so far
    before = memory("VmRSS")
    start = time.perf_counter()
    capture = open_capture(place, engine=engine)
    read = time.perf_counter()
    found = {"read": read - start, "read_memory": memory("VmHWM") - before, "rows": capture.scalars.num_rows}
    judged(capture)
    ended = time.perf_counter()
    return found | {"gate": ended - read, "gate_memory": memory("VmHWM") - before, "digest": capture.digest}


def judged(capture: Capture) -> None:
    """Do all that a gate may ask of a capture."""
    for check in default_checks():
        run_check(capture, check)
    for key in all_keys():
        measure(capture, key)
    workload_of([capture])


def memory(name: str) -> float:
    """Return a size of this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024 / 1e6


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """Start Ray nodes of one processor each."""
    os.environ |= ON_LOOPBACK
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 1_000_000_000, "node_ip_address": "127.0.0.1"}
    running = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    try:
        for _ in range(1, nodes):
            running.add_node(**small)
        running.wait_for_nodes()
        yield running.address
    finally:
        running.shutdown()


@contextmanager
def in_store(capture: Path) -> Iterator[str]:
    """Start the S3 server of the tests, with the capture in it."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from objectstore.conftest import KEYS, served

    for server in served():
        os.environ |= KEYS | {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield server.upload(capture, capture.name)


if __name__ == "__main__":
    main()
