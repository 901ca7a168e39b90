"""Local processes and Ray, side by side: ``python benchmarks/compare_engines.py TRACE``.

One and two processes, and Ray with one and with two nodes of one processor each, all on loopback. The clock starts
when Ray's workers are warm, and stops when the scalar columns are here; hashes stay where they were read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from pytest_rlserve import open_capture
from pytest_rlserve.engine import local
from pytest_rlserve.engine.cluster import ON_LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = {}
    for processes in (1, 2):
        local.processors = lambda count=processes: count
        found[f"local, {processes} of 2 processors"] = seconds(arguments.trace, "local", arguments.rounds)
    for nodes in (1, 2):
        with cluster(nodes) as address:
            found[f"Ray, {nodes} of 2 nodes"] = seconds(arguments.trace, f"ray:{address}", arguments.rounds)
    alone = found["local, 1 of 2 processors"][0]
    rows = [[name, f"{took:.2f}", f"{alone / took:.2f}", count] for name, (took, count) in found.items()]
    print(tabulate(rows, ["engine", "s", "times one process", "rows"], disable_numparse=True))


def seconds(trace: Path, engine: str, rounds: int) -> tuple[float, int]:
    """Return the median of several readings, and how many rows they gave."""
    spent = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        rows = open_capture(trace, engine=engine).scalars.num_rows
        spent.append(time.perf_counter() - start)
    return statistics.median(spent[1:]), rows


@contextmanager
def cluster(nodes: int) -> Iterator[str]:
    """Start Ray nodes of one processor each."""
    os.environ |= ON_LOOPBACK
    import ray
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 1_000_000_000, "node_ip_address": "127.0.0.1"}
    running = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    for _ in range(1, nodes):
        running.add_node(**small)
    running.wait_for_nodes()
    try:
        yield running.address
    finally:
        ray.shutdown()
        running.shutdown()


if __name__ == "__main__":
    main()
