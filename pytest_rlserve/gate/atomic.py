"""Replacing a file whole or not at all, with nobody else doing so at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[tuple[int, bool]]:
    """Keep other updates out of a folder for a while, and tell whether they are: some file systems know no locks."""
    handle, alone = os.open(folder, os.O_RDONLY), False
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
            alone = True
        yield handle, alone
    finally:
        os.close(handle)


def sweep(path: Path) -> None:
    """Remove what writers of this file that were killed have left beside it."""
    for left in path.parent.glob(f".{path.stem}.*.tmp"):
        left.unlink(missing_ok=True)


def replace(path: Path, data: bytes) -> None:
    """Write beside and rename over, so that a reader sees the old file or the new one."""
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, path.stat().st_mode if path.exists() else 0o644)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise
