"""Two Ray nodes on loopback. These tests need Ray, and run only where RLSERVE_HEAVY is set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from heavy import skip_unless_asked

from pytest_rlserve.engine.cluster import ON_LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_unless_asked(items, __file__, "ray", "ray")


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Any]:
    os.environ |= ON_LOOPBACK
    from ray.cluster_utils import Cluster

    # Ray then listens on this address alone.
    small = {"num_cpus": 1, "object_store_memory": 200_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=small | {"include_dashboard": False})
    cluster.add_node(**small)
    cluster.wait_for_nodes()
    yield cluster
    import ray

    ray.shutdown()
    cluster.shutdown()
