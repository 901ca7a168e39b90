"""Object stores: what `s3://bucket/prefix` and other URIs name, with as much of pathlib.Path as readers use.

A prefix is listed once, whole or not at all. Objects are streamed in ranges; one that fails for a while is asked for
again. Amazon's own variables give credentials, region and endpoint (AWS_ENDPOINT_URL). gs:// goes through pyarrow
as well, with Google's default credentials or to an emulator (STORAGE_EMULATOR_HOST); every other protocol goes through
fsspec, if that is installed.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from pytest_rlserve.readers.ranges import TRIES, Ranges, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

_URI = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<key>.*)")
_AHEAD = 8 << 20
"""Bytes that one request fetches."""
_PATIENCE = timedelta(seconds=10)
_GOOGLE = ("gs", "gcs")
_WILD = re.compile(r"[*?\[]")


_WHERE = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST")
_WHO = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_HOW = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


def settings() -> dict[str, str | None]:
    """Return what another machine needs in its environment to reach the same objects; None where nothing may be.

    A store of another name would be another store, so that counts as it is here, set or not. Credentials go
    together. Where there are none here in the environment, the other machine uses its own.
    """
    own = _WHO if os.environ.get(_WHO[0]) else ()
    return {name: os.environ.get(name) for name in (*_WHERE, *own, *(name for name in _HOW if name in os.environ))}


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
    if is_uri(text) and _WILD.search(text):
        return Remote(Tree("", PurePosixPath(text), None), PurePosixPath(text))  # a pattern, which is no object
    return Tree.of(text).root if is_uri(text) else Path(text)


def matching(pattern: str) -> list[Place]:
    """Return what a pattern names, in order; nothing if it is no pattern."""
    found = _URI.fullmatch(pattern)
    if found is None:
        return [Path(one) for one in sorted(glob.glob(pattern))]
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
        scheme, key = found["scheme"], PurePosixPath(found["key"])
        import pyarrow.fs

        try:
            system = _system(scheme)
            infos = _below(system, str(key), empty=scheme in _GOOGLE) or [system.get_file_info(str(key))]
        except (OSError, ValueError, ImportError) as error:
            refuse(f"{scheme}://{key}", "cannot be listed", error)
        files = [one for one in infos if one.type == pyarrow.fs.FileType.File]
        # Some file systems of fsspec put a slash before every path.
        lead = "/" if not key.root and any(one.path.startswith("/") for one in files) else ""
        sizes = {PurePosixPath(one.path.removeprefix(lead)): one.size for one in files}
        return cls(scheme, key, system, sizes, lead)

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


def _system(scheme: str) -> Any:
    from pyarrow import fs

    if scheme == "s3":
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return fs.S3FileSystem(
            endpoint_override=endpoint,
            scheme="http" if (endpoint or "").startswith("http://") else "https",
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
            connect_timeout=5,
            request_timeout=30,
        )
    if scheme in _GOOGLE:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        plain, _, host = emulator.rpartition("://")
        known = {"anonymous": True, "scheme": plain or "http", "endpoint_override": host} if emulator else {}
        return fs.GcsFileSystem(retry_time_limit=_PATIENCE, **known)
    try:
        fsspec = import_module("fsspec")
    except ImportError:
        raise ImportError(f"{scheme}:// needs the package fsspec and the one that knows {scheme}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))


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
        return Size(self.tree.sizes[self.key])

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open it for reading in order."""
        assert mode == "rb"
        return io.BufferedReader(
            Ranges(self.tree.system, f"{self.tree.lead}{self.key}", str(self), self.stat().st_size), _AHEAD
        )

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
