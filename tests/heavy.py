"""Tests that need a server or a cluster run where RLSERVE_HEAVY asks for them, as the project's CI does."""

from __future__ import annotations

import importlib.util
import os
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def skip_unless_asked(items: list[pytest.Item], conftest: str, module: str, extra: str) -> None:
    """Skip the tests beside a conftest where they are not asked for, or the module they need is not there."""
    asked, there = os.environ.get("RLSERVE_HEAVY"), importlib.util.find_spec(module)
    if asked and there:
        return
    why = f"{module} is not installed: pip install 'pytest-rlserve[{extra}]'" if asked else "RLSERVE_HEAVY is not set"
    for item in items:
        if item.path.is_relative_to(Path(conftest).parent):
            item.add_marker(pytest.mark.skip(reason=why))


def wait_for(address: str) -> None:
    """Wait up to half a minute until a server on this machine answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"no answer from {address} in 30 seconds", pytrace=False)


@contextmanager
def two_ray_nodes() -> Iterator[Any]:
    """Start two Ray nodes of one processor each, on loopback; connections of this process to others end."""
    from pytest_rlserve.engine.cluster import ON_LOOPBACK

    os.environ |= ON_LOOPBACK
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    # Ray then listens on this address alone.
    small = {"num_cpus": 1, "object_store_memory": 200_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    try:
        cluster.add_node(**small)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
