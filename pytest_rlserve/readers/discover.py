"""From what a user typed to the files of each capture."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Manifest
from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import READERS, Head, Reader, manifest
from pytest_rlserve.readers.jsonl import File
from pytest_rlserve.readers.lines import Lines, beginning
from pytest_rlserve.readers.store import Place, is_uri, located, matching

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

_HEAD = 1 << 16
_ALMOST_URI = re.compile(r"(^|/)(s3|gs|gcs):", re.IGNORECASE)
_ROW_LIKE = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The files of one capture, each with the reader that knows it."""

    name: str
    files: tuple[tuple[File, Reader], ...]
    not_read: tuple[tuple[str, str], ...] = ()
    manifest: Manifest = field(default_factory=Manifest)
    shards: int | None = None


def captures_in(path: str | PathLike[str]) -> list[str]:
    """Return the captures that `path` names: itself, or the captures that a plain folder of captures holds.

    Raises:
        UsageError: there is nothing at `path`, or nothing in it.
    """
    text = str(path)
    here = located(path)
    if not here.exists():
        return _matching(text)
    if here.is_dir() and not any(one.is_file() and _readable(one) for one in here.iterdir()):
        folders = sorted(one for one in here.iterdir() if one.is_dir() and not one.name.startswith("."))
        inner = [one for one in folders if any(map(_readable, _walk(one)))]
        if inner:
            if empty := next((one for one in folders if not _walk(one)), None):
                raise UsageError(f"{empty} is empty, beside captures in {text}: remove it, or name the captures")
            return [str(one) for one in inner]
    if not any(one.stat().st_size for one in _walk(here)):
        raise UsageError(f"{text} is empty: no request_end rows and no other record to judge")
    return [text]


def _matching(text: str) -> list[str]:
    """Return the captures a pattern names: one of all matching files, or one of each matching folder."""
    if not any(sign in text for sign in "*?["):
        if not is_uri(text):
            hint = "; an object store's is written s3://BUCKET/PREFIX" if _ALMOST_URI.search(text) else ""
            raise UsageError(f"there is no file or directory {text}{hint}")
        raise UsageError(f"there is no object or prefix {text}")
    found = matching(text)
    if not found:
        raise UsageError(f"no file matches {text}")
    folders = [one for one in found if one.is_dir()]
    if not folders:
        return [text]
    if len(folders) < len(found):
        raise UsageError(f"{text} matches files and folders: name the files of one capture, or folders of several")
    return [capture for folder in folders for capture in captures_in(folder)]


def _readable(path: Place) -> bool:
    return path.name == manifest.NAME or path.name.endswith(_ROW_LIKE)


def _walk(path: Place) -> list[Place]:
    if path.is_file():
        return [path]
    inside = (one for one in path.rglob("*") if one.is_file())
    return sorted(one for one in inside if not any(part.startswith(".") for part in one.relative_to(path).parts))


def files_of(path: str | PathLike[str]) -> Found:
    """Find the files of one capture and the reader of each.

    Raises:
        UsageError: nothing there can be read, or the manifest is wrong.
    """
    captures_in(path)
    here = located(path)
    if here.is_dir():
        root, paths, name = here, _walk(here), here.resolve().name
    elif here.exists():
        root, paths, name = here.parent, [here], here.name.split(".")[0]
    else:
        paths = [one for one in matching(str(path)) if one.is_file()]
        root = paths[0].parent
        name = root.resolve().name
    described = Manifest()
    document: dict[str, Any] = {}
    if (root / manifest.NAME).is_file():
        described, document = manifest.read(root / manifest.NAME)
    # The manifest's list speaks for its whole folder; who names a file or a pattern gets just that.
    known, unknown = _match(root, paths, document.get("files") if here.is_dir() else None)
    if not known:
        seen = ", ".join(f"{label} ({why})" for label, why in unknown[:3])
        what = f": {seen}" if seen else ""
        raise UsageError(
            f"{path} holds no file that this version can read{what}\n  known formats: {', '.join(READERS)}"
        )
    return Found(
        name=name,
        files=tuple(known),
        not_read=tuple(unknown),
        manifest=described,
        shards=document.get("shards"),
    )


def _match(
    root: Any, paths: Sequence[Place], listed: list[dict[str, Any]] | None
) -> tuple[list[tuple[File, Reader]], list[tuple[str, str]]]:
    """Pair files with readers, by the manifest's list if it has one, else by what their heads show."""
    if listed is not None:
        pairs = [(File(root / entry["path"], entry["path"]), READERS[entry["format"]]) for entry in listed]
        for file, _ in pairs:
            if Path(file.label).is_absolute() or ".." in Path(file.label).parts:
                raise UsageError(f"{root / manifest.NAME} lists {file.label}, which is outside the capture")
            if not file.path.is_file():
                raise UsageError(f"{root / manifest.NAME} lists {file.label}, which is not there")
        return pairs, []
    known, unknown = [], []
    for one in paths:
        if one.name == manifest.NAME:
            continue
        file = File(one, one.relative_to(root).as_posix())
        found = _reader_of(file)
        if isinstance(found, Reader):
            known.append((file, found))
        else:
            unknown.append((file.label, found))
    return known, unknown


def _reader_of(file: File) -> Reader | str:
    """Return the reader that knows the file, or the reason why none does."""
    head = _head(file.path)
    for candidate in READERS.values():
        if candidate.recognises(head):
            return candidate
    if head.row is None and file.path.name.endswith(_ROW_LIKE):
        # An empty, torn or LFS-pointer file named like rows would vanish here; the trace reader reports it.
        return READERS["dynamo.request.trace.v1"]
    return "unknown format"


def _first_lines(path: Place, start: bytes) -> Iterator[bytes]:
    if path.name.endswith(_ROW_LIKE):
        # The start nearly always holds a row; the whole file has one if any does.
        yield from beginning(start)
        yield from (line for _, line in Lines(path, counted=False))
    elif start.startswith(b"{"):
        # Logs hold rows too, and a document may stand on one line; of such files the start must suffice.
        yield start.partition(b"\n")[0]


def _head(path: Place) -> Head:
    with path.open("rb") as file:
        start = file.read(_HEAD)
    row: dict[str, Any] | None = None
    for line in _first_lines(path, start):
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):
            continue
        row = first if isinstance(first, dict) else None
        break
    return Head(name=path.name, start=start, row=row)
