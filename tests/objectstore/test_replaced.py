"""An object that is replaced, cut or taken away while a capture is read is told, and never read as half of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import jsonl, request_end

from pytest_rlserve.errors import EvidenceError, UsageError
from pytest_rlserve.readers import open_capture, store

from .conftest import BUCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Proxy, Server

    Reach = Callable[[int], None]

KEY = "replaced/run/request-trace.jsonl"
URI = f"s3://{BUCKET}/replaced/run"


def rows(seed: int) -> bytes:
    """Return a trace; those of all seeds have one size."""
    return jsonl([request_end(f"{seed}{number:06d}") for number in range(300)])


def reads(path: str) -> bool:
    return "request-trace" in path and "list-type" not in path


@pytest.mark.parametrize(
    ("body", "reason"), [(rows(2), "not the object any more"), (rows(2) + rows(3), "bytes and had")]
)
@pytest.mark.parametrize("moment", range(2, 9))
def test_an_object_that_is_replaced_is_told_or_read_as_one(
    server: Server, proxy: Proxy, reached: Reach, monkeypatch: pytest.MonkeyPatch, body: bytes, reason: str, moment: int
) -> None:
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(1))
    monkeypatch.setattr(store, "_AHEAD", 1 << 14)  # several ranges
    reached(proxy.port)
    count = 0

    def fault(path: str, number: int) -> None:
        nonlocal count
        count += 1
        if count == moment:
            client.put_object(Bucket=BUCKET, Key=KEY, Body=body)

    proxy.fault = fault
    try:
        names = set(open_capture(URI).scalars["request_id"].to_pylist())
    except UsageError as error:
        assert reason in str(error) or "bytes and had" in str(error)
        assert "\n" not in str(error)
    else:
        ours = [{f"{seed}{number:06d}" for number in range(300)} for seed in (1, 2, 3)]
        assert names in (ours[0], ours[1], ours[1] | ours[2])


def test_an_object_that_is_replaced_between_two_ranges_is_told(
    server: Server, reached: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(1))
    monkeypatch.setattr(store, "_AHEAD", 1 << 14)
    reached(server.port)
    with (store.Tree.of(URI).root / "request-trace.jsonl").open() as file:
        file.read(1000)
        client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(2))
        with pytest.raises(UsageError, match="is not the object any more that it was: was it replaced"):
            file.read()


def test_an_object_that_is_taken_away_between_two_ranges_is_told(
    server: Server, reached: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(1))
    monkeypatch.setattr(store, "_AHEAD", 1 << 14)
    reached(server.port)
    with (store.Tree.of(URI).root / "request-trace.jsonl").open() as file:
        file.read(1000)
        client.delete_object(Bucket=BUCKET, Key=KEY)
        with pytest.raises(UsageError, match="could not be read"):
            file.read()


def test_hashes_that_are_left_in_a_store_are_read_from_the_same_objects(server: Server, reached: Reach) -> None:
    client = server.client()
    client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(1))
    reached(server.port)
    same, other = open_capture(URI, hashes=False), open_capture(URI, hashes=False)
    assert same.requests.equals(open_capture(URI).requests)
    client.put_object(Bucket=BUCKET, Key=KEY, Body=rows(2))
    with pytest.raises(EvidenceError, match="not the object any more"):
        _ = other.chains
