"""Whatever a key holds, its object is read as the file it was, or one line says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import jsonl, request_end

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import assemble, open_capture
from pytest_rlserve.readers.discover import captures_in

from .conftest import BUCKET, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Server

    Reach = Callable[[int], None]

EXAMPLE = ROOT / "examples" / "baseline_kv"
ROW = jsonl([request_end("r1")])


@pytest.mark.parametrize("name", ["a b", "Läufe", "100%", "a%20b", "a+b", "what?", "run [1]", "a#b", "a&b=c", "r*"])
@pytest.mark.parametrize("processes", [1, 2])
def test_signs_in_keys_are_taken_as_they_are(
    server: Server, reached: Reach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, processes: int
) -> None:
    reached(server.port)
    monkeypatch.setattr(assemble, "_LARGE", 0)
    monkeypatch.setattr("pytest_rlserve.engine.local.processors", lambda: processes)
    folder = tmp_path / name / "run"
    folder.mkdir(parents=True)
    (folder / f"request-trace {name}.jsonl").write_bytes(ROW)
    uri = server.upload(tmp_path, "signs")
    found, here = open_capture(f"{uri}/{name}/run"), open_capture(folder)
    assert found.requests.equals(here.requests)
    assert (found.name, found.sources) == (here.name, here.sources)
    assert open_capture(f"{uri}/{name}/run/request-trace {name}.jsonl").requests.num_rows == 1


@pytest.mark.parametrize("key", ["odd/a//request-trace.jsonl", "odd/./request-trace.jsonl", "odd/../x.jsonl"])
def test_a_key_that_is_no_path_is_refused_and_hides_no_other(server: Server, reached: Reach, key: str) -> None:
    reached(server.port)
    client = server.client()
    for one in (key, "odd/a/request-trace.jsonl", "odd/request-trace.jsonl"):
        client.put_object(Bucket=BUCKET, Key=one, Body=ROW)
    try:
        with pytest.raises(UsageError, match="is a key that is no path: a part of it is empty") as error:
            open_capture(f"s3://{BUCKET}/odd")
        assert key in str(error.value)
    finally:
        client.delete_object(Bucket=BUCKET, Key=key)


def test_more_keys_than_one_page_of_a_listing_are_all_read(server: Server, reached: Reach) -> None:
    reached(server.port)
    client = server.client()
    for number in range(1005):
        client.put_object(
            Bucket=BUCKET, Key=f"many/{number:06d}/request-trace.jsonl", Body=jsonl([request_end(f"r{number}")])
        )
    assert len(captures_in(f"s3://{BUCKET}/many")) == 1005
    assert len(captures_in(f"s3://{BUCKET}/many/0010*")) == 5


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("s3:runs/a", r"there is no file or directory s3:runs/a; an object store's is written s3://BUCKET/PREFIX"),
        ("/srv/s3:/runs", "an object store's is written s3://BUCKET/PREFIX"),
        ("s3://", "there is no object or prefix s3://"),
        ("s3:///runs", "cannot be listed"),
        ("s3://b*/runs", "no file matches s3://b"),
        ("file://runs/a", "names the machine 'runs': write file:///PATH with three slashes"),
        ("file:///not/there", "there is no object or prefix file:///not/there"),
        ("file:///not/there/*", "no file matches"),
    ],
)
def test_what_names_no_place_is_told_in_a_line(server: Server, reached: Reach, typed: str, reason: str) -> None:
    reached(server.port)
    with pytest.raises(UsageError, match=reason) as error:
        captures_in(typed)
    assert "\n" not in str(error.value)


def test_a_scheme_may_be_written_in_capitals(server: Server, reached: Reach) -> None:
    reached(server.port)
    uri = server.upload(EXAMPLE, "capitals/run")
    assert open_capture(uri.replace("s3", "S3")).requests.equals(open_capture(EXAMPLE).requests)


def test_a_file_uri_names_a_path_quoted_or_not(tmp_path: Path) -> None:
    folder = tmp_path / "my run 100%"
    folder.mkdir()
    (folder / "request-trace.jsonl").write_bytes(ROW)
    here = open_capture(folder)
    for uri in (folder.as_uri(), f"file://{folder}", f"FILE://localhost{folder}", f"file://{tmp_path}/my*"):
        assert open_capture(captures_in(uri)[0]).digest == here.digest
