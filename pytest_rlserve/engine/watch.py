"""Waiting for Ray without waiting for ever, and a last word where Ray ends the whole process.

Ray ends a process whose cluster or node has gone, at once or after a minute, with a code of its own. Nothing in that
process can say so any more; a second one that outlives it does.
"""

from __future__ import annotations

import atexit
import socket
import subprocess
import sys
import time
from typing import Any

from pytest_rlserve.errors import UsageError

_GLANCE = 1.0
"""Seconds between two looks at the cluster."""
_GONE = 30.0
"""Seconds after which a head that does not answer is taken for gone; Ray's own patience is 60."""
_STUCK = 1800.0
"""Seconds after which a task that has not ended is given up."""
_CHILD = "import sys; sys.stdin.read() or print(sys.argv[1], file=sys.stderr)"


def reachable(host: str, port: int, patience: float = 5.0) -> str | None:
    """Return None if somebody listens there, else why not."""
    try:
        socket.create_connection((host.strip("[]"), port), timeout=patience).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def wait(ray: Any, ref: Any) -> None:
    """Wait until a task has ended, well or not.

    Raises:
        UsageError: the cluster is gone, or the task does not end.
    """
    began = seen = time.monotonic()
    while not ray.wait([ref], timeout=_GLANCE)[0]:
        now = time.monotonic()
        head, _, port = _head(ray).rpartition(":")
        if not head or reachable(head, int(port)) is None:
            seen = now
        if now - seen > _GONE:
            raise UsageError(f"Ray's head at {head}:{port} is gone: it has not answered for {now - seen:.0f} s")
        if now - began > _STUCK:
            free, of = (found.get("CPU", 0) for found in (ray.available_resources(), ray.cluster_resources()))
            raise UsageError(
                f"Ray has not done its part in {_STUCK / 60:.0f} minutes: {free:g} of {of:g} CPUs are free"
            )


def _head(ray: Any) -> str:
    """Return the address of the head, or nothing for a client, whom Ray tells by itself."""
    found: str = "" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address
    return found


def last_word(text: str) -> None:
    """Have `text` printed if this process is ended from outside, before its own end."""
    command = [sys.executable, "-I", "-S", "-c", _CHILD, text]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # out of reach of Ctrl-C

    def end() -> None:
        child.communicate(b"well")

    atexit.register(end)
