"""Two Ray nodes on loopback. These tests need Ray, and run only where RLSERVE_HEAVY is set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from heavy import skip_unless_asked, two_ray_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_unless_asked(items, __file__, "ray", "ray")


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    with two_ray_nodes() as cluster:
        yield cluster


@pytest.fixture
def mortal_nodes() -> Iterator[Any]:
    """Two nodes for one test, which may end them."""
    with two_ray_nodes() as cluster:
        yield cluster
