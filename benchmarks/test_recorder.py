"""What recording an event costs its caller, beside writing the same line oneself and beside logging it.

A round is a thousand events, from an empty queue on. The caller's time is what counts: the recorder's own thread
writes meanwhile, and takes its share of the interpreter.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING

import pytest

from pytest_rlserve.recorder import AttemptRecorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

ALLOWED_US = 5.0
EVENTS, ROUNDS = 1000, 300
FIELDS = {
    "attempt_id": "g17-s3-a0",
    "group_id": "g17",
    "sample_id": "g17-s3",
    "session_id": "roll-g17-s3-a0",
    "step": 12,
    "target_policy": 11,
}


def measured(benchmark: BenchmarkFixture, one: Callable[[], None], before: Callable[[], None] | None = None) -> float:
    """Return microseconds an event, the median of the rounds."""

    def many() -> None:
        for _ in range(EVENTS):
            one()

    benchmark.pedantic(many, setup=before, rounds=ROUNDS, warmup_rounds=5)
    microseconds = benchmark.stats.stats.median / EVENTS * 1e6
    benchmark.extra_info["µs an event"] = round(microseconds, 2)
    return float(microseconds)


@pytest.mark.benchmark(group="1,000 events")
def test_recorder(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with AttemptRecorder(tmp_path / "attempts.jsonl", run="nightly-17") as attempts:
        taken = measured(benchmark, lambda: attempts.emit("dispatched", **FIELDS), before=attempts.close)
    assert attempts.lost == 0
    assert taken < ALLOWED_US


@pytest.mark.benchmark(group="1,000 events")
def test_json_and_a_write(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with (tmp_path / "plain.jsonl").open("a", encoding="utf-8") as file:

        def write() -> None:
            record = {"schema": "rlserve.attempt.v1", "event": "dispatched", "t": time.time(), "run": "n"} | FIELDS
            file.write(json.dumps(record) + "\n")
            file.flush()

        measured(benchmark, write)


@pytest.mark.benchmark(group="1,000 events")
def test_logging(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    logger, handler = logging.getLogger("bench"), logging.FileHandler(tmp_path / "run.log")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        measured(benchmark, lambda: logger.info("dispatched %s", FIELDS))
    finally:
        logger.removeHandler(handler)
        handler.close()
