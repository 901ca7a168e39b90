"""Tests against a real Dynamo, which are left alone unless RLSERVE_E2E=1."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

collect_ignore_glob = [] if os.environ.get("RLSERVE_E2E") == "1" else ["test_*.py"]

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


@pytest.fixture(scope="session")
def dynamo_python() -> Iterator[Path]:
    """The Python of the virtual environment that RLSERVE_DYNAMO_VENV names, else of one made for this session.

    Dynamo has an environment of its own because it brings pytest plugins along.
    """
    if folder := os.environ.get("RLSERVE_DYNAMO_VENV"):
        yield Path(folder, "bin", "python")
        return
    with tempfile.TemporaryDirectory(prefix="dynamo-venv-") as folder:
        python = Path(folder, "bin", "python")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([*install, "--requirement", str(_REQUIREMENTS)], check=True)
        subprocess.run([*install, "--no-deps", "ai_dynamo==1.6.1"], check=True)
        yield python
