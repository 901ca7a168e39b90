"""Scrapes in Prometheus' text format: every sample with its place, exact labels, and nothing that is not there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

SCRAPES = Path(__file__).parents[1] / "data" / "scrapes"
SCRAPE = """\
# HELP requests_total All requests.
# TYPE requests_total counter
requests_total{status="ok"} 7
# TYPE size histogram
size_bucket{le="1"} 2
size_bucket{le="+Inf"} 5
size_sum 40.5
size_count 5
# TYPE odd gauge
odd{path="C:\\\\tmp\\\\a",note="say \\"hi\\"\\nthere"} NaN 1790000100000
"""


def scraped(folder: Path, text: str | bytes = SCRAPE, name: str = "frontend.mid.prom") -> Capture:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return open_capture(folder)


def row(capture: Capture, name: str) -> dict[str, Any]:
    (found,) = [one for one in capture.scrapes.to_pylist() if one["name"] == name]
    return found


def test_samples_carry_their_value_labels_and_line(tmp_path: Path) -> None:
    capture = scraped(tmp_path / "c")
    found = row(capture, "requests_total")
    assert (found["value"], json.loads(found["labels"]), found["line"]) == (7.0, {"status": "ok"}, 3)
    assert (found["target"], found["tag"], found["t"]) == ("frontend", "mid", None)
    assert [(source.format, source.rows, source.whole) for source in capture.sources] == [("prometheus.text", 5, True)]
    assert capture.findings == ()


def test_of_a_histogram_sum_count_and_the_last_bucket_are_kept(tmp_path: Path) -> None:
    capture = scraped(tmp_path / "c")
    assert row(capture, "size_bucket")["labels"] == '{"le": "+Inf"}'
    assert (row(capture, "size_sum")["value"], row(capture, "size_count")["line"]) == (40.5, 8)


def test_escapes_are_undone_and_nan_is_unknown(tmp_path: Path) -> None:
    found = row(scraped(tmp_path / "c"), "odd")
    assert json.loads(found["labels"]) == {"path": "C:\\tmp\\a", "note": 'say "hi"\nthere'}
    assert (found["value"], found["t"]) == (None, 1790000100.0)


@pytest.mark.parametrize(
    ("name", "target", "tag"),
    [
        ("frontend.start.prom", "frontend", "start"),
        ("before.prom", "", "before"),
        ("router.prom", "router", ""),
        ("worker0.mid.prom.txt", "worker0", "mid"),
        ("metrics.txt", "metrics", ""),
    ],
)
def test_the_files_name_says_whose_scrape_it_is_and_when(tmp_path: Path, name: str, target: str, tag: str) -> None:
    found = row(scraped(tmp_path / "c", name=name), "size_sum")
    assert (found["target"], found["tag"]) == (target, tag)


def test_a_compressed_scrape_is_read(tmp_path: Path) -> None:
    capture = scraped(tmp_path / "c", gzip.compress(SCRAPE.encode(), mtime=0), "frontend.end.prom")
    assert row(capture, "size_sum")["tag"] == "end"


@pytest.mark.parametrize(
    ("series", "written"),
    [
        ("dynamo_component_requests_total", "ee8feed006a0ce43"),
        ("dynamo_frontend_worker_active_decode_blocks", str(0xEE8FEED006A0CE43)),
        ("other_total", "0xee8feed006a0ce43"),
    ],
)
def test_a_worker_is_the_same_in_decimal_and_hexadecimal(tmp_path: Path, series: str, written: str) -> None:
    found = row(scraped(tmp_path / "c", f'# TYPE {series} gauge\n{series}{{worker_id="{written}"}} 1\n'), series)
    assert json.loads(found["labels"])["worker_id"] == str(0xEE8FEED006A0CE43)


def test_a_hexadecimal_id_without_a_letter_is_hexadecimal_too(tmp_path: Path) -> None:
    text = '# TYPE a gauge\ndynamo_component_up{worker_id="1234567890123456"} 1\n'
    found = row(scraped(tmp_path / "c", text), "dynamo_component_up")
    assert json.loads(found["labels"])["worker_id"] == str(0x1234567890123456)


def test_a_line_that_is_no_sample_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    capture = scraped(tmp_path / "c", "# TYPE a gauge\na 1\na{b= 2\nc 3\n")
    assert [(one["name"], one["line"]) for one in capture.scrapes.to_pylist()] == [("a", 2), ("c", 4)]
    (finding,) = capture.findings
    assert (finding.severity, finding.line, finding.check) == ("error", 3, "rows_fit_schema")


def test_scrapes_do_not_make_a_capture_a_trace(tmp_path: Path) -> None:
    capture = scraped(tmp_path / "c")
    assert not capture.has("requests")
    assert capture.sources[0].covers == ()


def test_every_sample_of_a_recorded_scrape_is_read() -> None:
    folder = SCRAPES / "router_queue_1"
    capture = open_capture(folder)
    assert not capture.not_read
    lines = (folder / "frontend.end.prom").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("#") and ("_bucket{" not in line or 'le="+Inf"' in line)]
    (source,) = [one for one in capture.sources if one.path == "frontend.end.prom"]
    assert source.rows == len(kept)
