"""Write the trainer's own records, `attempts.jsonl` and `control.jsonl`, while it runs.

    with AttemptRecorder("capture/attempts.jsonl", run="nightly-17") as attempts:
        attempts.emit("dispatched", attempt_id="g0-s1-a0", group_id="g0", sample_id="g0-s1", step=0)
        attempts.emit("completed", attempt_id="g0-s1-a0", turns=4)

The run comes before its records: a line is encoded where it happens and written by a thread of its own, so
that a slow or full disk neither delays nor stops training. What could not be written is warned about once and
counted in `lost`. A line that was written survives the death of the process, though not of the machine.

This file needs the standard library only and imports nothing of its package: a trainer may load it by path.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
import weakref
from multiprocessing.util import Finalize
from pathlib import Path
from queue import SimpleQueue
from threading import RLock, Thread
from typing import TYPE_CHECKING, ClassVar, Self
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

_BATCH = 1000  # lines joined into one write; bounds the copy made of a long backlog
_encode = json.JSONEncoder(allow_nan=False, default=str, separators=(",", ":")).encode
_recorders: weakref.WeakSet[_Recorder] = weakref.WeakSet()


class _Recorder:
    """Appends one kind of event to one file; any thread may emit.

    A file belongs to one process: a forked child writes `<stem>.<pid>.jsonl` beside its parent's, and a copy that is
    pickled into another process, as for a Ray actor, `<stem>.<some id>.jsonl`. Reading a folder merges them.
    """

    schema: ClassVar[str]
    events: ClassVar[tuple[str, ...]]
    required: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: str | os.PathLike[str], *, run: str | None = None) -> None:
        self.path = self._parent_path = Path(path).absolute()  # a trainer may change its directory
        self.run = run
        self._begin()
        _recorders.add(self)

    def _begin(self) -> None:
        self.lost = 0  # lines that could not be written
        self._warned = False
        self._lock = RLock()  # reentrant: a signal handler may emit too
        self._writer: _Writer | None = None
        self._last_writer: _Writer | None = None

    def emit(self, event: str, *, t: float | None = None, **fields: object) -> None:
        """Record `event` at `t`, in seconds since the Unix epoch, by default now.

        A field that is None is left out; a value that JSON does not know is written as its `str`. Raises
        ValueError for an unknown event, a missing required field or a number that is not finite; trouble with
        the disk is never raised.
        """
        if event not in self.events:
            raise ValueError(f"unknown event {event!r}; known are {', '.join(self.events)}")
        record: dict[str, object] = {"schema": self.schema, "event": event, "t": time.time() if t is None else t}
        if self.run is not None:
            record["run"] = self.run
        for name, value in fields.items():  # the caller waits for this: a loop is quicker than the merge of dicts
            if value is not None:
                record[name] = value
        for name in self.required:
            if name not in record:
                raise ValueError(f"event {event!r} needs {name}")
        try:
            line = f"{_encode(record)}\n".encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"cannot record {event!r}: {_not_finite(record) or error}") from None
        with self._lock:
            try:
                (self._writer or self._start()).lines.put(line)
            except RuntimeError as error:  # no thread to be had, as when the interpreter is leaving
                self._writer = None
                self._lose(1, error)

    def close(self) -> None:
        """Return once every line emitted so far is written or counted as lost. A later `emit` starts anew."""
        with self._lock:
            writer, self._writer = self._writer, None
            self._last_writer = writer or self._last_writer
        if writer is not None:
            writer.lines.put(None)
            writer.join()
            writer.at_exit.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> _Writer:
        self._writer = writer = _Writer(self.path, self._lose, after=self._last_writer)
        # Unlike atexit, these finalizers run in the children of multiprocessing too, which leave by os._exit.
        writer.at_exit = Finalize(None, self.close, exitpriority=0)
        writer.start()
        return writer

    def _lose(self, count: int, error: Exception) -> None:
        self.lost += count
        if self._warned:
            return
        self._warned = True
        try:
            warnings.warn(f"{self.path}: records are being lost: {error}", RuntimeWarning, stacklevel=2)
        except RuntimeWarning as warning:  # warnings are errors here, but the run goes on
            print(warning, file=sys.stderr)

    def __reduce__(self) -> tuple[object, ...]:
        """Let another process have it, such as a Ray actor: the copy writes a file of its own beside this one's."""
        return _copied, (type(self), self._parent_path, self.run)

    def _after_fork(self) -> None:
        """Leave queue, lock and file to the parent, whose writer thread does not live in this process."""
        parent = self._parent_path
        self.path = parent.with_name(f"{parent.stem}.{os.getpid()}{parent.suffix}")
        self._begin()


class AttemptRecorder(_Recorder):
    """Writes `rlserve.attempt.v1`: how each attempt, and with `level="request"` each HTTP request, fared."""

    schema = "rlserve.attempt.v1"
    events = ("dispatched", "completed", "canceled", "failed", "retried", "accepted", "rejected")
    required = ("attempt_id",)


class ControlRecorder(_Recorder):
    """Writes `rlserve.control.v1`: weight updates worker by worker, trainer steps and checkpoints."""

    schema = "rlserve.control.v1"
    events = (
        *("gate_closed", "pause", "transfer", "transfer_started", "transfer_finished", "cache_reset"),
        *("version", "verified", "ready", "resume", "gate_opened", "worker_lost"),
        *("step_started", "step_finished", "checkpoint_published", "checkpoint_restored"),
    )


class _Writer(Thread):
    """Appends lines to a file until None comes; tells `lose` how many could not be written, and why."""

    at_exit: Finalize[None]

    def __init__(self, path: Path, lose: Callable[[int, Exception], None], after: _Writer | None) -> None:
        super().__init__(name=f"{path.name} writer", daemon=True)
        self.lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._path, self._lose, self._after = path, lose, after
        self._file: FileIO | None = None

    def run(self) -> None:
        if self._after is not None:  # the file has one writer at a time
            self._after.join()
            self._after = None
        batch: list[bytes] = []
        for line in iter(self.lines.get, None):
            batch.append(line)
            if len(batch) == _BATCH or self.lines.empty():
                self._append(batch)
                batch = []
        self._append(batch)
        self._close()

    def _append(self, batch: list[bytes]) -> None:
        left = b"".join(batch)
        try:
            while left:
                file = self._file or self._open()
                left = left[file.write(left) :]  # a nearly full disk takes a part
        except OSError as error:
            self._lose(left.count(b"\n"), error)
            self._close()

    def _open(self) -> FileIO:
        """Open the file and end a torn last line, so that it stays one bad line and spoils no good one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = file = self._path.open("a+b", buffering=0)
        size = file.seek(0, os.SEEK_END)
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            file.write(b"\n")
        return file

    def _close(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:  # a network file system may report a failed write only now
            self._lose(0, error)


def _copied(kind: type[_Recorder], path: Path, run: str | None) -> _Recorder:
    return kind(path.with_name(f"{path.stem}.{uuid4().hex[:12]}{path.suffix}"), run=run)


def _not_finite(record: dict[str, object]) -> str:
    names = [name for name, value in record.items() if isinstance(value, float) and not math.isfinite(value)]
    return f"{', '.join(names)}: not a finite number" if names else ""


def _after_fork() -> None:
    for recorder in _recorders:
        recorder._after_fork()


os.register_at_fork(after_in_child=_after_fork)
