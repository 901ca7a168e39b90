"""Prompts as a tree: any valid way to pack them, in any number of shards, shares what the lists share."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rlserve.capture import Capture
from pytest_rlserve.chains import CHAINS, Chains
from pytest_rlserve.checks import run_check
from pytest_rlserve.links import relinked
from pytest_rlserve.metrics.measuring import measure
from pytest_rlserve.model import SCALARS, Batches
from pytest_rlserve.prefixes import available_blocks, prefixes
from pytest_rlserve.prompts import by_worker, prompts
from pytest_rlserve.recurring import recurring
from pytest_rlserve.scattered import links
from pytest_rlserve.tree import grown

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
EXAMPLES = int(os.environ.get("RLSERVE_KV_EXAMPLES", "1000" if THOROUGH else "300"))
BLOCK = 4
CUT = 3.0
"""When every cache of the drawn captures is emptied."""


@dataclass
class Drawn:
    """Prompts, how they are packed, and what else their rows say."""

    hashes: list[list[int]] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def chains(self) -> pa.Table:
        """Every shard packed by itself."""
        packed = []
        for shard in dict.fromkeys(self.shards):
            chains = Chains(Batches(CHAINS))
            for row in [row for row, own in enumerate(self.shards) if own == shard]:
                own = self.hashes[row][self.shared[row] :]
                chains.extend([self.back[row]], [self.shared[row]], [len(own)], array("Q", own))
            packed.append(chains.table())
        return pa.concat_tables(packed) if packed else CHAINS.empty_table()


def common(one: list[int], other: list[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@st.composite
def drawn(draw: st.DrawFn, *, rolling: bool = True) -> Drawn:
    """Rows that often begin like an earlier one; what is shared may be seen wholly, in part, or not at all."""
    found, prompts = Drawn(), [list[int]()]
    hashes: dict[tuple[int, ...], int] = {}
    shard = 0
    for row in range(draw(st.integers(0, 9))):
        start = draw(st.sampled_from(prompts))
        prompt = start[: draw(st.integers(0, len(start)))] + draw(st.lists(st.integers(0, 2), max_size=4))
        prompts.append(prompt)
        keys = [tuple(prompt[: end + 1]) if rolling else (prompt[end],) for end in range(len(prompt))]
        # In no order.
        own = [hashes.setdefault(key, (len(hashes) + 1) * 0x9E3779B97F4A7C15 % 2**64) for key in keys]
        shard += draw(st.integers(0, 3)) == 0
        first = found.shards.index(shard) if shard in found.shards else row
        back = draw(st.integers(0, row - first))
        most = common(own, found.hashes[row - back]) if back else 0
        shared = draw(st.just(most) | st.integers(0, most))
        found.hashes.append(own)
        found.back.append(back if shared else 0)
        found.shared.append(shared)
        found.shards.append(shard)
        received = draw(st.integers(0, 5))
        found.rows.append(
            {
                "request_id": f"r{row}",
                "received_at": draw(st.just(float(received)) | st.none() if rolling else st.just(float(received))),
                "ttft_ms": draw(st.none() | st.integers(0, 4).map(lambda t: t * 1000.0)),
                "trace_block_size": draw(st.sampled_from([BLOCK, BLOCK, BLOCK, None])),
                "input_length": draw(st.just(len(own) * BLOCK) | st.integers(0, (len(own) + 1) * BLOCK)),
                "decode_worker_id": draw(st.sampled_from([1, 1, 2, None])),
            }
        )
    return found


def slow(found: Drawn) -> list[int]:
    """Count on the lists, one row against all others."""

    def seen(row: dict[str, Any]) -> list[int]:
        return list(range(row["received_at"] >= CUT, (row["received_at"] + (row["ttft_ms"] or 0) / 1e3 >= CUT) + 1))

    answers = []
    for number, row in enumerate(found.rows):
        if None in (row["received_at"], row["trace_block_size"], row["decode_worker_id"]):
            answers.append(-1)
            continue
        until = row["received_at"] + (row["ttft_ms"] or 0) / 1e3
        held = [0]
        for other, another in enumerate(found.rows):
            if other == number or None in (another["received_at"], another["trace_block_size"]):
                continue
            early = (another["received_at"], other) < (row["received_at"], number) or another["received_at"] < until
            same = another["decode_worker_id"] == row["decode_worker_id"] and set(seen(row)) & set(seen(another))
            if early and same:
                both = [found.hashes[n][: found.rows[n]["input_length"] // BLOCK] for n in (number, other)]
                held.append(common(*both))
        answers.append(max(held))
    return answers


@given(drawn())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_packing_in_any_shards_gives_what_the_lists_give(found: Drawn) -> None:
    capture = Capture(name="c", scalars=pa.Table.from_pylist(found.rows, schema=SCALARS), hashes=found.chains())
    known = capture.derive(prompts)
    available = available_blocks(prefixes(capture), known, by_worker(known, lambda worker: [CUT]))
    assert available.tolist() == slow(found)


@given(drawn())
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_two_rows_share_what_their_lists_share(found: Drawn) -> None:
    rows = [row | {"received_at": 0.0, "trace_block_size": BLOCK} for row in found.rows]
    tree = prefixes(Capture(name="c", scalars=pa.Table.from_pylist(rows, schema=SCALARS), hashes=found.chains()))
    whole = [some[: row["input_length"] // BLOCK] for some, row in zip(found.hashes, rows, strict=True)]
    pairs = [(one, other) for one in range(len(rows)) for other in range(len(rows)) if one != other]
    ones, others = (np.array([pair[end] for pair in pairs], dtype=np.int64) for end in (0, 1))
    assert tree.shared(ones, others).tolist() == [common(whole[one], whole[other]) for one, other in pairs]


@given(drawn(rolling=False))
@settings(max_examples=EXAMPLES, deadline=None)
def test_hashes_that_do_not_stand_for_all_before_them_are_noticed(found: Drawn) -> None:
    before: dict[int, set[int | None]] = {}
    for some in found.hashes:
        for place, one in enumerate(some):
            before.setdefault(one, set()).add(some[place - 1] if place else None)
    _, odd = relinked(links(found.chains()), *recurring(found.chains()))
    assert (odd is not None) == any(len(some) > 1 for some in before.values())


def packed(*rows: tuple[int, int, list[int]]) -> pa.Table:
    """Rows as how far back the one above is, how many hashes both share, and the others."""
    chains = Chains(Batches(CHAINS))
    for back, shared, own in rows:
        chains.extend([back], [shared], [len(own)], array("Q", own))
    return chains.table()


@pytest.mark.parametrize(
    "prompts",
    [([1], [2], [1, 2]), ([1, 2], [1], [2]), ([1, 2], [2, 1]), ([0, 0],), ([1, 2, 3], [1, 3]), ([1], [2], [2, 1])],
)
def test_a_hash_after_another_one_than_before_is_noticed_wherever_it_stands(prompts: tuple[list[int], ...]) -> None:
    table = packed(*((0, 0, prompt) for prompt in prompts))
    assert relinked(links(table), *recurring(table))[1] is not None


def test_a_row_that_leaves_another_before_that_one_begins_is_no_part_of_it() -> None:
    # The third row is packed after the second, but has only the first block in common with it, which is the first
    # row's; the fourth has two blocks of the first row, and so of the second.
    table = packed((0, 0, [1, 2, 3]), (1, 2, [4]), (1, 1, [5]), (3, 2, [6]))
    linked, _ = relinked(links(table), *recurring(table))
    tree = grown(linked.above, linked.begin, np.array([3, 3, 2, 3]))
    ones, others = np.array([0, 0, 0, 1, 1, 2]), np.array([1, 2, 3, 2, 3, 3])
    assert tree.shared(ones, others).tolist() == [2, 1, 2, 1, 2, 1]


def not_rolling() -> Capture:
    rows = [
        {"request_id": name, "received_at": 1.0, "trace_block_size": 4, "input_length": 8, "input_tokens": 8,
         "output_tokens": 1, "decode_worker_id": 1, "source": "t.jsonl", "line": line}
        for line, name in enumerate("ab", 1)
    ]  # fmt: skip
    chains = Chains(Batches(CHAINS))
    chains.add([1, 2])
    chains.add([3, 2])
    events = [{"event": name, "t": 0.0, "policy_version": "1", "update": "u"} for name in ("transfer", "version")]
    whole = Capture(name="c", scalars=pa.Table.from_pylist(rows, schema=SCALARS), hashes=chains.table())
    return whole.replace(control_events=pa.Table.from_pylist(events, schema=whole.control_events.schema))


_WHY = "t.jsonl:1 and t.jsonl:2 have the same block hash after different blocks"


def test_reuse_of_hashes_that_are_not_rolling_is_not_observable() -> None:
    measured = measure(not_rolling(), "kv_reuse_ceiling")
    assert measured.value is None
    assert _WHY in (measured.why or "")


def test_stale_reuse_cannot_be_judged_by_hashes_that_are_not_rolling() -> None:
    result = run_check(not_rolling(), "no_stale_kv")
    assert result.status == "inconclusive"
    assert _WHY in (result.why or "")


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one_row_are_trees(rows: int) -> None:
    one = {"received_at": 0.0, "trace_block_size": 4, "input_length": 4, "decode_worker_id": 1}
    chains = Chains(Batches(CHAINS))
    for _ in range(rows):
        chains.add([7])
    capture = Capture(name="c", scalars=pa.Table.from_pylist([one] * rows, schema=SCALARS), hashes=chains.table())
    known = capture.derive(prompts)
    assert available_blocks(prefixes(capture), known, by_worker(known, lambda worker: [])).tolist() == [0] * rows
