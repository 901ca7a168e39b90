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

    def __init__(self, system: Any, key: str, uri: str, size: int) -> None:
        """Read the object `key` of a file system, which messages call `uri`."""
        self._system, self._key, self._uri = system, key, uri
        self._place, self._size = 0, size

    @cached_property
    def _file(self) -> Any:
        return self._system.open_input_file(self._key)

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
                return data
            break
        return refuse(self._uri, f"ends at byte {self._place:,} of {self._size:,}: was it replaced?", None)


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
