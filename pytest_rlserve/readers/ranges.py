"""Objects of a store as streams, and in one line what is wrong with a store."""

from __future__ import annotations

import io
import os
import re
import time
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from pytest_rlserve.errors import UsageError

TRIES = 4
_PAUSE = 0.2
"""Seconds before the second try; each further one waits twice as long."""


class Ranges(io.RawIOBase):
    """An object as a stream of ranges, each asked for again where the network fails."""

    def __init__(self, system: Any, key: str, uri: str, size: int, tags: dict[str, Any] | None = None) -> None:
        """Read the object `key` of a file system, which messages call `uri`.

        It has to have the `size` of its listing, and whenever it is opened the tag that `tags` holds from the first
        time.
        """
        self._system, self._key, self._uri = system, key, uri
        self._place, self._size = 0, size
        self._tags = {} if tags is None else tags
        self._fetches = 0

    @cached_property
    def _file(self) -> Any:
        file = self._system.open_input_file(self._key)
        if (size := file.size()) != self._size:
            self._replaced(f"has {size:,} bytes and had {self._size:,} when it was listed")
        tag = _tag(file)
        if self._tags.setdefault(self._uri, tag) != tag:
            self._replaced("is not the object any more that it was")
        return file

    def _replaced(self, how: str) -> NoReturn:
        refuse(self._uri, f"{how}: was it replaced? Run again once nobody writes it", None)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is fetched for it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read on."""
        wanted = min(len(buffer), self._size - self._place)
        if wanted <= 0:
            return 0
        data = self._fetched(wanted)
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)

    def _fetched(self, wanted: int) -> bytes:
        for attempt in range(TRIES):
            try:
                data: bytes = self._file.read_at(wanted, self._place)
            except OSError as error:
                self.__dict__.pop("_file", None)
                if attempt == TRIES - 1 or _hopeless(error):
                    refuse(self._uri, f"could not be read beyond byte {self._place:,}", error)
                time.sleep(_PAUSE * 2**attempt)
                continue
            if data:
                self._fetches += 1
                if self._fetches > 1 and self._place + len(data) == self._size:
                    self._same_to_the_end()
                return data
            break
        return self._replaced(f"ends at byte {self._place:,} of {self._size:,}")

    def _same_to_the_end(self) -> None:
        """Look once more what object this is: a range says nothing of the one before it."""
        self.__dict__.pop("_file", None)
        try:
            _ = self._file
        except OSError as error:
            refuse(self._uri, "could not be read to its end", error)


def _tag(file: Any) -> Any:
    """Return what tells an object from another under the same name: its ETag, where there is one."""
    try:
        return (file.metadata() or {}).get("ETag")
    except (NotImplementedError, OSError):
        return None


_REASONS = {
    "ACCESS_DENIED": "access is denied: are the credentials right, and may they list and read it?",
    "INVALID_ACCESS_KEY_ID": "the access key is unknown: are the credentials right?",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key is wrong",
    "NO_SUCH_BUCKET": "there is no such bucket",
    "SLOW_DOWN": "the store asks for fewer requests, over and over",
    "SERVICE_UNAVAILABLE": "the store is not available",
    "NETWORK_CONNECTION": "the store cannot be reached: is AWS_ENDPOINT_URL right, and the network up?",
}
_LOCKED = tuple(_REASONS)[:3]
_CODE = re.compile(r"AWS Error ([A-Z_]+)")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


def _hopeless(error: OSError) -> bool:
    """Tell whether trying again is of no use."""
    code = _CODE.search(str(error))
    return isinstance(error, FileNotFoundError) or (code is not None and code[1] in _LOCKED)


def refuse(uri: str, what: str, error: Exception | None) -> NoReturn:
    """Say in one line what is wrong with a store."""
    why = "" if error is None else f": {_reason(uri, error)}"
    raise UsageError(f"{uri} {what}{why}") from None


def _reason(uri: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the object is not there"
    found = _CODE.search(str(error))
    code = found[1] if found else ""
    if code in (*_LOCKED, "INTERNAL_FAILURE") and not _keys():
        return "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "OAuth2 access token" in str(error):
        return "there are no credentials: set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud"
    return _REASONS.get(code) or str(error).splitlines()[0][:200]


def _keys() -> bool:
    """Tell whether anything here says who asks."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    return any(os.environ.get(name) for name in _CREDENTIALS) or Path(file).is_file()
