"""Metrics from scrapes: counters that may be reset, gauges, and series that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleets import parts, served
from hand_made import write

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.scrapes import counted, gauges
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

SHARED = Path(__file__).parents[3] / "shared" / "captures"
recorded = pytest.mark.skipif(not SHARED.is_dir(), reason="needs recorded scrapes, which are not committed")


def scraped(folder: Path, **scrapes: str) -> Capture:
    """A capture with scrapes of one endpoint; the names are the tags."""
    folder.mkdir(exist_ok=True)
    for tag, text in scrapes.items():
        (folder / f"frontend.{tag}.prom").write_text("# TYPE x untyped\n" + text)
    return open_capture(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "c"


def test_a_counter_counts_from_the_first_scrape_to_the_last_whatever_the_files_order(folder: Path) -> None:
    (found,) = counted(scraped(folder, end="n_total 9\n", start="n_total 2\n", mid="n_total 5\n"), "n_total")
    assert (found.value, found.resets, found.note) == (7, (), "")


def test_a_counter_that_falls_counts_since_the_last_restart_and_says_so(folder: Path) -> None:
    capture = scraped(folder, start='n_total{a="b"} 900\n', mid='n_total{a="b"} 30\n', end='n_total{a="b"} 40\n')
    (found,) = counted(capture, "n_total")
    assert found.value == 40
    assert found.note == "counter reset seen (n_total{a=b}): covers only the time since the restart"


def test_a_reset_of_the_count_is_one_of_the_sum_although_that_grew(folder: Path) -> None:
    capture = scraped(folder, start="h_sum 10\nh_count 100\n", end="h_sum 12\nh_count 3\n")
    assert [one.value for one in counted(capture, "h_sum", "h_count")] == [12, 3]


def test_series_are_added_up_over_their_labels_and_chosen_by_them(folder: Path) -> None:
    start = 'n_total{kind="a"} 1\nn_total{kind="b"} 10\n'
    capture = scraped(folder, start=start, end='n_total{kind="a"} 3\nn_total{kind="b"} 14\n')
    assert [counted(capture, "n_total", **labels)[0].value for labels in ({}, {"kind": "a"}, {"kind": "b"})] == [
        6,
        2,
        4,
    ]


def test_a_series_that_appears_later_began_at_zero(folder: Path) -> None:
    assert counted(scraped(folder, start="m 1\n", end="m 1\nn_total 4\n"), "n_total")[0].value == 4


def test_one_scrape_counts_since_the_process_started(folder: Path) -> None:
    (found,) = counted(scraped(folder, mid="n_total 4\n"), "n_total")
    assert (found.value, found.note) == (4, "one scrape only: counts since the process started")


def test_a_series_that_is_not_there_is_not_zero(folder: Path) -> None:
    capture = scraped(folder, start="m 1\n", end="m 1\n")
    with pytest.raises(NotMeasurable, match="no scrape has n_total"):
        counted(capture, "n_total")
    with pytest.raises(NotMeasurable, match="no scrape has g"):
        gauges(capture, "g")


def test_a_value_that_is_no_number_is_not_used(folder: Path) -> None:
    capture = scraped(folder, start="g NaN\n", end="g 3\n")
    assert gauges(capture, "g") == [3.0]


def test_router_queue_time_is_the_mean_over_scheduled_requests(folder: Path) -> None:
    name = "dynamo_router_overhead_scheduling_ms"
    capture = scraped(folder, start=f"{name}_sum 100\n{name}_count 10\n", end=f"{name}_sum 400\n{name}_count 110\n")
    measured = measure(capture, "router_queue_time")
    assert (measured.value, measured.n) == (0.003, 100)


@pytest.mark.parametrize(
    ("name", "series"),
    [
        (
            "router_queue_time",
            ["dynamo_router_overhead_scheduling_ms_sum", "dynamo_router_overhead_scheduling_ms_count"],
        ),
        (
            "router_predicted_hit_fraction",
            ["dynamo_component_router_kv_hit_rate_sum", "dynamo_component_router_kv_hit_rate_count"],
        ),
        (
            "router_overlap_loss_fraction",
            [f"dynamo_component_router_kv_{one}_cached_prefix_tokens_total" for one in ("best_eligible", "selected")],
        ),
    ],
)
def test_what_a_router_registers_and_leaves_at_zero_is_not_measured(folder: Path, name: str, series: list[str]) -> None:
    measured = measure(scraped(folder, end="".join(f"{one} 0\n" for one in series)), name)
    assert measured.value is None
    assert "router" in str(measured.why)


def test_the_reuse_given_up_for_an_even_load(folder: Path) -> None:
    names = [f"dynamo_component_router_kv_{one}_cached_prefix_tokens_total" for one in ("best_eligible", "selected")]
    capture = scraped(folder, start=f"{names[0]} 100\n{names[1]} 100\n", end=f"{names[0]} 300\n{names[1]} 250\n")
    assert measure(capture, "router_overlap_loss_fraction").value == 0.25


def test_gauges_and_preemptions_of_several_engines(folder: Path) -> None:
    one = "vllm:num_requests_waiting 3\nvllm:kv_cache_usage_perc 0.5\nvllm:num_preemptions_total 2\n"
    (scraped(folder, mid=one) and (folder / "worker1.mid.prom")).write_text(
        "# TYPE x untyped\n" + one.replace("3", "5")
    )
    capture = open_capture(folder)
    assert measure(capture, "engine_queue_depth").value == 5
    assert measure(capture, "kv_usage_fraction").value == 0.5
    assert measure(capture, "preemptions").value == 4


def test_reuse_by_the_frontends_sums_is_the_last_resort(folder: Path) -> None:
    made = parts(served("r", 1, 1, [1, 2], cached=None, cached_tokens=16, kv_hit_rate=0.5))
    write(folder, **made)
    text = "".join(
        f"dynamo_frontend_{name} {value}\n"
        for name, value in (
            ("cached_tokens_sum", 300),
            ("cached_tokens_count", 99),
            ("input_sequence_tokens_sum", 1000),
            ("input_sequence_tokens_count", 100),
        )
    )
    measured = measure(scraped(folder, end=text), "kv_reuse_fraction")
    assert (measured.value, measured.n) == (0.3, 99)
    assert "by the frontend's sums over 100 requests" in measured.excluded
    few = text.replace("tokens_count 99", "tokens_count 94")
    assert "prediction" in str(measure(scraped(folder, end=few), "kv_reuse_fraction").why)


@recorded
def test_router_queue_1_waits_in_the_router_and_baseline_kv_1_does_not() -> None:
    queued, usual = (open_capture(SHARED / name) for name in ("router_queue_1", "baseline_kv_1"))
    times = [measure(capture, "router_queue_time").value for capture in (queued, usual)]
    assert times == pytest.approx([0.00724, 0.00012], abs=0.00001)


@recorded
@pytest.mark.parametrize("name", [f"baseline_{run}" for run in ("kv_1", "kv_2", "kv_3", "jobb_1", "jobc_2")])
def test_cached_tokens_of_usage_are_exactly_what_the_frontend_counted(name: str) -> None:
    capture = open_capture(SHARED / name)
    usage = [one.get("cached_tokens") for one in capture.derive(ledger).requests if one.outcome == "completed"]
    total, count = counted(capture, "dynamo_frontend_cached_tokens_sum", "dynamo_frontend_cached_tokens_count")
    assert (total.value, count.value) == (sum(usage), len(usage))


@recorded
def test_round_robin_has_no_router_metrics_and_a_small_cache_preempts() -> None:
    assert measure(open_capture(SHARED / "regressed_round_robin_1"), "router_queue_time").value is None
    small = open_capture(SHARED / "small_cache_1")
    assert (measure(small, "preemptions").value or 0) > 0
    assert (measure(small, "kv_usage_fraction").value or 0) > 0.9
