"""Opening a capture: which files it has, which reader knows each, and one Capture from all of them.

A reader is one file in this folder: ``@reader("format.name")`` above a function that recognises a file by its
head, and ``@recognises.read`` above the one that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_rlserve.errors import UsageError
from pytest_rlserve.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from os import PathLike

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.readers.jsonl import Content, File


@dataclass(frozen=True, slots=True)
class Head:
    """What a reader may look at to recognise a file: its name, its first bytes, its first row if it has one."""

    name: str
    start: bytes
    row: dict[str, Any] | None

    def is_empty(self, stem: str) -> bool:
        """Tell whether a file of rows goes by that name and has no whole row: its process was killed at its start."""
        return self.row is None and self.name.startswith(f"{stem}.") and ".jsonl" in self.name


@dataclass(slots=True)
class Reader:
    """One format: how to recognise a file of it and how to read it."""

    name: str
    recognises: Callable[[Head], bool]
    covers: tuple[str, ...]
    joins: str = ""
    """What its framework would have to send, so that Dynamo's rows can be joined with its records."""
    told: Callable[[Mapping[str, Any]], Any] | None = None
    """Raises `UsageError` for settings that it cannot use; None if it takes none."""
    reads: Callable[[File], Content] | None = None

    def read(self, func: Callable[[File], Content]) -> Callable[[File], Content]:
        """Decorate the function that reads one file of this format."""
        self.reads = func
        return func


READERS: Registry[Reader] = Registry("reader", "pytest_rlserve.readers")


def reader(
    name: str, *, covers: Iterable[str], joins: str = "", told: Callable[[Mapping[str, Any]], Any] | None = None
) -> Callable[[Callable[[Head], bool]], Reader]:
    """Register a reader for the format `name`; the decorated function recognises a file of it.

    Args:
        name: the format, as reports and manifests call it.
        covers: what a file of this format can tell, of `capture.AXES`; anything else counts as unknown.
        joins: what its framework would have to send with its requests, in a sentence, so that Dynamo's rows can be
            joined with its records; said where they cannot.
        told: what looks through the settings that users give it, the policy's `[readers.NAME]`, and raises
            `UsageError` for what it cannot use; without it the reader takes no settings.
    """

    def register(func: Callable[[Head], bool]) -> Reader:
        new = Reader(name, func, tuple(covers), joins, told)
        READERS.add(name, new, home=func.__module__)
        return new

    return register


def open_capture(
    path: str | PathLike[str],
    *,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    engine: str = "local",
    hashes: bool = True,
) -> Capture:
    """Read a capture from a directory, a file, a glob, or the URI of one in an object store.

    What cannot be trusted becomes findings of the capture; only a path with nothing to read raises.

    Args:
        path: what to read.
        settings: what a reader has to be told, by its name, e.g. ``{"nemo_rl": {"events": {"attempt_sealed":
            "completed"}}}``; each reader's docstring says what it takes.
        engine: where traces are read: "local", "ray", "ray:" and the address of a cluster, or "ray://host:port".
        hashes: False leaves the block hashes of prompts, most of a trace, in the files until something asks for them.
            That reads the files again, and raises `EvidenceError` if they have changed or hold hashes that are none.

    Raises:
        UsageError: there is no such path, it holds no file that any reader knows, its manifest is wrong, or a
            reader is told what it cannot use.
    """
    from pytest_rlserve.readers.assemble import assemble
    from pytest_rlserve.readers.discover import files_of

    require_settings(settings or {})
    return assemble(files_of(path), settings or {}, engine, hashes=hashes)


def require_settings(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `UsageError` for settings of no reader, or that their reader cannot use."""
    for name, told in settings.items():
        able = READERS[name].told
        if able is None:
            those = ", ".join(one.name for one in READERS.values() if one.told)
            raise UsageError(f"reader {name} takes no settings; {those} does")
        able(told)
