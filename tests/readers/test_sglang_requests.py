"""SGLang's request log: rows as Dynamo's are, with the engine's own numbers and the version of each end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hand_made import completed, jsonl, request
from samples import records, sample, told, written

from pytest_rlserve.joins import join
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

NAME = "sglang-request-metrics-20260921_14.log"
T = 1_790_000_000.0


def test_a_line_is_a_row_with_the_engines_numbers() -> None:
    rows = sample(NAME).requests
    assert told(rows, "request_id", "input_tokens", "output_tokens", "cached_tokens", "finish_reason") == [
        ("rl-000", 1024, 200, 768, "stop"),
        ("rl-001", 1024, 512, 768, "length"),
        ("rl-002", 1024, 0, 0, "abort"),
        ("rl-003", 1024, 203, 768, "stop"),
        ("rl-004", 1024, 204, 768, "stop"),
        ("rl-005", 1024, 205, 0, "stop"),
    ]
    first = rows.to_pylist()[0]
    assert (first["received_at"], first["ended_at"]) == (T, T + 4.4)
    assert (first["prefill_wait_time_ms"], first["ttft_ms"]) == (12.0, 210.0)
    assert first["kv_hit_rate"] is None


def test_a_request_keeps_the_version_of_its_first_and_of_its_last_token() -> None:
    assert told(sample(NAME).requests, "policy", "policy_end") == [
        ("7", "7"),
        ("7", "7"),
        ("7", "7"),
        ("7", "8"),
        ("7", "7"),
        ("7", "7"),
    ]


def test_a_request_without_a_token_has_no_first_one() -> None:
    assert told(sample(NAME).requests, "ttft_ms")[2] == (None,)


def test_an_aborted_request_did_not_complete() -> None:
    measured = measure(sample(NAME), "request_latency.p50")
    assert measured.n == 5


def test_reuse_is_the_engines_since_nothing_was_predicted() -> None:
    measured = measure(sample(NAME), "kv_reuse_fraction")
    assert measured.value == (4 * 768) / (5 * 1024)


def test_the_id_that_the_client_chose_joins_and_the_prompt_is_not_kept(tmp_path: Path) -> None:
    line = records(NAME)[0] | {"request_parameters": '{"rid": "x-1", "text": "a secret prompt"}', "id": "x-1"}
    written(tmp_path / NAME, line)
    events = [request("dispatched", "x-1", -1), request("completed", "x-1", 5), *completed("a", -2, 6)]
    (tmp_path / "attempts.jsonl").write_bytes(jsonl(events))
    capture = open_capture(tmp_path)
    assert [owner.name for owner in capture.derive(join).owners.values()] == ["x-1"]
    assert "secret" not in repr(capture.requests.to_pylist())


def test_parameters_that_are_no_json_cost_nothing_but_the_key(tmp_path: Path) -> None:
    capture = written(tmp_path / NAME, records(NAME)[0] | {"request_parameters": "{not json"})
    assert told(capture.requests, "request_id", "x_request_id") == [("rl-000", None)]
    assert capture.findings == ()
