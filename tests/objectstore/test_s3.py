"""A capture read from a real S3 server is the capture that was uploaded, or one line says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import assemble, open_capture, store
from pytest_rlserve.readers.discover import captures_in

from .conftest import BUCKET, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Proxy, Server

    Reach = Callable[[int], None]

EXAMPLE = ROOT / "examples" / "baseline_kv"


def shards(path: str) -> bool:
    return "request-trace" in path and "list-type" not in path


def test_a_prefix_reads_as_the_folder_it_was(server: Server, reached: Reach) -> None:
    reached(server.port)
    found, here = open_capture(server.upload(EXAMPLE, "a/baseline_kv")), open_capture(EXAMPLE)
    assert found.name == here.name
    assert found.sources == here.sources
    assert (found.digest, found.manifest, found.findings) == (here.digest, here.manifest, here.findings)
    for (name, ours), (_, theirs) in zip(found.tables(), here.tables(), strict=True):
        assert ours.equals(theirs), name


def test_the_report_is_the_same_byte_for_byte(server: Server, reached: Reach, tmp_path: Path) -> None:
    reached(server.port)
    uri = server.upload(EXAMPLE, "b/baseline_kv")
    reports = []
    for number, trace in enumerate((str(EXAMPLE), uri)):
        report = tmp_path / f"{number}.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rl-trace={trace}"]
        where = [f"--rl-report=json:{report}", "--rl-policy=pyproject.toml", "examples"]
        subprocess.run([*command, *where], cwd=ROOT, env=os.environ, capture_output=True, check=False)
        reports.append(report.read_bytes())
    assert reports[0] == reports[1]


def test_several_processes_stream_from_the_store(
    server: Server, reached: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached(server.port)
    monkeypatch.setattr(assemble, "_LARGE", 0)
    monkeypatch.setattr("pytest_rlserve.engine.local.processors", lambda: 2)
    found, here = open_capture(server.upload(EXAMPLE, "c/baseline_kv")), open_capture(EXAMPLE)
    assert found.requests.equals(here.requests)
    assert found.sources == here.sources


def test_a_prefix_of_captures_and_a_pattern_name_several(server: Server, reached: Reach) -> None:
    reached(server.port)
    one, two = (server.upload(EXAMPLE, f"d/run-{number}") for number in (1, 2))
    server.upload(EXAMPLE, "d/other")
    assert captures_in(f"s3://{BUCKET}/d/run-*") == [one, two]
    assert captures_in(f"s3://{BUCKET}/d") == [f"s3://{BUCKET}/d/other", one, two]


def test_one_object_is_a_capture_too(server: Server, reached: Reach) -> None:
    reached(server.port)
    uri = server.upload(EXAMPLE, "e/baseline_kv")
    name = sorted(one.name for one in EXAMPLE.glob("request-trace*"))[0]
    assert open_capture(f"{uri}/{name}").requests.equals(open_capture(EXAMPLE / name).requests)


@pytest.mark.parametrize("fault", ["500", "502", "503", "reset"])
def test_a_store_that_fails_for_a_moment_is_asked_again(
    server: Server, proxy: Proxy, reached: Reach, fault: str
) -> None:
    uri = server.upload(EXAMPLE, "f/baseline_kv")
    reached(proxy.port)
    proxy.fault = lambda path, number: fault if number == 1 else None
    assert open_capture(uri).requests.equals(open_capture(EXAMPLE).requests)
    assert len(proxy.seen) > len(set(proxy.seen))


def test_a_transfer_that_breaks_is_taken_up_again(server: Server, proxy: Proxy, reached: Reach) -> None:
    uri = server.upload(EXAMPLE, "g/baseline_kv")
    reached(proxy.port)
    broken: list[str] = []

    def fault(path: str, number: int) -> str | None:
        # More often than the client underneath tries by itself; the first time is the look at a file's head.
        if shards(path) and "000000" in path and 3 <= number <= 8:
            broken.append(path)
            return "cut"
        return None

    proxy.fault = fault
    assert open_capture(uri).requests.equals(open_capture(EXAMPLE).requests)
    assert len(broken) > 4


@pytest.mark.parametrize("fault", ["500", "503", "reset", "cut"])
def test_a_store_that_keeps_failing_is_told_in_a_line(server: Server, proxy: Proxy, reached: Reach, fault: str) -> None:
    uri = server.upload(EXAMPLE, "g/baseline_kv")
    reached(proxy.port)
    proxy.fault = lambda path, number: fault if shards(path) and "000003" in path else None
    with pytest.raises(UsageError, match=f"^{uri}/request-trace.000003.jsonl.gz could not be read") as error:
        open_capture(uri)
    assert "\n" not in str(error.value)


def test_a_listing_that_breaks_off_is_never_taken_for_the_whole(server: Server, proxy: Proxy, reached: Reach) -> None:
    client = server.client()
    for number in range(1100):
        client.put_object(Bucket=BUCKET, Key=f"h/run/request-trace.{number:06d}.jsonl", Body=b"{}\n")
    reached(proxy.port)
    proxy.fault = lambda path, number: "503" if "continuation-token" in path else None
    with pytest.raises(UsageError, match=f"s3://{BUCKET}/h/run cannot be listed") as error:
        captures_in(f"s3://{BUCKET}/h/run")
    assert "\n" not in str(error.value)
    assert any("continuation-token" in path for path in proxy.seen)


def test_an_object_that_vanishes_is_told(server: Server, reached: Reach) -> None:
    reached(server.port)
    uri = server.upload(EXAMPLE, "i/baseline_kv")
    tree = store.Tree.of(uri)
    gone = next(key for key in tree.sizes if "request-trace" in key.name)
    server.client().delete_object(Bucket=BUCKET, Key="/".join(gone.parts[1:]))
    with pytest.raises(UsageError, match="the object is not there"):
        store.Remote(tree, gone).read_bytes()


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (f"s3://{BUCKET}/nothing/here", "there is no object or prefix"),
        ("s3://another-bucket/x", "there is no such bucket"),
        (f"s3://{BUCKET}/nothing-*", "no file matches"),
        ("unheard-of://x/y", "unheard-of"),
    ],
)
def test_what_is_not_there_is_told_in_a_line(server: Server, reached: Reach, uri: str, reason: str) -> None:
    reached(server.port)
    with pytest.raises(UsageError, match=reason) as error:
        captures_in(uri)
    assert "\n" not in str(error.value)


def test_wrong_and_missing_credentials_are_told_apart(
    locked: Server, reached: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached(locked.port)
    with pytest.raises(UsageError, match="access key is unknown"):
        captures_in(f"s3://{BUCKET}/x")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UsageError, match="there are no credentials: set AWS_ACCESS_KEY_ID"):
        captures_in(f"s3://{BUCKET}/x")


def test_a_store_that_cannot_be_reached_is_told(reached: Reach) -> None:
    reached(9)
    with pytest.raises(UsageError, match="the store cannot be reached: is AWS_ENDPOINT_URL right"):
        captures_in(f"s3://{BUCKET}/x")


def test_a_run_of_pytest_says_it_without_a_traceback(server: Server, reached: Reach, tmp_path: Path) -> None:
    reached(server.port)
    command = [sys.executable, "-m", "pytest", f"--rl-trace=s3://{BUCKET}/nothing/here"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 4
    assert f"rlserve: there is no object or prefix s3://{BUCKET}/nothing/here" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
