"""Block hashes that are left in the files: not looked at without need, and judged as strictly when they are."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hand_made import jsonl, request_end, write
from hypothesis import HealthCheck, given, settings
from test_dynamo_quick import compact, replay, traces, turns
from test_pieces import Here

from pytest_rlserve.asserts import assert_latency, assert_limit
from pytest_rlserve.checks import CHECKS, run_check
from pytest_rlserve.cli import main
from pytest_rlserve.engine import local
from pytest_rlserve.errors import EvidenceError
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import assemble, dynamo_prompts, open_capture
from pytest_rlserve.readers import jsonl as reading
from pytest_rlserve.scattered import Unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

ROLLOUT = Path(__file__).parents[1] / "data" / "captures" / "baseline_kv_1"


def untouched(patch: pytest.MonkeyPatch) -> None:
    """Fail where a hash is decoded or kept."""
    for home, name in ((dynamo_prompts.Prompts, "decode"), (reading.Chains, "add"), (reading.Chains, "extend")):
        patch.setattr(home, name, lambda *_: pytest.fail("hashes were looked at"))


def tables(capture: Capture) -> Iterator[Any]:
    yield capture.scalars
    yield from (getattr(capture, name) for name in ("payloads", "tools", "attempt_events", "control_events", "scrapes"))
    yield capture.findings, capture.sources, capture.not_read, capture.digest


@pytest.mark.parametrize("processes", [1, 2])
def test_the_rest_of_a_capture_is_read_without_looking_at_a_hash(
    processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_capture(ROLLOUT)
    monkeypatch.setattr(assemble, "_LARGE", 0)
    monkeypatch.setattr(local, "processors", lambda: processes)
    monkeypatch.setattr(local, "Crew", Here)
    with pytest.MonkeyPatch.context() as patch:
        untouched(patch)
        left = open_capture(ROLLOUT, hashes=False)
        assert list(tables(left)) == list(tables(whole))
    assert left.requests.equals(whole.requests)
    assert left.replace(name="again").requests.equals(whole.requests)


@pytest.mark.parametrize("name", list(METRICS))
def test_a_metric_looks_at_hashes_if_it_says_so(name: str) -> None:
    whole, asked = open_capture(ROLLOUT), []
    left = whole.replace(hashes=Unread(lambda: (asked.append(name), whole.chains)[1]))
    assert measure(left, name) == measure(whole, name)
    assert bool(asked) == METRICS[name].hashes


def spoilt(folder: Path) -> Capture:
    """Write a trace of which the eleventh row has a hash that is none, and read it without."""
    rows = [*turns(), request_end("bad", **replay(1, 2**64)), request_end("last")]
    (folder / "request-trace.jsonl").write_bytes(b"".join(compact(row) + b"\n" for row in rows))
    return open_capture(folder, hashes=False)


def test_a_hash_that_is_none_is_named_when_it_is_looked_at(tmp_path: Path) -> None:
    found = spoilt(tmp_path)
    assert (found.scalars.num_rows, found.findings) == (12, ())
    why = r"request-trace.jsonl:11: request.replay.input_sequence_hashes.1 must be at most 18446744073709551615"
    with pytest.raises(EvidenceError, match=why):
        _ = found.chains
    result = run_check(found, "rows_fit_schema")
    assert result.status == "error"
    assert "request-trace.jsonl:11" in result.message()


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "rows_fit_schema"])
def test_no_check_passes_on_rows_whose_hashes_are_none(name: str) -> None:
    def none() -> None:
        asked.append(name)
        raise EvidenceError("trace:1: hash 0 is none")

    asked = list[str]()
    left = open_capture(ROLLOUT).replace(hashes=Unread(none))
    for _ in range(2):
        with pytest.raises(EvidenceError, match="hash 0 is none"):
            run_check(left, name)
    assert asked == [name]  # for nothing else will come of it


def test_files_that_changed_or_went_are_not_taken_for_what_was_read(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", rows=turns())
    changed, gone = open_capture(folder, hashes=False), open_capture(folder, hashes=False)
    (folder / "request-trace.jsonl").write_bytes(jsonl(turns(3)))
    with pytest.raises(EvidenceError, match="run changed after it was read: read it again"):
        _ = changed.chains
    shutil.rmtree(folder)
    with pytest.raises(EvidenceError, match=r"run cannot be read again for its hashes: .* No such file"):
        _ = gone.chains


def test_files_that_changed_places_are_not_taken_for_what_was_read(tmp_path: Path) -> None:
    shards = [tmp_path / f"request-trace.{number:06d}.jsonl" for number in range(2)]
    for number, shard in enumerate(shards):
        shard.write_bytes(jsonl([request_end(f"r{number}", **replay(number))]))
    found = open_capture(tmp_path, hashes=False)
    one, other = (shard.read_bytes() for shard in shards)
    shards[0].write_bytes(other)
    shards[1].write_bytes(one)
    with pytest.raises(EvidenceError, match="changed after it was read: read it again"):
        _ = found.chains


def test_no_limit_is_kept_by_rows_whose_hashes_are_none(tmp_path: Path) -> None:
    found = spoilt(tmp_path)
    with pytest.raises(EvidenceError, match=r"request-trace.jsonl:11"):
        assert_limit(found, "request_latency.p50", "600s")
    with pytest.raises(EvidenceError, match=r"request-trace.jsonl:11"):
        assert_latency(found, "request_latency", p50="600s")


def test_a_row_that_lost_its_middle_is_none_whether_hashes_are_read_or_not(tmp_path: Path) -> None:
    one, other = (compact(row) for row in turns()[:2])
    cut = one.index(b"input_sequence_hashes") + 30
    (tmp_path / "request-trace.jsonl").write_bytes(one[:cut] + other + b"\n" + other + b"\n")
    left, whole = open_capture(tmp_path, hashes=False), open_capture(tmp_path)
    assert left.scalars.num_rows == whole.scalars.num_rows == 1
    assert left.findings == whole.findings


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(traces())
def test_whatever_is_in_a_file_no_hash_is_believed_without_a_look(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "request-trace.jsonl"
    path.write_bytes(compact(turns()[0]) + b"\n" + content)
    left, whole = open_capture(path, hashes=False), open_capture(path)
    try:
        _ = left.chains
    except EvidenceError:
        refused = {one.line for one in whole.findings if one not in left.findings}
        assert [row for row in left.scalars.to_pylist() if row["line"] not in refused] == whole.scalars.to_pylist()
        assert left.scalars.num_rows == whole.scalars.num_rows + len(refused)
    else:
        assert list(tables(left)) == list(tables(whole))
        assert left.requests.equals(whole.requests)


def test_a_command_that_needs_no_hash_leaves_them_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["measure", str(ROLLOUT), "--metric=ttft.p50", "--metric=completion_fraction"]
    expected = main(command), capsys.readouterr()
    untouched(monkeypatch)
    assert (main(command), capsys.readouterr()) == expected
    assert "hashes were looked at" not in json.dumps(expected)


def test_rows_whose_hashes_are_none_reconcile_with_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROLLOUT, tmp_path / "run")
    shard = tmp_path / "run" / "request-trace.000000.jsonl.gz"
    some = gzip.decompress(shard.read_bytes()).replace(b'"input_sequence_hashes":[', b'"input_sequence_hashes":[0x', 9)
    shard.write_bytes(gzip.compress(some))
    assert main(["reconcile", str(tmp_path / "run")]) == 1
    assert "requests_are_joined does not hold for run" in capsys.readouterr().out


def test_a_command_that_needs_them_reads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    real = assemble.assemble
    monkeypatch.setattr(assemble, "assemble", lambda *a, **k: opened.append(k) or real(*a, **k))
    assert main(["measure", str(ROLLOUT), "--metric=ttft.p50", "--metric=kv_reuse_ceiling"]) == 0
    assert opened == [{"hashes": True}]
