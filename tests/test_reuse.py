"""What was reused, could have been and should not have been: the package against a slow count with sets."""

from __future__ import annotations

import itertools
import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kv_oracle
import numpy as np
import pytest
from hand_made import EPOCH, Record, opened
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import CAPTURES

from pytest_rlserve.prompts import prompts
from pytest_rlserve.readers import open_capture
from pytest_rlserve.reuse import cached, ceilings, excess

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EXAMPLES = int(os.environ.get("RLSERVE_KV_EXAMPLES", "1000" if THOROUGH else "100"))
"""HYPOTHESIS_PROFILE=thorough tries 1,000 workloads; RLSERVE_KV_EXAMPLES as many as it says."""
SHARED = Path(__file__).parents[2] / "shared" / "captures"
FOUND = {path.parent.name: path.parent for root in (SHARED, CAPTURES) for path in root.glob("*/control.jsonl*")}
FOLDERS = [FOUND[name] for name in sorted(FOUND)]
BLOCK = 4


def ms(value: float) -> int:
    return round(EPOCH * 1000 + value)


def rolling(prompt: list[int]) -> list[int]:
    """Hashes that each stand for the prompt up to its block."""
    steps = itertools.accumulate(prompt, lambda before, one: [*before, one], initial=list[int]())
    return [int.from_bytes(blake2b(repr(step).encode(), digest_size=8).digest()) for step in list(steps)[1:]]


@st.composite
def requests(draw: st.DrawFn) -> list[Record]:
    """Rows of two workers and three sessions that often begin like an earlier one; times are milliseconds."""
    rows: list[Record] = []
    prompts = [list[int]()]
    for number in range(draw(st.integers(1, 8))):
        start = draw(st.sampled_from(prompts))
        kept = draw(st.just(len(start)) | st.integers(0, len(start)))
        prompt = start[:kept] + draw(st.lists(st.integers(0, 3), max_size=3))
        prompts.append(prompt)
        length = max(len(prompt) * BLOCK - draw(st.integers(0, BLOCK - 1)), 0)
        received = draw(st.integers(0, 40))
        took = draw(st.integers(0, 12))
        request: Record = {
            "request_id": f"r{number}",
            "input_tokens": length,
            "output_tokens": draw(st.integers(0, 9)),
            "cached_tokens": draw(st.integers(0, length)),
            "request_received_ms": ms(received),
            "total_time_ms": float(took),
            "replay": {"trace_block_size": BLOCK, "input_length": length, "input_sequence_hashes": rolling(prompt)},
        }
        if draw(st.integers(0, 9)):
            request["worker"] = {"decode_worker_id": draw(st.sampled_from([7, 2**64 - 1]))}
        if draw(st.booleans()):
            request["ttft_ms"] = float(draw(st.integers(0, took)))
        row: Record = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": request}
        row |= {"event_time_unix_ms": ms(received + took)}
        if draw(st.booleans()):
            row["agent_context"] = {"session_id": draw(st.sampled_from("abc"))}
            finish = draw(st.sampled_from(["stop", "length"]))
            row["request"]["finish_reason_metadata"] = {"finish_reason": finish}
        rows.append(row)
    return rows


@st.composite
def controls(draw: st.DrawFn) -> list[Record]:
    """Events of up to three updates, in any order: workers are missed, resets come early, fail or are left out."""
    events: list[Record] = []
    names = ["transfer", "cache_reset", "version", "transfer_started", "resume", "pause"]
    for update in range(draw(st.integers(0, 3))):
        for name in draw(st.lists(st.sampled_from(names), max_size=5)):
            event: Record = {"event": name, "t": ms(draw(st.integers(0, 40))) / 1000, "update": update}
            worker = draw(st.sampled_from([None, 7, 2**64 - 1]))
            event |= {} if worker is None else {"worker_id": worker}
            event |= {"policy_version": draw(st.integers(0, 2))} if name == "version" else {}
            event |= {"status": "error"} if not draw(st.integers(0, 6)) else {}
            if worker == 2**64 - 1 and not draw(st.integers(0, 3)):
                event |= {"replaced_worker_id": 7}
            events.append(event)
    return events


def held_against(capture: Capture, counted: list[kv_oracle.Prompt]) -> None:
    """Compare row by row; what the slow count leaves out is −1 or 0 in the arrays."""
    found, most, beyond = capture.derive(prompts), capture.derive(ceilings), capture.derive(excess)
    names: list[str] = capture.requests["request_id"].to_pylist()
    assert {prompt.name for prompt in counted} == {names[row] for row in np.flatnonzero(found.hashed)}
    expected = {prompt.name: prompt.found for prompt in counted}
    for row, name in enumerate(names):
        said: dict[str, Any] = expected.get(name, {})
        assert most.fleet[row] == said.get("fleet", -1), name
        assert most.worker[row] == said.get("worker", -1), name
        assert (beyond.stale[row], beyond.unexplained[row]) == (said.get("stale", 0), said.get("unexplained", 0)), name


@given(rows=requests(), control=controls())
@settings(max_examples=EXAMPLES, deadline=None)
def test_every_row_is_as_the_slow_count_says(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Record], control: list[Record]
) -> None:
    capture = opened(tmp_path_factory.mktemp("c") / "c", rows=rows, control=control)
    counted = [kv_oracle.prompt(row, row["request"]["cached_tokens"]) for row in rows]
    held_against(capture, kv_oracle.count(counted, control))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_capture_is_as_the_slow_count_says(folder: Path) -> None:
    capture = open_capture(folder)
    known, control = kv_oracle.prompts_of(folder)
    held_against(capture, kv_oracle.count(known, control))


STATED = {
    "baseline_kv_1": (0.645, 0.765, 0.649, 0.116, 0.005),
    "regressed_round_robin_1": (0.516, 0.765, 0.546, 0.219, 0.030),
    "small_cache_1": (0.419, 0.765, 0.644, 0.122, 0.224),
}
"""Reuse, ceiling, worker ceiling, routing loss, eviction loss of completed requests."""


@pytest.mark.parametrize("folder", [path for path in FOLDERS if path.name in STATED], ids=lambda path: path.name)
def test_the_slow_count_gives_the_stated_shares(folder: Path) -> None:
    figures = kv_oracle.shares(kv_oracle.count(*kv_oracle.prompts_of(folder)))
    names = ("reuse", "ceiling", "worker_ceiling", "routing_loss", "eviction_loss")
    assert tuple(figures[name] for name in names) == pytest.approx(STATED[folder.name], abs=0.0006)
    assert figures["requests"] == 784


def test_the_engines_number_is_usage_and_the_routers_is_a_prediction() -> None:
    found = open_capture(CAPTURES / "baseline_kv_1").derive(cached)
    assert (found.engine >= 0).sum() == 784
    assert (found.predicted >= 0).sum() > 784
    assert not np.array_equal(found.engine, found.predicted)
