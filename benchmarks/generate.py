"""Make a request trace as Dynamo would write it: `python benchmarks/generate.py OUT --megabytes 20 --seed 1`.

Steps of a trainer, each with groups of samples that share a prompt, each sample a session of several turns that grow
by the last answer and a tool's output, nearly always on one worker. Hashes and worker ids use all 64 bits; a segment
holds many gzip members. With `--tools`, tool calls and some payloads stand between the requests; with `--rollout`, the
framework's attempts and weight updates stand beside the trace. The same seed gives the same rows on any machine.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import with_tools
from rollout import Framework

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 16
GROUPS, SAMPLES, TURNS, WORKERS = 16, 8, 6, 8
STAYS = 0.9
"""How often a turn goes to the worker of the turn before it, as with KV routing."""
UPDATE_MS = 3000
"""Time between the last answer of a step and the first request of the next."""
SYSTEM_TOKENS, ANSWER_TOKENS = 256, (32, 512)
SHORT, LONG = ((300, 3000), (200, 1000)), ((4000, 12000), (400, 2000))
"""Tokens of a group's prompt, and of a tool's output: 4,000 and 11,000 tokens a request, in the mean."""
LINES_A_MEMBER, LINES_A_SEGMENT = 400, 4000


@dataclass
class Prompt:
    """The tokens of a conversation so far, as their block hashes: one for each block begun."""

    tokens: int = 0
    hashes: list[int] = field(default_factory=list)

    def grown(self, tokens: int, draw: random.Random) -> Prompt:
        """Return it with more tokens at its end. A block that was only begun is hashed anew."""
        whole, total = self.tokens // BLOCK, self.tokens + tokens
        fresh = [draw.getrandbits(64) for _ in range(-(-total // BLOCK) - whole)]
        return Prompt(total, [*self.hashes[:whole], *fresh])


def steps(seed: int, *, long: bool = False) -> Iterator[list[dict[str, Any]]]:
    """Yield the request_end records of a trainer's step, without end; workers drop their caches between two steps."""
    prompts, outputs = LONG if long else SHORT
    draw = random.Random(seed)
    system = Prompt().grown(SYSTEM_TOKENS, draw)
    now = 1_791_000_000_000
    workers = [draw.getrandbits(64) for _ in range(WORKERS)]
    for step in itertools.count():
        turns: list[dict[str, Any]] = []
        for group in range(GROUPS):
            prompt = system.grown(draw.randint(*prompts), draw)
            for sample in range(SAMPLES):
                name = f"step{step}-g{group:02d}-s{sample}"
                turns += _session(draw, name, prompt, workers, now, outputs=outputs)
        turns.sort(key=lambda row: row["event_time_unix_ms"])
        yield turns
        now = turns[-1]["event_time_unix_ms"] + UPDATE_MS


@dataclass(frozen=True)
class Turn:
    """One request of a session: `number` from 0, received `at` ms, with `cached` of its tokens in the cache."""

    session: str
    number: int
    prompt: Prompt
    cached: int
    answer: int
    worker: int
    at: int


def _session(
    draw: random.Random, name: str, prompt: Prompt, workers: list[int], now: int, *, outputs: tuple[int, int]
) -> Iterator[dict[str, Any]]:
    cached, at, worker = 0, now + draw.randrange(500), draw.choice(workers)
    for number in range(TURNS):
        if draw.random() > STAYS:
            cached, worker = 0, draw.choice(workers)
        turn = Turn(name, number, prompt, cached, draw.randint(*ANSWER_TOKENS), worker, at)
        row = _row(turn, draw)
        yield row
        at = row["event_time_unix_ms"] + draw.randrange(20, 400)
        cached = prompt.tokens // BLOCK * BLOCK
        prompt = prompt.grown(turn.answer + draw.randint(*outputs), draw)


def _row(turn: Turn, draw: random.Random) -> dict[str, Any]:
    prompt = turn.prompt
    wait, prefill, itl = draw.expovariate(0.5), 5 + (prompt.tokens - turn.cached) * 0.02, draw.uniform(8, 14)
    total = wait + prefill + itl * (turn.answer - 1)
    bits = f"{draw.getrandbits(128):032x}"
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": turn.at + round(total),
        "event_source": "dynamo",
        "agent_context": {"session_id": turn.session, "input_trigger": "user_message"},
        "request": {
            "request_id": f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}",
            "x_request_id": f"{turn.session}-t{turn.number}",
            "model": "synthetic",
            "input_tokens": prompt.tokens,
            "output_tokens": turn.answer,
            "cached_tokens": turn.cached,
            "request_received_ms": turn.at,
            "prefill_wait_time_ms": wait,
            "prefill_time_ms": prefill,
            "ttft_ms": wait + prefill,
            "total_time_ms": total,
            "avg_itl_ms": itl,
            "kv_hit_rate": turn.cached // BLOCK / len(prompt.hashes),
            "queue_depth": 0,
            "worker": {
                "prefill_worker_id": turn.worker,
                "prefill_dp_rank": 0,
                "decode_worker_id": turn.worker,
                "decode_dp_rank": 0,
            },
            "replay": {
                "trace_block_size": BLOCK,
                "input_length": prompt.tokens,
                "input_sequence_hashes": prompt.hashes,
            },
            "finish_reason_metadata": {
                "finish_reason": "stop",
                "backend_finish_reason": "eos",
                "choices": [{"choice_index": 0, "finish_reason": "stop"}],
            },
        },
    }


def write(
    folder: Path, megabytes: float, seed: int = 1, *, rollout: bool = False, tools: bool = False, long: bool = False
) -> int:
    """Write segments with that much JSON, counted before compression, into `folder`; return the number of rows.

    A rollout ends with a whole step, and with the framework's records beside the trace.
    """
    folder.mkdir(parents=True, exist_ok=True)
    framework = Framework(folder) if rollout else None
    began, size, count, member, harness = 0, 0, 0, [], random.Random(seed)
    for step, rows in enumerate(steps(seed, long=long)):
        began = began or rows[0]["event_time_unix_ms"]
        written = list(with_tools(rows, harness)) if tools else rows
        for row in written:
            wrapped = {"timestamp": row["event_time_unix_ms"] - began, "event": row}
            line = json.dumps(wrapped, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
            member.append(line)
            size, count = size + len(line), count + 1
            full = size >= megabytes * 1e6 and (framework is None or row is written[-1])
            if full or len(member) == LINES_A_MEMBER:
                segment = folder / f"request-trace.{(count - 1) // LINES_A_SEGMENT:06d}.jsonl.gz"
                with segment.open("ab") as file:
                    file.write(gzip.compress(b"".join(member), 6, mtime=0))
                member = []
            if full:
                break
        if framework is not None:
            framework.step(step, rows)
        if full:
            return count
    return count


def main() -> None:
    """Write as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of the capture")
    parser.add_argument("--megabytes", type=float, default=20, help="JSON before compression (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true", help="prompts of 11,000 tokens in the mean, not 4,000")
    parser.add_argument("--tools", action="store_true", help="with tool calls and payloads between the requests")
    parser.add_argument("--rollout", action="store_true", help="with the framework's attempts and weight updates")
    given = parser.parse_args()
    kinds = {"rollout": given.rollout, "tools": given.tools, "long": given.long}
    print(f"{write(given.out, given.megabytes, given.seed, **kinds):,} rows")


if __name__ == "__main__":
    main()
