"""A slow count of KV reuse with Python sets: what the tests hold the package's arrays against.

Written from the definitions, sharing no code with the package, one request against all others. Records are plain
dicts: `request` parts of rows with their session, control events, and the engine's cached tokens by request id.

    python tests/kv_oracle.py CAPTURE...    reuse, ceilings and losses of completed requests
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle import Line, join, pair, read, read_by_time

Cell = tuple[Any, ...]


@dataclass
class Prompt:
    """One row, and what the count finds for it, in tokens."""

    name: str
    session: str | None
    worker: str | None
    cache: Cell | None
    model: str | None
    block: int
    blocks: list[int]
    length: int
    tokens: int
    output: int
    received: float
    first: float
    ended: float
    cached: int | None
    completed: bool
    found: Line = field(default_factory=dict)


def prompt(row: Line, cached: int | None = None, completed: bool = True) -> Prompt:
    """Take one `request_end` record; a row without hashes has no blocks to share and is left to the caller."""
    request = row["request"]
    replay, worker = request["replay"], request.get("worker") or {}
    own = worker.get("prefill_worker_id", worker.get("decode_worker_id"))
    rank = worker.get("prefill_dp_rank", worker.get("decode_dp_rank", 0))
    size, length = replay["trace_block_size"], replay["input_length"]
    received = request["request_received_ms"] / 1000
    ttft = request.get("ttft_ms")
    return Prompt(
        name=request["request_id"],
        session=row.get("agent_context", {}).get("session_id"),
        worker=None if own is None else str(own),
        cache=None if own is None else (own, rank),
        model=request.get("model"),
        block=size,
        blocks=replay["input_sequence_hashes"][: length // size],
        length=length,
        tokens=request.get("input_tokens", length),
        output=request.get("output_tokens", -1),
        received=received,
        first=received if ttft is None else received + ttft / 1e3,
        ended=row["event_time_unix_ms"] / 1000,
        cached=cached,
        completed=completed,
    )


def story(control: list[Line], worker: str) -> Line:
    """What one worker went through: versions, changes of version, cache resets, and the valid ones of these."""
    updates = defaultdict(list)
    for event in sorted(control, key=lambda event: float(event["t"])):
        if "update" in event:
            updates[event["update"]].append(event)
    told: Line = {"versions": [], "opening": set(), "resets": [], "valid": []}
    seen: set[str] = set()
    for events in sorted(updates.values(), key=lambda events: float(events[0]["t"])):
        kinds = {event["event"] for event in events}
        ids = {str(event["worker_id"]) for event in events if "worker_id" in event}
        ids |= {str(event["replaced_worker_id"]) for event in events if "replaced_worker_id" in event}
        moving = {"gate_closed", "pause", "transfer_started", "transfer", "transfer_finished", "cache_reset"}
        opening = "version" in kinds and not kinds & moving and not seen & ids
        seen |= ids
        mine = {worker}
        for event in events:
            pairing = {str(event.get("worker_id")), str(event.get("replaced_worker_id"))}
            if "replaced_worker_id" in event and worker in pairing:
                mine |= pairing
        own = [
            event
            for event in events
            if event.get("status", "ok") == "ok" and ("worker_id" not in event or str(event["worker_id"]) in mine)
        ]
        sent = [event["t"] for event in own if event["event"] in ("transfer", "transfer_finished")]
        sent = sent or [event["t"] for event in own if event["event"] == "transfer_started"]
        for event in own:
            if event["event"] == "version":
                told["versions"].append((event["t"], str(event["policy_version"])))
                told["opening"] |= {event["t"]} if opening else set()
            elif event["event"] == "cache_reset":
                told["resets"].append(event["t"])
                if not sent or event["t"] >= max(sent):
                    told["valid"].append(event["t"])
    told["versions"].sort()
    told["versions"] = [v for n, v in enumerate(told["versions"]) if not n or v[1] != told["versions"][n - 1][1]]
    told["changes"] = [t for t, _ in told["versions"] if t not in told["opening"]]
    return told


def epochs(cuts: list[float], prompt: Prompt) -> range:
    """The epochs from a prompt's receipt to its first token."""
    return range(sum(t <= prompt.received for t in cuts), sum(t <= prompt.first for t in cuts) + 1)


@dataclass
class Caches:
    """Which prompts met which cache."""

    cells: dict[str, set[Cell]]
    prompts: dict[Cell, list[Prompt]]
    """In the order of arrival."""


def caches(prompts: list[Prompt], cells: dict[str, set[Cell]]) -> Caches:
    found = defaultdict(list)
    for prompt in sorted(prompts, key=lambda p: (p.received, p.name)):
        for cell in cells[prompt.name]:
            found[cell].append(prompt)
    return Caches(cells, found)


def before(one: Prompt, other: Prompt) -> bool:
    return (one.received, one.name) < (other.received, other.name)


