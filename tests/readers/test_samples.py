"""Every sample of another system's records is known by what is in it, whatever it is called."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from samples import FOLDER, records, sample, written

from pytest_rlserve.checks import run_check
from pytest_rlserve.engine import share
from pytest_rlserve.readers import READERS, open_capture

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = {
    "dynamo_rl_workers.json": ("dynamo.rl_workers", 2),
    "model_express_answers.jsonl": ("model_express.weight_versions", 3),
    "model_express_versions.json": ("model_express.weight_versions", 3),
    "nemo_rl.jsonl": ("nemo_rl", 15),
    "nemo_rl_guessed_names.jsonl": ("nemo_rl", 19),
    "prime_rl_metrics.jsonl": ("prime_rl.metrics", 3),
    "prime_rl_step_12_train_all.traces.jsonl": ("prime_rl", 7),
    "prime_rl_step_12_train_effective.traces.jsonl": ("prime_rl", 4),
    "rl_insight_client_events.jsonl": ("rl_insight", 2),
    "rl_trace_observer.chrome.jsonl": ("rl_trace_observer", 15),
    "rl_trace_process.json": ("rl_trace_observer.process", 1),
    "sglang-request-metrics-20260921_14.log": ("sglang_requests", 6),
    "slime.trace_timeline_cache.json": ("slime", 5),
    "slime_samples.jsonl": ("slime.samples", 5),
    "verl_file_logger.jsonl": ("verl_logger", 3),
    "verl_metrics_sidecar.jsonl": ("verl_sidecar", 10),
    "verl_rollout_dump_step3.jsonl": ("verl_dump", 6),
}
every_sample = pytest.mark.parametrize("name", FORMATS)


@every_sample
def test_a_sample_is_detected_by_its_content_and_read_whole(name: str, tmp_path: Path) -> None:
    copy = shutil.copy(FOLDER / name, tmp_path / f"renamed.{name.rpartition('.')[2]}")
    for capture in (sample(name), open_capture(copy)):
        (source,) = capture.sources
        assert (source.format, source.rows, source.whole) == (*FORMATS[name], True)
        assert run_check(capture, "rows_fit_schema").status == "pass"


@every_sample
def test_what_was_read_survives_the_way_to_a_worker(name: str, tmp_path: Path) -> None:
    capture = sample(name)
    share.save(capture, tmp_path / "shared")
    loaded = share.load(tmp_path / "shared")
    assert {n: t.to_pylist() for n, t in loaded.tables()} == {n: t.to_pylist() for n, t in capture.tables()}
    assert loaded.sources == capture.sources


@pytest.mark.parametrize("format", sorted({format for format, _ in FORMATS.values()}))
def test_an_adapter_says_how_it_detects_its_files(format: str) -> None:
    assert "Detected by" in (sys.modules[READERS[format].recognises.__module__].__doc__ or "")


SECRET = "the quick brown fox"
PRIVATE = {
    "verl_rollout_dump_step3.jsonl": ("input", "output", "gts"),
    "sglang-request-metrics-20260921_14.log": ("request_parameters", "text"),
    "verl_metrics_sidecar.jsonl": ("error",),
    "nemo_rl.jsonl": ("note", "reason"),
    "prime_rl_step_12_train_all.traces.jsonl": ("task", "errors"),
    "slime_samples.jsonl": ("prompt", "label"),
    "rl_insight_client_events.jsonl": ("documentation",),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_text_that_people_or_models_wrote_is_not_kept(name: str, tmp_path: Path) -> None:
    changed = records(name)
    for record in changed:
        for field in PRIVATE[name]:
            private = {"type": SECRET, "message": SECRET, "traceback": SECRET}
            record[field] = [private] if field == "errors" else SECRET
        if "task" in record:
            record["ok"] = False
    changed[0] |= {"task": {"data": SECRET}} if "task" in changed[0] else {}
    capture = written(tmp_path / name, *changed)
    kept = [row for _, table in capture.tables() for row in table.to_pylist()]
    assert len(kept) >= len(changed)
    assert SECRET not in repr(kept)
    assert SECRET not in repr(capture.findings)
