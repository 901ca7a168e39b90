"""verl-recipe's metrics sidecar: scrapes without labels, each number with its endpoint and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samples import numbers, records, sample, told, written

if TYPE_CHECKING:
    from pathlib import Path

NAME = "verl_metrics_sidecar.jsonl"


def test_every_number_of_every_scrape_is_kept_with_its_endpoint() -> None:
    capture = sample(NAME)
    assert capture.step_metrics.num_rows == sum(len(record["metrics"]) for record in records(NAME)) == 48
    name = "vllm:prefix_cache_hits_total"
    rows = told(capture.step_metrics, "target", "value", where=lambda row: row["name"] == name)
    assert rows == [
        ("10.0.0.5:9181", 20010.0),
        ("10.0.0.6:9181", 20020.0),
        ("10.0.0.5:9181", 40010.0),
        ("10.0.0.6:9181", 40020.0),
        ("10.0.0.5:9181", 60010.0),
        ("10.0.0.6:9181", 60020.0),
    ]
    assert numbers(capture, "dynamo_frontend_cached_tokens_sum") == [40000, 80000, 120000]


def test_a_scrapes_time_counts_from_the_epoch() -> None:
    times = sorted({row[0] for row in told(sample(NAME).step_metrics, "t")})
    assert times == [1_789_999_865.0, 1_789_999_925.0, 1_789_999_985.0]  # 2026-09-21, 14:11:05 to 14:13:05 UTC
    assert sample(NAME).step_metrics["step"].null_count == 48


def test_a_failed_scrape_is_reported_and_its_error_is_not_kept() -> None:
    capture = sample(NAME)
    (finding,) = capture.findings
    assert (finding.severity, finding.line) == ("warning", 10)
    assert "10.0.0.6:9181 could not be scraped" in finding.message
    assert "Errno" not in finding.message
    assert capture.sources[0].rows == 10


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    scrape = records(NAME)[0] | {"ts": "2026-09-21T14:11:05"}
    (finding,) = written(tmp_path / "m.jsonl", scrape).findings
    assert (finding.severity, finding.message) == ("error", "ts does not say its time zone")
