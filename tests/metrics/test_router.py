"""Metrics from scrapes: counters that may be reset, gauges, and series that are not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fleets import parts, served
from hand_made import write
from oracle import CAPTURES

from pytest_rlserve.errors import NotMeasurable
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.metrics.scrapes import counted, gauges
from pytest_rlserve.readers import open_capture

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture

SCRAPES = Path(__file__).parents[1] / "data" / "scrapes"
"""Scrapes of recorded runs, cut down to the series that are used."""
SHARED = Path(__file__).parents[3] / "shared" / "captures"
beside = pytest.mark.skipif(not SHARED.is_dir(), reason="needs recorded captures beside the checkout")


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


def raw(capture: str, file: str) -> dict[str, float]:
    """The samples of a scrape by name, added up over their labels, split by hand."""
    found: dict[str, float] = {}
    for line in (SCRAPES / capture / file).read_text().splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            found[name] = found.get(name, 0) + float(value)
    return found


@pytest.mark.parametrize(
    ("start", "end", "share"),
    [
        (("vllm:prefix_cache_hits_total 100", "vllm:prefix_cache_queries_total 400"), (400, 1000), 0.5),
        (("sglang:cached_tokens_total 0", "sglang:prompt_tokens_total 0"), (7680, 10240), 0.75),
        (("sglang:cached_tokens_total 0", "sglang:prompt_tokens_total 0"), (11, 10), None),
    ],
)
def test_engines_counters_tell_reuse_where_nothing_else_does(
    folder: Path, start: tuple[str, str], end: tuple[int, int], share: float | None
) -> None:
    later = [f"{line.split()[0]} {value}" for line, value in zip(start, end, strict=True)]
    measured = measure(scraped(folder, start="\n".join(start) + "\n", end="\n".join(later) + "\n"), "kv_reuse_fraction")
    assert (measured.value, measured.n) == (share, 0 if share is None else 1)
    assert share is None or "counters, over all requests, whatever became of them" in measured.excluded


@pytest.mark.parametrize(("name", "about"), [("router_queue_1", 0.00724), ("baseline_kv_1", 0.00012)])
def test_router_queue_1_waits_in_the_router_and_baseline_kv_1_does_not(name: str, about: float) -> None:
    series = "dynamo_router_overhead_scheduling_ms"
    start, end = (raw(name, f"frontend.{tag}.prom") for tag in ("start", "end"))
    spent, count = (end[f"{series}_{part}"] - start[f"{series}_{part}"] for part in ("sum", "count"))
    measured = measure(open_capture(SCRAPES / name), "router_queue_time")
    assert (measured.value, measured.n) == (pytest.approx(spent / count / 1000), count)
    assert measured.value == pytest.approx(about, abs=0.00001)


def together(folder: Path, name: str) -> Capture:
    """A recorded run with its scrapes, which are kept apart from it."""
    shutil.copytree(CAPTURES / name, folder)
    shutil.copytree(SCRAPES / name, folder / "metrics")
    return open_capture(folder)


@pytest.mark.parametrize("name", ["baseline_kv_1", "small_cache_1", "regressed_round_robin_1"])
def test_cached_tokens_of_usage_are_exactly_what_the_frontend_counted(folder: Path, name: str) -> None:
    equal(together(folder, name))


@beside
@pytest.mark.parametrize("name", ["baseline_kv_2", "baseline_kv_3", "baseline_jobb_1", "baseline_jobc_2"])
def test_they_are_in_the_captures_beside_the_checkout_too(name: str) -> None:
    equal(open_capture(SHARED / name))


def equal(capture: Capture) -> None:
    usage = [one.get("cached_tokens") for one in capture.derive(ledger).requests if one.outcome == "completed"]
    total, count = counted(capture, "dynamo_frontend_cached_tokens_sum", "dynamo_frontend_cached_tokens_count")
    assert len(usage) == 790
    assert (total.value, count.value) == (sum(usage), len(usage))


def test_scrapes_alone_tell_the_reuse_by_the_frontends_sums() -> None:
    end = raw("baseline_kv_1", "frontend.end.prom")
    measured = measure(open_capture(SCRAPES / "baseline_kv_1"), "kv_reuse_fraction")
    share = end["dynamo_frontend_cached_tokens_sum"] / end["dynamo_frontend_input_sequence_tokens_sum"]
    assert (measured.value, measured.n) == (pytest.approx(share), 790)


def test_round_robin_has_no_router_metrics_and_a_small_cache_preempts() -> None:
    measured = measure(open_capture(SCRAPES / "regressed_round_robin_1"), "router_queue_time")
    assert (measured.value, "does not measure it in this mode" in str(measured.why)) == (None, True)
    small = open_capture(SCRAPES / "small_cache_1")
    last = [raw("small_cache_1", f"worker{n}.end.prom")["vllm:num_preemptions_total"] for n in range(4)]
    preempted = measure(small, "preemptions")
    assert preempted.value == sum(last) > 0
    assert (measure(small, "kv_usage_fraction").value or 0) > 0.9


def test_workers_that_were_replaced_between_scrapes_are_named_although_no_counter_fell() -> None:
    counts = [raw("small_cache_1", f"worker1.{tag}.prom").get("vllm:num_preemptions_total") for tag in ("mid", "end")]
    assert counts == [1, 1]  # of two processes: what the first one counted after its scrape is lost
    found = measure(open_capture(SCRAPES / "small_cache_1"), "preemptions").excluded
    assert "of worker1, " in found
    assert found.endswith("covers only the time since the restart")
    assert "restart" not in measure(open_capture(SCRAPES / "small_cache_1"), "router_queue_time").excluded


@pytest.mark.parametrize(
    ("uptimes", "value"),
    [
        (('{worker_id="0a"} 1', '{worker_id="0a"} 9'), 3),
        (('{worker_id="0a"} 9', '{worker_id="0a"} 1'), 8),
        (('{worker_id="0a"} 1', '{worker_id="0b"} 9'), 8),
    ],
)
def test_a_process_with_another_id_or_less_uptime_is_a_reset_of_its_counters(
    folder: Path, uptimes: tuple[str, str], value: float
) -> None:
    name = "dynamo_component_uptime_seconds"
    start, end = (f"n_total {n}\n{name}{uptime}\n" for n, uptime in zip((5, 8), uptimes, strict=True))
    (found,) = counted(scraped(folder, start=start, end=end), "n_total")
    assert (found.value, found.resets) == (value, ("n_total of frontend",) if value == 8 else ())


def test_the_same_worker_has_one_id_in_traces_and_in_both_spellings_of_scrapes(folder: Path) -> None:
    capture = together(folder, "baseline_kv_1")
    rows = [row | json.loads(row["labels"]) for row in capture.scrapes.to_pylist()]
    own = {r["worker_id"] for r in rows if r["target"].startswith("worker") and r["name"].endswith("uptime_seconds")}
    seen = {row["worker_id"] for row in rows if row["name"] == "dynamo_frontend_worker_active_decode_blocks"}
    hexadecimal = (SCRAPES / "baseline_kv_1" / "worker0.end.prom").read_text().split('worker_id="')[1][:16]
    served = {str(worker) for worker in capture.requests["decode_worker_id"].drop_null().to_pylist()}
    assert str(int(hexadecimal, 16)) in own & seen & served
    assert served <= own
    assert seen <= served


def test_reuse_by_counters_is_not_compared_with_reuse_by_rows(folder: Path) -> None:
    rows = together(folder, "baseline_kv_1")
    scrapes = open_capture(SCRAPES / "baseline_kv_1")
    usage = open_capture(CAPTURES / "baseline_kv_1" / "attempts.jsonl.gz")
    found = [measure(capture, "kv_reuse_fraction") for capture in (rows, scrapes, usage)]
    assert len({one.definition["digest"] for one in found}) == 3
    assert [one.definition["phase"].partition(", by ")[2] for one in found] == [
        "",
        "the frontend's sums",
        "usage alone",
    ]
    assert [one.value for one in found] == pytest.approx([0.6445] * 3, abs=0.02)


@pytest.mark.parametrize("name", sorted(one.name for one in METRICS.values() if "scrapes" in one.needs))
def test_a_metric_whose_series_no_scrape_has_is_unknown_and_never_zero(folder: Path, name: str) -> None:
    measured = measure(scraped(folder, start="other_total 0\n", end="other_total 0\n"), name)
    assert measured.value is None
    assert "no scrape" in str(measured.why)
