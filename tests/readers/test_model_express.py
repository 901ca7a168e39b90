"""ModelExpress' weight versions: what was published, and nothing said of the workers that serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import parts, served
from hand_made import write
from samples import FOLDER, document, numbers, records, sample, told, written

from pytest_rlserve.checks import run_check
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS, ANSWERS = "model_express_versions.json", "model_express_answers.jsonl"
COLUMNS = ("event", "t", "update", "policy_version", "reason", "bytes")


def test_each_version_is_one_event_at_its_creation_with_its_state() -> None:
    name = "model_express:version"
    assert told(sample(VERSIONS).control_events, *COLUMNS) == [
        (name, 1790000095.0, "wv-7f3a01", "6", "RELEASING", None),
        (name, 1790000100.25, "wv-7f3a02", "7", "READY", None),
        (name, 1790000131.0, "wv-7f3a03", None, "STAGING", None),
    ]


def test_the_last_answer_about_a_version_counts_and_shards_add_up_to_its_bytes() -> None:
    capture = sample(ANSWERS)
    (event,) = told(capture.control_events, "policy_version", "reason", "bytes")
    assert event == ("7", "READY", 644245094 + 644245095)
    assert told(capture.step_metrics, "target", "name", "value") == [
        ("trainer-0", "model_express shard bytes of wv-7f3a02 by NIXL", 644245094.0),
        ("trainer-1", "model_express shard bytes of wv-7f3a02 by NIXL", 644245095.0),
    ]


def test_a_shard_without_its_size_leaves_the_version_without_bytes(tmp_path: Path) -> None:
    changed = records(ANSWERS)
    del changed[1]["shard"]["total_bytes"]
    capture = written(tmp_path / ANSWERS, *changed)
    assert told(capture.control_events, "bytes") == [(None,)]
    assert numbers(capture, "model_express shard bytes of wv-7f3a02 by NIXL") == [None, 644245095.0]


def test_both_spellings_of_protobuf_give_the_same(tmp_path: Path) -> None:
    (first,) = (document(VERSIONS)["versions"][1],)
    plain = {"uid": first["uid"], "state": first["state"], "version_number": 7, "created_at_unix_ms": 1790000100250}
    both = [written(tmp_path / str(n) / "v.json", {"version": one}) for n, one in enumerate((first, plain))]
    camel, snake = (told(capture.control_events, *COLUMNS) for capture in both)
    assert camel == snake


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": 2}, "is no record of model_express.weight_versions"),
        ({"createdAtUnixMs": "soon"}, "is no record of model_express.weight_versions"),
    ],
)
def test_a_version_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    whole = document(VERSIONS)
    whole["versions"][0] |= change
    (finding,) = written(tmp_path / VERSIONS, whole).findings
    assert (finding.severity, words in finding.message) == ("error", True)


def test_an_answer_about_something_else_is_refused_and_an_empty_list_is_not(tmp_path: Path) -> None:
    capture = written(tmp_path / ANSWERS, *records(ANSWERS), {}, {"lease": {"lease_id": "a1"}})
    (finding,) = capture.findings
    assert (finding.line, finding.message) == (6, "is no answer about weight versions")


def test_addresses_are_not_kept() -> None:
    for name, private in ((VERSIONS, "s3://"), (ANSWERS, "10.0.0.")):
        assert private in (FOLDER / name).read_text()
        assert private not in repr([row for _, table in sample(name).tables() for row in table.to_pylist()])


def test_a_published_version_is_no_update_and_no_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    write(folder, **parts(served("r", 1, 1, [1])))
    (folder / VERSIONS).write_text((FOLDER / VERSIONS).read_text())
    capture = open_capture(folder)
    for check in ("updates_are_ordered", "no_stale_kv", "workers_are_current"):
        result = run_check(capture, check)
        assert result.status == "inconclusive"
        assert "ModelExpress says which weight versions were published" in str(result.why)
    assert measure(capture, "restore_time").value is None
    assert not capture.covers("updates")