def reach(met: Caches, one: Prompt) -> tuple[int, int]:
    """Tokens that a prompt could find for certain, and those it may find if it repeats whole turns."""
    best = 0
    for cell in met.cells[one.name]:
        there: set[int] = set()
        for other in met.prompts[cell]:
            if other is not one and (before(other, one) or other.received < one.first):
                there |= set(other.blocks)
        leading = 0
        for block in one.blocks:
            if block not in there:
                break
            leading += 1
        best = max(best, leading)
    certain = possible = best * one.block
    for cell in met.cells[one.name] if one.session is not None else ():
        for turn in reversed([other for other in met.prompts[cell] if other.session == one.session]):
            whole = one.blocks[: len(turn.blocks)] == turn.blocks and turn.block == one.block and turn.output > 0
            if whole and before(turn, one) and turn.ended <= one.first and turn.length <= one.length:
                end = min(turn.length + turn.output - 1, one.length) // one.block * one.block
                possible = max(possible, end)
                if turn.length <= best * one.block:
                    certain = max(certain, end)
                    break
    return certain, possible


def count(prompts: list[Prompt], control: list[Line]) -> list[Prompt]:
    """Fill in what every prompt could have found, and what it should not have found."""
    stories = {prompt.worker: story(control, prompt.worker) for prompt in prompts if prompt.worker is not None}
    anywhere = sorted(load for told in stories.values() for load in told["versions"])
    models = {prompt.model for prompt in prompts} - {None}
    first_seen = {w: min(p.received for p in prompts if p.worker == w) for w in stories}

    def visited(cut: str) -> Caches:
        found = {}
        for prompt in prompts:
            told = stories.get(prompt.worker or "")
            cuts = [] if told is None else sorted(set(told["resets"]) | set(told["changes"]))
            cuts = cuts if cut == "all" or told is None else told[cut]
            found[prompt.name] = {(prompt.cache, n) for n in epochs(cuts, prompt)} if told else set()
        return caches(prompts, found)

    shared: dict[str, set[Cell]] = {}
    for prompt in prompts:
        loads = stories[prompt.worker]["versions"] if prompt.worker is not None else anywhere
        versions = [None, *(version for _, version in loads)]
        kind = (prompt.model if len(models) > 1 else None, prompt.block)
        shared[prompt.name] = {(kind, versions[n]) for n in epochs([t for t, _ in loads], prompt)}
    anyones, own, current, lasting = caches(prompts, shared), visited("all"), visited("changes"), visited("valid")
    for prompt in prompts:
        reused = -1 if prompt.cached is None else prompt.cached
        certain, possible = reach(anyones, prompt)
        prompt.found["fleet"] = max(certain, min(reused, possible))
        if prompt.worker is None:
            continue
        certain, possible = reach(own, prompt)
        prompt.found["worker"] = max(certain, min(reused, possible))
        if prompt.cached is None or prompt.cached > prompt.tokens:
            continue
        now, kept = reach(current, prompt)[1], reach(lasting, prompt)[1]
        beyond = reused - now >= prompt.block
        prompt.found["stale"] = max(min(reused, kept) - now, 0) if beyond else 0
        rest = reused - max(now, min(reused, kept)) if beyond else 0
        told = stories[prompt.worker]
        starts = [*told["resets"], *(t for t, _ in told["versions"])]
        since = min(told["changes"], default=float("inf"))
        unseen = not any(t <= first_seen[prompt.worker] for t in starts) and prompt.received < since
        prompt.found["unexplained"] = 0 if rest < prompt.block or unseen else rest
    return prompts


def prompts_of(path: Path) -> tuple[list[Prompt], list[Line]]:
    """Every hashed prompt of a capture directory, and its control events."""
    lines = [line for file in sorted(path.glob("request-trace*")) for line in read(file)[0]]
    events = [line.get("event", line) for line in lines]
    rows = [event for event in events if event["event_type"] == "request_end"]
    requests = pair([line for line in read_by_time(path, "attempts") if line.get("level") == "request"])
    join(rows, requests)
    owner = {id(request.row): request for request in requests if request.row is not None}
    times = Counter(request.row["request_id"] for request in owner.values() if request.row)
    prompts = []
    for row in rows:
        request = owner.get(id(row["request"]))
        if "input_sequence_hashes" not in row["request"].get("replay", {}):
            continue
        done = request is not None and request.outcome == "completed"
        said = request.ended.get("cached_tokens") if request and times[row["request"]["request_id"]] == 1 else None
        prompts.append(prompt(row, said, done))
    return prompts, read_by_time(path, "control")


def shares(prompts: list[Prompt]) -> Line:
    """Reuse, ceilings and losses over completed requests, as shares of their prompt tokens."""
    done = [prompt for prompt in prompts if prompt.completed]
    whole = sum(prompt.tokens for prompt in done)
    reused = sum(prompt.cached or 0 for prompt in done) / whole
    fleet, worker = (sum(prompt.found[name] for prompt in done) / whole for name in ("fleet", "worker"))
    return {
        "requests": len(done),
        "reuse": reused,
        "ceiling": fleet,
        "worker_ceiling": worker,
        "routing_loss": fleet - worker,
        "eviction_loss": worker - reused,
        "stale": sum(prompt.found.get("stale", 0) for prompt in prompts),
        "unexplained": sum(prompt.found.get("unexplained", 0) for prompt in prompts),
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        figures = shares(count(*prompts_of(Path(name))))
        print(Path(name).name, {key: round(value, 4) for key, value in figures.items()})
