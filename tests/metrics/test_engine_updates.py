"""What engines say of weight updates: from counters whose labels appear with their first event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fleets import parts, served
from hand_made import write

from pytest_rlserve.checks import run_check
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rlserve.capture import Capture


def scraped(folder: Path, **scrapes: str) -> Capture:
    folder.mkdir(exist_ok=True)
    for tag, text in scrapes.items():
        (folder / f"worker0.{tag}.prom").write_text("# TYPE x untyped\n" + text)
    return open_capture(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def vllm(word: str, counts: dict[tuple[str, str], int], seconds: dict[str, float]) -> str:
    """One scrape: operations by name and status, and the seconds that those of a name took."""
    name = f"vllm:rl_weight_update_{word}"
    lines = [f'{name}s_total{{operation="{op}",status="{how}"}} {count}' for (op, how), count in counts.items()]
    for op, spent in seconds.items():
        timed = sum(count for (name_, _), count in counts.items() if name_ == op)
        lines += [
            f'{name}_duration_seconds_bucket{{le="+Inf",operation="{op}"}} {timed}',
            f'{name}_duration_seconds_sum{{operation="{op}"}} {spent}',
            f'{name}_duration_seconds_count{{operation="{op}"}} {timed}',
        ]
    return "\n".join(lines) + "\n"


START = {("start", "success"): 1, ("update", "success"): 10, ("finish", "success"): 1}
END = {("start", "success"): 3, ("update", "success"): 30, ("update", "error"): 2, ("finish", "success"): 3}


@pytest.mark.parametrize("word", ["operation", "request"])
def test_the_time_of_all_operations_is_shared_out_to_the_updates_that_finished(folder: Path, word: str) -> None:
    start = vllm(word, START, {"start": 0.1, "update": 5.0, "finish": 1.0})
    end = vllm(word, END, {"start": 0.3, "update": 14.0, "finish": 2.8})
    capture = scraped(folder, start=start, end=end)
    time, failed = measure(capture, "weight_operation_time"), measure(capture, "failed_weight_operations")
    assert (time.value, time.n) == (pytest.approx((0.2 + 9.0 + 1.8) / 2), 2)
    assert (failed.value, failed.n) == (2, 2 + 22 + 2)


def test_operations_that_all_succeeded_have_no_error_label_and_none_failed(folder: Path) -> None:
    capture = scraped(folder, start=vllm("operation", START, dict.fromkeys(("start", "update", "finish"), 1.0)))
    assert measure(capture, "failed_weight_operations").value == 0
    assert measure(capture, "failed_weight_operations").excluded == "one scrape only: counts since the process started"


def test_operations_of_which_none_finished_have_no_time_for_an_update(folder: Path) -> None:
    capture = scraped(folder, end=vllm("operation", {("update", "error"): 2}, {"update": 9.0}))
    assert measure(capture, "failed_weight_operations").value == 2
    measured = measure(capture, "weight_operation_time")
    assert (measured.value, "count no weight update that finished" in str(measured.why)) == (None, True)


def test_an_engine_without_these_series_is_not_said_to_have_made_none(folder: Path) -> None:
    capture = scraped(folder, end="vllm:num_requests_waiting 0\n")
    for name in ("weight_operation_time", "failed_weight_operations"):
        measured = measure(capture, name)
        assert measured.value is None
        assert measured.why == "no scrape has vllm:rl_weight_update_operation_duration_seconds"


def test_the_longest_load_of_weights_that_an_engine_showed(folder: Path) -> None:
    name = 'sglang:weight_load_duration_seconds{source="distributed"}'
    capture = scraped(folder, start=f"{name} 0.5\n", mid=f"{name} 2.5\n", end=f"{name} 1.5\n")
    measured = measure(capture, "weight_load_time")
    assert (measured.value, measured.n) == (2.5, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (vllm("operation", START, {"start": 0.1}), "vLLM's metrics count and time weight operations"),
        ("sglang:weight_load_duration_seconds 1\n", "SGLang's metrics say how long the last load"),
    ],
)
def test_they_stand_in_for_no_record_of_an_update_and_the_check_says_what_they_lack(
    folder: Path, text: str, words: str
) -> None:
    write(folder, **parts(served("r", 1, 1, [1])))
    result = run_check(scraped(folder, end=text), "updates_are_ordered")
    assert result.status == "inconclusive"
    assert words in str(result.why)
    assert "whether the cache was emptied" in str(result.why)
    assert words not in str(run_check(scraped(folder, end="x 1\n"), "updates_are_ordered").why)
