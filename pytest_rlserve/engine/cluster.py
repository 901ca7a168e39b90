"""Work on Ray: the same functions as in processes of this machine, on as many machines as there are.

Ray starts a task again whose worker or node was lost. Large tables stay in Ray's object store, where they were
made, until somebody asks for them.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ATTEMPTS = 3
"""How often a task is started again."""


def connect(address: str | None) -> Any:
    """Return the module `ray`, connected to the cluster at `address`, to that of RAY_ADDRESS, or to a new one here.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster.
    """
    try:
        ray = import_module("ray")
    except ImportError:
        raise UsageError("the engine 'ray' needs Ray: pip install 'pytest-rlserve[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, include_dashboard=None if address else False, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = address or "RAY_ADDRESS"
            reason = str(error).strip().splitlines()[0][:200]
            raise UsageError(f"there is no Ray cluster at {where}: {reason}") from None
    return ray


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
