"""Tests that need a server or a cluster run where RLSERVE_HEAVY asks for them, as the project's CI does."""

from __future__ import annotations

import importlib.util
import os
import time
import urllib.request
from pathlib import Path

import pytest


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
