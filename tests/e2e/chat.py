"""One streamed chat request, and what a client sees of its answer."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

Outcome = Literal["completed", "canceled", "failed"]


@dataclass(frozen=True)
class Question:
    """What to ask, and when to leave before the answer is complete."""

    model: str
    messages: list[dict[str, str]]
    max_tokens: int
    n: int = 1
    patience: float | None = None  # seconds to wait for the first token
    cancel_at: int | None = None  # tokens of the answer after which to leave


@dataclass
class Answer:
    """How a request ended, the text that came, and the record fields that the client learnt on the way."""

    outcome: Outcome = "failed"
    reason: str | None = None
    texts: list[str] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=time.perf_counter)

    def ends(self, outcome: Outcome, reason: str | None = None) -> None:
        """Set how the request ended, and its latency."""
        self.outcome, self.reason = outcome, reason
        self.seen["latency_ms"] = self._milliseconds()

    def take(self, line: bytes) -> bool:
        """Read one line of the stream; true when it brought text. A token comes as one text."""
        event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        if "id" in event:
            self.seen["response_id"] = event["id"]
        if usage := event.get("usage"):
            self.seen["prompt_tokens"] = usage["prompt_tokens"]
            self.seen["output_tokens"] = usage["completion_tokens"]
            self.seen["cached_tokens"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        came = len(self.texts)
        for choice in event.get("choices", ()):
            if choice.get("finish_reason"):
                self.seen["finish_reason"] = choice["finish_reason"]
            if text := choice["delta"].get("content"):
                self.seen.setdefault("ttft_ms", self._milliseconds())
                self.texts.append(text)
        return len(self.texts) > came

    def _milliseconds(self) -> float:
        return (time.perf_counter() - self._begun) * 1000


async def ask(http: aiohttp.ClientSession, question: Question, headers: dict[str, str]) -> Answer:
    """Send one request and follow its stream to the end or until the client leaves."""
    answer = Answer()
    body = {"model": question.model, "messages": question.messages, "max_tokens": question.max_tokens}
    body |= {"n": question.n, "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with (
            asyncio.timeout(question.patience) as waiting,
            http.post("/v1/chat/completions", json=body, headers=headers) as response,
        ):
            answer.seen["http_status"] = response.status
            if response.status != 200:
                answer.ends("failed", f"http_{response.status}")
                return answer
            async for line in response.content:
                if answer.take(line):
                    waiting.reschedule(None)
                if len(answer.texts) == question.cancel_at:
                    answer.ends("canceled", "client_abort")  # leaving the block closes the connection
                    return answer
    except TimeoutError:
        answer.ends("canceled", "first_token_timeout")
    except aiohttp.ClientError as error:
        answer.ends("failed", type(error).__name__)
    else:
        if "finish_reason" in answer.seen:
            answer.ends("completed")
        else:
            answer.ends("failed", "stream_ended_early")
    return answer
