"""A capture read from a real Google Cloud Storage emulator on loopback is the capture that was uploaded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from heavy import wait_for

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture
from pytest_rlserve.readers.discover import captures_in

from .conftest import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "baseline_kv"
needs_emulator = pytest.mark.skipif(
    importlib.util.find_spec("gcp_storage_emulator") is None, reason="gcp-storage-emulator is not installed"
)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An emulator with the example in its one bucket."""
    home = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--in-memory", "--default-bucket=runs"], **quiet)  # type: ignore[call-overload]
    try:
        wait_for(f"{home}/storage/v1/b/runs")
        for file in EXAMPLE.iterdir():
            place = f"{home}/upload/storage/v1/b/runs/o?uploadType=media&name=a/baseline_kv/{file.name}"
            urllib.request.urlopen(urllib.request.Request(place, file.read_bytes(), method="POST"), timeout=5).close()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", home)
        yield "gs://runs"
    finally:
        process.terminate()
        process.wait()


@needs_emulator
def test_a_prefix_reads_as_the_folder_it_was(bucket: str) -> None:
    found, here = open_capture(f"{bucket}/a/baseline_kv"), open_capture(EXAMPLE)
    assert found.requests.equals(here.requests)
    assert (found.digest, found.sources, found.manifest) == (here.digest, here.sources, here.manifest)


@needs_emulator
def test_what_is_not_there_is_told_in_a_line(bucket: str) -> None:
    with pytest.raises(UsageError, match="there is no object or prefix gs://runs/b"):
        captures_in(f"{bucket}/b")


def test_missing_credentials_are_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("pytest_rlserve.readers.reach._PATIENCE", timedelta(seconds=1))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_ROOT", "127.0.0.1:9")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(UsageError, match="there are no credentials: set GOOGLE_APPLICATION_CREDENTIALS"):
        captures_in("gs://runs/a")
