"""`rlserve.json`: strict like every other file, and every fault is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hand_made import opened, request_end, write

from pytest_rlserve.errors import UsageError
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path


def test_what_the_manifest_says_is_kept(tmp_path: Path) -> None:
    written = {
        "series": "s",
        "kind": "replay",
        "job": "j",
        "pair": "p",
        "commit": "c",
        "captured_at": 1.5,
        "gpus": 4,
        "identity": {"model": "m", "block_size": 64},
        "factors": {"router": "kv"},
    }
    found = opened(tmp_path / "capture", rows=[request_end("r1")], manifest={"shards": 1, **written}).manifest
    assert {name: getattr(found, name) for name in written} == written


def test_without_a_manifest_nothing_is_known(tmp_path: Path) -> None:
    found = opened(tmp_path / "capture", rows=[request_end("r1")]).manifest
    assert (found.series, found.kind, found.job, found.gpus) == (None, "rollout", None, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"seires": "s"}', "unknown key 'seires'"),
        ('{"gpus": 0}', "gpus must be at least 1"),
        ('{"gpus": 4, "gpus": 8}', "gpus given twice"),
        ('{"captured_at": NaN}', "captured_at is not a finite number"),
        ('{"kind": "train"}', "kind must be one of rollout, replay, is 'train'"),
        ('{"series": "s"', "is cut off"),
        ("[]", "not an object"),
        ("", "is cut off"),
        ('{"a":' * 50_000, "cannot be decoded"),
    ],
)
def test_a_wrong_manifest_is_wrong_use_and_the_message_says_why(tmp_path: Path, text: str, reason: str) -> None:
    folder = write(tmp_path / "capture", rows=[request_end("r1")])
    (folder / "rlserve.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        open_capture(folder)
    assert reason in str(error.value)
    assert "rlserve.json" in str(error.value)


def test_the_list_of_files_replaces_the_search(tmp_path: Path) -> None:
    files = [{"path": "request-trace.jsonl", "format": "dynamo.request.trace.v1"}]
    folder = write(tmp_path / "capture", rows=[request_end("r1")], manifest={"files": files})
    (folder / "other.jsonl").write_text("not looked at\n", encoding="utf-8")
    found = open_capture(folder)
    assert [source.path for source in found.sources] == ["request-trace.jsonl"]
    assert found.findings == ()


@pytest.mark.parametrize(
    ("path", "format", "reason"),
    [
        ("gone.jsonl", "dynamo.request.trace.v1", "lists gone.jsonl, which is not there"),
        ("request-trace.jsonl", "dynamo.request.trace", "no reader is named 'dynamo.request.trace'; did you mean"),
        ("../outside.jsonl", "dynamo.request.trace.v1", "outside the capture"),
        ("/etc/hostname", "dynamo.request.trace.v1", "outside the capture"),
    ],
)
def test_a_list_that_cannot_be_followed_is_wrong_use(tmp_path: Path, path: str, format: str, reason: str) -> None:
    (tmp_path / "outside.jsonl").write_text("{}\n", encoding="utf-8")
    files = [{"path": path, "format": format}]
    folder = write(tmp_path / "capture", rows=[request_end("r1")], manifest={"files": files})
    with pytest.raises(UsageError, match=reason):
        open_capture(folder)


def test_who_names_one_file_gets_that_one_whatever_the_manifest_lists(tmp_path: Path) -> None:
    files = [{"path": name, "format": "dynamo.request.trace.v1"} for name in ("request-trace.jsonl", "more.jsonl")]
    folder = write(tmp_path / "capture", rows=[request_end("r1")], manifest={"files": files, "series": "s"})
    (folder / "more.jsonl").write_text("", encoding="utf-8")
    found = open_capture(folder / "request-trace.jsonl")
    assert [source.path for source in found.sources] == ["request-trace.jsonl"]
    assert found.manifest.series == "s"
