"""Work on Ray: the same functions as in processes of this machine, on as many machines as there are.

Ray starts a task again whose worker or node was lost. Large tables stay in Ray's object store, where they were
made, until somebody asks for them.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_rlserve.engine import node, watch
from pytest_rlserve.errors import UsageError
from pytest_rlserve.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ATTEMPTS = 3
"""How often a task is started again."""
_LAST_WORD = (
    "rlserve: this process was ended before it could report, as Ray ends one whose cluster is gone, or this machine's "
    "node of it: start the cluster and run again, or read here, without --rl-engine"
)
_PERHAPS = "; is it Ray's port, and is a token (RAY_AUTH_TOKEN) needed?"
_MISSING = re.compile(r"ip=(?P<node>[^)]+).*No module named '(?P<module>\w+)", re.DOTALL)
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
            with warnings.catch_warnings(action="ignore"):  # Ray's are no errors of a run that takes warnings for such
                ray.init(address=address or "local", log_to_driver=False, logging_level="CRITICAL", **alone)
        except (ray.exceptions.RayError, OSError, ValueError, RuntimeError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
            hint = _PERHAPS if isinstance(error, ConnectionError) else ""
            raise UsageError(f"cannot connect to Ray at {address or 'this machine'}: {reason}{hint}") from None
        watch.last_word(_LAST_WORD)
    return ray


def _knock(address: str | None) -> None:
    """Find out in seconds that nobody is there; Ray itself takes minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal() and (reason := watch.reachable(host, int(port))):
        raise UsageError(f"there is no Ray cluster at {address}: {reason}")


@dataclass(frozen=True, slots=True)
class Kept:
    """Something in Ray's object store, on whatever machine."""

    ref: Any

    def fetch(self) -> Any:
        """Bring it here."""
        return _fetched(self.ref)

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of it and more arguments gives, in a task of its own."""
        remote = import_module("ray").remote(function).options(max_retries=_ATTEMPTS)
        return _fetched(remote.remote(self.ref, *arguments))


def run(
    function: Callable[[Any], tuple[Any, Any]],
    tasks: Sequence[Any],
    address: str | None,
    settings: node.Settings | None = None,
) -> Iterator[tuple[Any, Kept]]:
    """Begin every task on Ray.

    Args:
        function: does one task and returns two things, a small one and a large one.
        tasks: what is to be done.
        address: the cluster; see `connect`.
        settings: environment variables that the workers need. They travel as an argument, which Ray neither shows
            nor stores, so they may be credentials.

    Returns:
        The small thing of each task, and the large one where it is, in the order of the tasks.

    Raises:
        UsageError: there is no cluster, or (from the iterator) it could not do a task.
    """
    ray = connect(address)
    remote = ray.remote(node.work).options(num_returns=2, max_retries=_ATTEMPTS, name=f"rlserve {function.__name__}")
    answers = [remote.remote(function, __version__, settings or {}, task) for task in tasks]
    return ((_fetched(small), Kept(large)) for small, large in answers)


def shuffled(
    deal: Callable[..., Iterator[Any]], parts: Sequence[tuple[Any, ...]], judge: Callable[..., Any], shares: int
) -> Iterator[Any]:
    """Let every part be dealt out where it is, and each share of all parts be judged in one task.

    Args:
        deal: yields the shares of a part; takes what stands for a part in `parts`, and the number of shares.
        parts: arguments of `deal`, in which `Kept` stands for what it keeps.
        judge: takes one share of each part, in the order of the parts.
        shares: how many.

    Yields:
        What `judge` says of each share.

    Raises:
        UsageError: the cluster could not do a task.
    """
    ray = import_module("ray")
    dealing = ray.remote(deal).options(num_returns=shares, max_retries=_ATTEMPTS)
    judging = ray.remote(judge).options(max_retries=_ATTEMPTS)
    dealt = [dealing.remote(*(one.ref if isinstance(one, Kept) else one for one in part), shares) for part in parts]
    if shares == 1:
        dealt = [[one] for one in dealt]
    for answer in [judging.remote(*some) for some in zip(*dealt, strict=True)]:
        yield _fetched(answer)


def _fetched(ref: Any) -> Any:
    """Return what a task gave, as soon as it is there."""
    ray = import_module("ray")
    try:
        watch.wait(ray, ref)
        return ray.get(ref)
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise UsageError(_trouble(ray, error)) from None


def _trouble(ray: Any, error: Exception) -> str:
    """Return in one line why Ray could not do a task."""
    if isinstance(error, ray.exceptions.RayTaskError):
        if isinstance(error.cause, UsageError):
            return str(error.cause)
        if missing := _MISSING.search(str(error)):
            lacks = f"node {missing['node']} of Ray lacks {missing['module']}"
            return f"{lacks}: install pytest-rlserve {__version__} on every node"
    reason = str(error).strip().splitlines()[-1][:200]
    return f"Ray could not do its part: {type(error).__name__}: {reason}"
