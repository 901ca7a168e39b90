"""Hashes kept as what is new in each row come back as they were."""

from __future__ import annotations

from array import array
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_rlserve import chains as module
from pytest_rlserve.capture import Capture
from pytest_rlserve.chains import CHAINS, HASHES, Chains, chains_of, ends, expand, lengths, lists_of, packing
from pytest_rlserve.checks import CHECKS, run_checks
from pytest_rlserve.engine.share import load, save
from pytest_rlserve.errors import UsageError
from pytest_rlserve.gate.workload import workload_of
from pytest_rlserve.metrics import METRICS
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.model import REQUESTS, Batches
from pytest_rlserve.readers import open_capture
from pytest_rlserve.recurring import left_there, recurring
from pytest_rlserve.repack import repacked
from pytest_rlserve.scattered import Deferred

Row = list[int] | None
EXAMPLE = Path(__file__).parents[1] / "examples" / "baseline_kv"


@st.composite
def packed(draw: st.DrawFn) -> tuple[pa.Table, list[Row]]:
    """Rows, some of which continue an earlier one, packed as a reader packs them."""
    chains, rows = Chains(Batches(CHAINS)), list[Row]()
    batch = draw(st.sampled_from([1, 3, 8192]))
    for _ in range(draw(st.integers(0, 12))):
        back = draw(st.integers(0, len(rows)))
        earlier = rows[-back] if back else None
        shared = 0 if earlier is None else draw(st.integers(0, len(earlier)))
        own = draw(st.none() | st.lists(st.integers(0, 2**64 - 1), max_size=4))
        if own is None:
            chains.add(None)
            rows.append(None)
        else:
            chains.extend([back if shared else 0], [shared], [len(own)], array("Q", own))
            rows.append([*(earlier or [])[:shared], *own])
        if len(rows) % batch == 0:
            chains.table()  # what is pending becomes a batch
    return chains.table(), rows


@given(packed(), st.sampled_from([1, 5, 1 << 30]))
def test_every_row_has_its_whole_list_again(both: tuple[pa.Table, list[Row]], largest: int) -> None:
    table, rows = both
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGEST", largest)
        assert expand(table).to_pylist() == rows
        assert expand(table).type == HASHES


@given(packed())
def test_some_rows_are_told_without_unpacking_all(both: tuple[pa.Table, list[Row]]) -> None:
    table, rows = both
    numbers = range(len(rows))
    assert lists_of(table, numbers) == rows
    assert ends(table).to_pylist() == [row[-1] if row else None for row in rows]
    assert lengths(packing(table)).tolist() == [-1 if row is None else len(row) for row in rows]


@given(packed(), packed())
def test_tables_of_two_files_stay_apart(one: tuple[pa.Table, list[Row]], two: tuple[pa.Table, list[Row]]) -> None:
    both = pa.concat_tables([one[0], two[0]])
    assert expand(both).to_pylist() == one[1] + two[1]
    assert expand(both.slice(len(one[1]))).to_pylist() == two[1]


@given(packed())
def test_whole_lists_can_be_packed_again(both: tuple[pa.Table, list[Row]]) -> None:
    assert expand(chains_of(expand(both[0]))).to_pylist() == both[1]


