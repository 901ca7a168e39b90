"""Work on Ray: the same functions as in processes of this machine, on as many machines as there are.

Ray starts a task again whose worker or node was lost. Large tables stay in Ray's object store, where they were
made, until somebody asks for them.
"""

from __future__ import annotations

import os
import socket
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PATIENCE = 5.0
"""Seconds in which a cluster has to answer."""
_ATTEMPTS = 3
"""How often a task is started again."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""With these in the environment Ray takes the loopback for this machine's address, and tells nobody that it runs."""


def connect(address: str | None) -> Any:
    """Return the module `ray`, connected to a cluster.

    Args:
        address: of the cluster, as Ray takes it: "host:port", "auto", "ray://host:port". Without one it is that of
            RAY_ADDRESS, and without that a new one, on this machine alone.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    if address is None:
        for name, value in ON_LOOPBACK.items():
            os.environ.setdefault(name, value)
    try:
        ray = import_module("ray")
    except ImportError:
        raise UsageError("the engine 'ray' needs Ray: pip install 'pytest-rlserve[ray]'") from None
    if not ray.is_initialized():
        _knock(address)
        alone = {"include_dashboard": False} if address is None else {}
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **alone)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise UsageError(f"there is no Ray cluster at {address or 'this machine'}: {reason}") from None
    return ray


def _knock(address: str | None) -> None:
    """Find out in seconds that nobody is there; Ray itself takes minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"there is no Ray cluster at {address}: {reason}") from None


def run(
    function: Callable[[Any], tuple[Any, Any]], tasks: Sequence[Any], address: str | None
) -> Iterator[tuple[Any, Callable[[], Any]]]:
    """Do every task on Ray, in the order of the tasks.

    Args:
        function: does one task and returns two things, a small one and a large one.
        tasks: what is to be done.
        address: the cluster; see `connect`.

    Yields:
        The small thing of each task, and what fetches the large one.

    Raises:
        UsageError: there is no cluster, or it could not do a task.
    """
    ray = connect(address)
    remote = ray.remote(function).options(num_returns=2, max_retries=_ATTEMPTS)
    answers = [remote.remote(task) for task in tasks]

    def fetched(ref: Any) -> Any:
        try:
            return ray.get(ref)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise UsageError(f"Ray could not do its part: {type(error).__name__}: {reason}") from None

    for small, large in answers:
        yield fetched(small), partial(fetched, large)
