"""Object stores: what `s3://bucket/prefix` and other URIs name, with as much of pathlib.Path as readers use.

A prefix is listed once, whole or not at all. Objects are streamed in ranges; one that fails for a while is asked for
again. How a store is reached is told in `reach`. file:// names a path.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers.ranges import Ranges, refuse
from pytest_rlserve.readers.reach import GOOGLE, system_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

_URI = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]+)://(?P<key>.*)", re.DOTALL)
_AHEAD = 8 << 20
"""Bytes that one request fetches."""
_NO_PATH = {"", ".", ".."}
_WILD = re.compile(r"[*?\[]")


def is_uri(text: str) -> bool:
    """Tell whether a place is named by a URI."""
    return _URI.fullmatch(text) is not None


def located(place: str | PathLike[str]) -> Path | Remote:
    """Return the path or the object that `place` names.

    Raises:
        UsageError: the store cannot be listed.
    """
    if isinstance(place, Remote):
        return place
    text = os.fspath(place)
    found = _URI.fullmatch(text)
    if found is None:
        return Path(text)
    if found["scheme"].lower() == "file":
        return _on_disk(text, found["key"])
    if _WILD.search(found["key"].partition("/")[0]):  # such a bucket there cannot be
        return Remote(Tree("", PurePosixPath(text), None), PurePosixPath(text))
    return Tree.of(text).root


def _on_disk(uri: str, key: str) -> Path:
    """Return the path that a file:// URI names, whether or not it is quoted as such a URI should be."""
    host, slash, path = key.partition("/")
    if host not in ("", "localhost") or not slash:
        raise UsageError(f"{uri} names the machine {host!r}: write file:///PATH with three slashes, or the path alone")
    literal = Path(f"/{path}")
    return literal if literal.exists() else Path(unquote(f"/{path}"))


def matching(pattern: str) -> list[Place]:
    """Return what a pattern names, in order; nothing if it is no pattern."""
    found = _URI.fullmatch(pattern)
    if found is None or found["scheme"].lower() == "file":
        path = pattern if found is None else str(_on_disk(pattern, found["key"]))
        return [Path(one) for one in sorted(glob.glob(path))]
    parts = PurePosixPath(found["key"]).parts
    plain = next((number for number, part in enumerate(parts) if _WILD.search(part)), 0)
    if not plain:
        return []
    tree = Tree.of(f"{found['scheme']}://{'/'.join(parts[:plain])}")
    keys = {key.parts[: len(parts)] for key in tree.sizes if len(key.parts) >= len(parts)}
    return [Remote(tree, PurePosixPath(*key)) for key in sorted(keys) if all(map(fnmatch.fnmatchcase, key, parts))]


@dataclass(frozen=True, eq=False)
class Tree:
    """A store below one prefix: its objects and their sizes."""

    scheme: str
    prefix: PurePosixPath
    system: Any
    sizes: dict[PurePosixPath, int] = field(default_factory=dict)
    tags: dict[str, Any] = field(default_factory=dict)
    """What objects were when they were first opened, by URI."""
    lead: str = ""
    """What the store's own paths have before the key."""

    @classmethod
    def of(cls, uri: str) -> Tree:
        """List everything below a URI.

        Raises:
            UsageError: it cannot be listed to its end.
        """
        found = _URI.fullmatch(uri)
        assert found is not None
        scheme, key = found["scheme"].lower(), PurePosixPath(found["key"])
        import pyarrow.fs

        try:
            system = system_of(scheme)
            infos = _below(system, str(key), empty=scheme in GOOGLE) or [system.get_file_info(str(key))]
        except (OSError, ValueError, ImportError) as error:
            refuse(f"{scheme}://{key}", "cannot be listed", error)
        files = [one for one in infos if one.type == pyarrow.fs.FileType.File]
        # Some file systems of fsspec put a slash before every path.
        lead = "/" if not key.root and any(one.path.startswith("/") for one in files) else ""
        keys = [one.path.removeprefix(lead) for one in files]
        if odd := next((one for one in keys if _NO_PATH.intersection(one.split("/")[1:])), None):
            # As a path it may be another key's, and one of the two would be dropped.
            refuse(f"{scheme}://{odd}", "is a key that is no path: a part of it is empty, '.' or '..'", None)
        sizes = {PurePosixPath(one): info.size for one, info in zip(keys, files, strict=True)}
        return cls(scheme, key, system, sizes, lead=lead)

    @property
    def root(self) -> Remote:
        """Return the prefix itself."""
        return Remote(self, self.prefix)