@given(packed(), st.sampled_from([1, 2, 3]))
def test_packing_once_more_changes_no_list(both: tuple[pa.Table, list[Row]], every: int) -> None:
    lists = expand(both[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_rlserve.repack._EVERY", every)
        for table in (both[0], chains_of(lists), pa.concat_tables([both[0], chains_of(lists)])):
            assert expand(repacked(table)).to_pylist() == expand(table).to_pylist()
            assert repacked(table).schema == CHAINS


def test_turns_without_sessions_are_packed_once_more() -> None:
    turns = [list(range(length)) for length in (64, 200, 300, 129)]
    other = [*range(64), *range(1000, 1200)]
    table = repacked(chains_of(pa.chunked_array([[*turns, other, None]], HASHES)))
    assert expand(table).to_pylist() == [*turns, other, None]
    assert packing(table).to_pydict() == {
        "back": [0, 1, 1, 2, 4, 0],
        "shared": [0, 64, 192, 128, 64, 0],
        "size": [64, 136, 108, 1, 200, None],
    }


def test_rows_of_one_hash_that_differ_before_it_are_not_packed_together() -> None:
    one, other = list(range(64)), [7, *range(1, 64)]
    table = chains_of(pa.chunked_array([[one, other]], HASHES))
    assert packing(repacked(table))["shared"].to_pylist() == [0, 0]


def test_a_capture_gives_requests_with_their_hashes_and_takes_them_back(tmp_path: Path) -> None:
    rows = [{"request_id": "a", "input_sequence_hashes": [2**64 - 1]}, {"request_id": "b"}]
    requests = pa.Table.from_pylist(rows, schema=REQUESTS)
    capture = Capture(name="c").replace(requests=requests)
    assert capture.requests.equals(requests)
    assert "input_sequence_hashes" not in capture.scalars.column_names
    save(capture, tmp_path / "shared")
    assert load(tmp_path / "shared").requests.equals(requests)


def test_what_stays_elsewhere_is_judged_in_another_process_as_here(tmp_path: Path) -> None:
    here = open_capture(EXAMPLE)
    apart = here.replace(hashes=Deferred([here.chains]))
    save(left_there(apart), tmp_path / "shared")
    found = load(tmp_path / "shared")
    assert not (tmp_path / "shared" / "chains.arrow").exists()
    assert run_checks(found, names=CHECKS) == run_checks(here, names=CHECKS)
    assert [measure(found, name) for name in METRICS] == [measure(here, name) for name in METRICS]
    assert workload_of([found]) == workload_of([here])
    with pytest.raises(UsageError, match="the block hashes of this capture stay on Ray"):
        assert found.requests


_OF_BLOCKS = {"kv_", "warmup_time", "no_stale_kv", "reuse_is_possible"}
"""What speaks of the blocks of prompts, by the beginning of its name."""


def run(capture: Capture, names: list[str]) -> None:
    run_checks(capture, names=[name for name in names if name in CHECKS])
    for name in names:
        if name in METRICS:
            measure(capture, name)
    workload_of([capture])


def test_only_what_speaks_of_blocks_looks_for_equal_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = open_capture(EXAMPLE)
    monkeypatch.setattr("pytest_rlserve.recurring.recurring", lambda chains: pytest.fail("looked"))
    run(capture, [name for name in (*CHECKS, *METRICS) if not name.startswith(tuple(_OF_BLOCKS))])
    with pytest.raises(pytest.fail.Exception):
        measure(capture, "kv_reuse_ceiling")


def test_no_check_and_no_metric_unpacks_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = open_capture(EXAMPLE)
    monkeypatch.setattr("pytest_rlserve.chains.unpack", lambda chains: pytest.fail("unpacked"))
    run(capture, [*CHECKS, *METRICS])
    with pytest.raises(pytest.fail.Exception):
        assert capture.requests


def test_some_lists_take_only_the_rows_that_they_are_linked_with(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = Chains(Batches(CHAINS))
    count = 200
    packed.extend([0] + [1] * count, [0] + [2] * count, [3] + [1] * (count - 1) + [None], array("Q", range(count + 2)))
    packed.add([7, 8])
    packed.extend([3, 2], [2, 2], [1, 0], array("Q", [99]))
    table = packed.table()
    expected = [[0, 1, 2], *([0, 1, number] for number in range(3, count + 2)), None, [7, 8], [0, 1, 99], [7, 8]]
    assert [row for number in range(count + 4) for row in lists_of(table, [number])] == expected
    assert lists_of(table, reversed(range(count + 4))) == expected[::-1]
    assert lists_of(table, [5, 5]) == [expected[5]] * 2
    seen: list[int] = []
    unpack = module.unpack
    monkeypatch.setattr(module, "unpack", lambda chains: (seen.append(chains.num_rows), unpack(chains))[1])
    lists_of(table, [count + 1, count + 3, 3])
    assert seen == [6]


def test_asking_whether_there_are_requests_unpacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Capture(name="c").replace(requests=pa.Table.from_pylist([{"request_id": "a"}], schema=REQUESTS))
    monkeypatch.setattr("pytest_rlserve.chains.unpack", None)
    assert capture.has("requests")
    assert capture.scalars["request_id"].to_pylist() == ["a"]


def test_no_hash_stands_twice_where_there_is_no_part_at_all() -> None:
    later, first = recurring(Deferred([]))
    assert (later.tolist(), first.tolist()) == ([], [])
