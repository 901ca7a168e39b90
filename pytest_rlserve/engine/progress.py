"""How far reading has come, on a terminal: rows, bytes, rate and time left, once it takes longer than two seconds."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from threading import Lock
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE = 2.0
"""Seconds of silence."""
_PAUSE = 0.2
"""Seconds between two lines."""


class Meter:
    """Counts what was read, and says so on a terminal."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Start at nothing read; lines go to `stream`."""
        self.size = self.rows = self.total = 0
        self._stream, self._clock, self._lock = stream, clock, Lock()
        self._began = clock()
        self._next = self._began + _PATIENCE
        self._width = 0

    def advance(self, size: int, rows: int) -> None:
        """Count bytes of files and rows; several threads may."""
        with self._lock:
            self.size += size
            self.rows += rows
            now = self._clock()
            if now >= self._next:
                self._next = now + _PAUSE
                self._show(self.text(now))

    def text(self, now: float) -> str:
        """Return the line to show."""
        rate = self.size / max(now - self._began, 1e-9)
        share = f" of {_bytes(self.total)}" if self.total else ""
        left = f", {max(self.total - self.size, 0) / rate:,.0f} s left" if self.total and rate else ""
        return f"reading: {self.rows:,} rows, {_bytes(self.size)}{share}, {_bytes(rate)}/s{left}"

    def close(self) -> None:
        """Remove the line."""
        if self._width:
            self._show("")
            self._stream.write("\r")
            self._stream.flush()

    def _show(self, text: str) -> None:
        self._stream.write(f"\r{text:<{self._width}}")
        self._stream.flush()
        self._width = len(text)


_count: Callable[[int, int], None] | None = None
"""Whom to tell; readers deep down have nobody to ask."""
_meter: Meter | None = None


@contextmanager
def shown(stream: IO[str], *, quiet: bool = False) -> Iterator[None]:
    """Show what is read meanwhile, if `stream` is a terminal that somebody watches."""
    global _meter  # noqa: PLW0603
    if quiet or os.environ.get("CI") or not stream.isatty():
        yield
        return
    _meter = Meter(stream)
    report_to(_meter.advance)
    try:
        yield
    finally:
        report_to(None)
        _meter.close()
        _meter = None


def report_to(count: Callable[[int, int], None] | None) -> None:
    """Let `count` have every number of bytes and rows that this process reads from now on."""
    global _count  # noqa: PLW0603
    _count = count


def expect(size: int) -> None:
    """Say how many bytes are going to be read."""
    if _meter is not None:
        _meter.total += size


def advance(size: int = 0, rows: int = 0) -> None:
    """Count what was read."""
    if _count is not None:
        _count(size, rows)


def _bytes(size: float) -> str:
    unit, scale = next((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)) if size >= s or s == 1)
    return f"{size / scale:.1f} {unit}" if scale > 1 else f"{size:.0f} B"
