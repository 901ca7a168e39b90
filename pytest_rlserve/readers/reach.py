"""How stores are reached, from here and from other machines.

Amazon's own variables give credentials, region and endpoint (AWS_ENDPOINT_URL). gs:// goes through pyarrow as well,
with Google's default credentials or to an emulator (STORAGE_EMULATOR_HOST); every other protocol goes through fsspec,
if that is installed.
"""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from typing import Any

from pytest_rlserve.readers.ranges import TRIES

GOOGLE = ("gs", "gcs")
_PATIENCE = timedelta(seconds=10)
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


def system_of(scheme: str) -> Any:
    """Return the file system of a scheme; nothing is asked of the store yet.

    Raises:
        ImportError: no package here knows the scheme.
    """
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
    if scheme in GOOGLE:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        plain, _, host = emulator.rpartition("://")
        known = {"anonymous": True, "scheme": plain or "http", "endpoint_override": host} if emulator else {}
        return fs.GcsFileSystem(retry_time_limit=_PATIENCE, **known)
    try:
        fsspec = import_module("fsspec")
    except ImportError:
        raise ImportError(f"{scheme}:// needs the package fsspec and the one that knows {scheme}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
