"""Work in processes of this machine: what is asked of them ends with who asked."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.engine import local

if TYPE_CHECKING:
    import subprocess


def test_an_interrupt_ends_the_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    served = local._served
    main = threading.main_thread().ident
    assert main is not None

    def noted(function: str, tasks: list[Any], own: list[Any]) -> Any:
        try:
            yield from served(function, tasks, own)
        finally:
            started.extend(own)

    monkeypatch.setattr(local, "_served", noted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
    try:
        threading.Timer(1.0, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            local.run("time:sleep", [60], [1], processes=1)
    finally:
        signal.signal(signal.SIGINT, before)
    (process,) = started
    assert process.returncode == -signal.SIGKILL
