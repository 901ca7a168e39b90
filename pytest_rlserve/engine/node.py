"""What a worker does around its task, on whichever machine it is: nothing here needs Ray."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import UsageError
from pytest_rlserve.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Settings = dict[str, str | None]
"""Environment variables of whoever asks; None for one that has to be absent."""


def work(function: Callable[[Any], Any], version: str, settings: Settings, task: Any) -> Any:
    """Do a task as if it were done where it was asked for.

    Args:
        function: does it.
        version: of this package, where the task was made.
        settings: what the environment has to hold meanwhile; the values are not kept.
        task: what is to be done.

    Raises:
        UsageError: it cannot be done here; the message names this machine.
    """
    try:
        if version != __version__:
            raise UsageError(
                f"it has pytest-rlserve {__version__} and was asked by {version}: install that on every node"
            )
        with _environment(settings):
            return function(task)
    except (UsageError, OSError) as error:
        raise UsageError(f"node {socket.gethostname()} of Ray: {error}") from None


@contextmanager
def _environment(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables and put back what was there: the worker may have other tasks to do."""
    before = {name: os.environ.get(name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


def _set(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
