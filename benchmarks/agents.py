"""What an agent's harness adds to a trace: tool calls between the turns, and now and then the record of a payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

Row = dict[str, Any]
WORDS = (
    "def", "return", "import", "error\n", "value", '"q"', "\\", "as", "self", "π≈3.14", '{"cmd":"ls","n":1}',
    "a ? b : c", "naïve", "数据", "🙂",
)  # fmt: skip
PAYLOADS, PAYLOAD_WORDS = 0.02, (1000, 9000)
"""How many requests have their payload recorded, and how long it is."""
FAILS = 0.05


def with_tools(rows: list[Row], draw: random.Random) -> Iterator[Row]:
    """Yield a step's requests, each after its payload if that is recorded, and followed by a tool call."""
    for row in rows:
        if draw.random() < PAYLOADS:
            yield _payload(row, draw)
        yield row
        yield from _call(row, draw)


def _call(row: Row, draw: random.Random) -> Iterator[Row]:
    start, took = row["event_time_unix_ms"] + 1, draw.expovariate(1 / 300)
    bits = f"{draw.getrandbits(128):032x}"
    tool = {"tool_call_id": f"call-{bits}", "tool_class": draw.choice(("bash", "edit", "search"))}
    tool["started_at_unix_ms"] = start
    yield _record(row, "tool_start", start, tool=tool | {"status": "running"})
    end = start + round(took)
    tool |= {"ended_at_unix_ms": end, "duration_ms": took, "output_bytes": draw.randrange(20_000)}
    if draw.random() < FAILS:
        yield _record(row, "tool_error", end, tool=tool | {"status": "error", "error_type": "TimeoutError"})
    else:
        yield _record(row, "tool_end", end, tool=tool | {"status": "succeeded"})


def _payload(row: Row, draw: random.Random) -> Row:
    text = " ".join(draw.choices(WORDS, k=draw.randint(*PAYLOAD_WORDS)))
    request = {"model": "synthetic", "messages": [{"role": "user", "content": text}], "stream": True}
    of = row["request"]["request_id"]
    return _record(row, "request_payload", row["event_time_unix_ms"], payload={"request_id": of, "request": request})


def _record(row: Row, kind: str, at: int, **part: Row) -> Row:
    same = {name: row[name] for name in ("schema", "agent_context")}
    return {**same, "event_type": kind, "event_time_unix_ms": at, "event_source": "harness", **part}