def _below(system: Any, key: str, *, empty: bool) -> list[Any]:
    """List what lies below; with `empty`, what is not there has nothing below it."""
    from pyarrow.fs import FileSelector

    try:
        infos: list[Any] = system.get_file_info(FileSelector(key, recursive=True, allow_not_found=empty))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return infos


@dataclass(frozen=True, eq=False)
class Remote:
    """An object, or the prefix of some."""

    tree: Tree
    key: PurePosixPath

    def __str__(self) -> str:
        """Return its URI."""
        return f"{self.tree.scheme}://{self.key}"

    def __fspath__(self) -> str:
        """Return its URI."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        """Compare by URI."""
        return isinstance(other, Remote) and str(self) == str(other)

    def __hash__(self) -> int:
        """Agree with `__eq__`."""
        return hash(str(self))

    def __lt__(self, other: Remote) -> bool:
        """Sort as paths do, part by part."""
        return self.key < other.key

    def __truediv__(self, name: str) -> Remote:
        """Return what lies below."""
        return Remote(self.tree, self.key / name)

    @property
    def name(self) -> str:
        """Return the last part of its key."""
        return self.key.name

    @property
    def parts(self) -> tuple[str, ...]:
        """Return all its parts."""
        return self.key.parts

    @property
    def parent(self) -> Remote:
        """Return the prefix it lies in; that is listed too, if it was not."""
        above = self.key.parent
        if self.key == self.tree.prefix:
            return Tree.of(f"{self.tree.scheme}://{above}").root
        return Remote(self.tree, above)

    def resolve(self) -> Remote:
        """Return itself: keys have no links."""
        return self

    def exists(self) -> bool:
        """Tell whether there is anything."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Tell whether it is an object."""
        return self.key in self.tree.sizes

    def is_dir(self) -> bool:
        """Tell whether it is the prefix of some object."""
        return any(self.key in key.parents for key in self.tree.sizes)

    def rglob(self, pattern: str) -> Iterator[Remote]:
        """Go through all objects below; `pattern` has to be "*"."""
        assert pattern == "*"
        yield from (Remote(self.tree, key) for key in self.tree.sizes if self.key in key.parents)

    def iterdir(self) -> Iterator[Remote]:
        """Go through what lies directly below."""
        depth = len(self.key.parts)
        names = {one.key.parts[depth] for one in self.rglob("*")}
        yield from (self / name for name in sorted(names))

    def relative_to(self, above: Any) -> PurePosixPath:
        """Return the part of its key below `above`."""
        return self.key.relative_to(above.key)

    def stat(self) -> Size:
        """Return its size."""
        if not self.is_file():
            refuse(str(self), "is not there", None)
        return Size(self.tree.sizes[self.key])

    def ranges(self) -> Ranges:
        """Open it for reading here and there."""
        return Ranges(self.tree.system, f"{self.tree.lead}{self.key}", str(self), self.stat().st_size, self.tree.tags)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open it for reading in order."""
        assert mode == "rb"
        return io.BufferedReader(self.ranges(), _AHEAD)

    def read_bytes(self) -> bytes:
        """Read it whole."""
        with self.open() as file:
            return file.read()


@dataclass(frozen=True, slots=True)
class Size:
    """What `stat` tells."""

    st_size: int


Place = Path | Remote
"""A file or folder, wherever it is."""
