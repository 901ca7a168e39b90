"""A client that asks of a Dynamo frontend what a synchronous RL trainer asks, and records it.

Each step dispatches all its samples at once as multi-turn attempts; some are canceled, lose patience or meet a model
that does not exist. At the step's end the trainer takes the groups whose rewards differ, and new weights follow. What
is asked is drawn from a seed, so that runs differ only in how they were served.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import aiohttp
from tiny_model import WORDS

if TYPE_CHECKING:
    from dynamo_stack import Stack

Outcome = Literal["completed", "canceled", "failed"]
Tags = dict[str, Any]  # the fields that name an attempt in its records


class Recorder(Protocol):
    """AttemptRecorder and ControlRecorder; a trainer without the package loads their file by path."""

    def emit(self, event: str, *, t: float | None = None, **fields: object) -> None: ...


@dataclass(frozen=True)
class Workload:
    """What a run asks for; lengths are in words, which are tokens here."""

    seed: int = 7
    steps: int = 2
    groups: int = 8
    samples: int = 6
    turns: int = 3
    system_words: int = 120
    prompt_words: tuple[int, int] = (300, 700)
    tool_words: tuple[int, int] = (100, 250)
    answer_words: tuple[int, int] = (24, 96)
    tool_seconds: tuple[float, float] = (0.01, 0.05)
    # Of every 16 samples these meet something: their number in the step, modulo 16.
    canceled: int = 5
    impatient: int = 9
    misdirected: int = 13

    def random(self, *place: object) -> random.Random:
        """The random numbers of one place in the run, the same in every run."""
        return random.Random("/".join(map(str, (self.seed, *place))))


class Answer(NamedTuple):
    """How one request ended, and the text that had come by then."""

    outcome: Outcome
    text: str = ""


@dataclass
class Rollouts:
    """One run. `counts` is the client's own count of what it did, kept apart from the records."""

    stack: Stack
    model: str
    workload: Workload
    attempts: Recorder
    control: Recorder
    counts: Counter[str] = field(default_factory=Counter)
    policy: int = 0

    async def run(self) -> None:
        """Roll out every step, with a weight update between two."""
        for worker in self.stack.worker_ids:
            self.control.emit("version", update=0, worker_id=worker, policy_version=self.policy)
            self.control.emit("ready", update=0, worker_id=worker, policy_version=self.policy)
        everything_at_once = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self.stack.url, connector=everything_at_once) as self._http:
            for step in range(self.workload.steps):
                if step:
                    await self._update_weights()
                self.control.emit("step_started", step=step, policy_version=self.policy)
                await self._step(step)
                self.control.emit("step_finished", step=step, policy_version=self.policy)

    async def _update_weights(self) -> None:
        update = {"update": self.policy + 1, "policy_version": self.policy + 1}
        before = self.stack.worker_ids
        self.control.emit("gate_closed", **update)
        for event in ("pause", "transfer_started"):
            for worker in before:
                self.control.emit(event, worker_id=worker, **update)
        await asyncio.sleep(0.2)  # stands for the transfer itself
        for worker in before:
            self.control.emit("transfer_finished", worker_id=worker, status="ok", **update)
        replaced = await asyncio.to_thread(self.stack.restart_workers)
        for worker, old in replaced.items():
            self.control.emit("cache_reset", worker_id=worker, replaced_worker_id=old, reason="restart", **update)
            for event in ("version", "ready", "resume"):
                self.control.emit(event, worker_id=worker, **update)
        self.control.emit("gate_opened", **update)
        self.policy += 1

    async def _step(self, step: int) -> None:
        groups = [self._group(step, group) for group in range(self.workload.groups)]
        *decided, _ = await asyncio.gather(*groups, self._evaluate(step))
        for finished in decided:  # acceptance comes when the step's batch is complete
            rewards = {reward for _, reward in finished}
            for tags, reward in finished:
                if len(rewards) > 1:
                    self._tell("accepted", **tags, reward=reward, trained_version=self.policy)
                else:
                    self._tell("rejected", **tags, reward=reward, reason="zero_variance_group")

    async def _group(self, step: int, group: int) -> list[tuple[Tags, float]]:
        """Prime the prompt, then roll out its samples; give back the completed attempts with their rewards."""
        prompt = [
            {"role": "system", "content": _words(self.workload.random("system"), self.workload.system_words)},
            {"role": "user", "content": _words(self.workload.random(step, group), *self.workload.prompt_words)},
        ]
        name = f"s{step}-g{group}"
        primer = {"step": step, "group_id": name, "attempt_id": f"{name}-prime", "session_id": name}
        await self._ask({**primer, "purpose": "prefix_prime"}, f"{name}-prime", prompt, 1)
        samples = range(self.workload.samples)
        ended = await asyncio.gather(*(self._sample(step, group, sample, prompt) for sample in samples))
        return [
            (tags, self._reward(step, group, sample)) for sample, tags in zip(samples, ended, strict=True) if tags
        ]

    def _reward(self, step: int, group: int, sample: int) -> float:
        """One group in each step is too easy: all its rewards are 1, and it teaches nothing."""
        return 1.0 if group == 0 else float((sample + step) % 2)

    async def _sample(self, step: int, group: int, sample: int, prompt: list[Tags]) -> Tags | None:
        """Try until an attempt completes or is canceled; a failed one is retried once, as a new attempt."""
        name = f"s{step}-g{group}-n{sample}"
        tags = {"step": step, "group_id": f"s{step}-g{group}", "sample_id": name, "target_policy": self.policy}
        fault = (group * self.workload.samples + sample) % 16
        for retry in range(2):
            mine = {**tags, "attempt_id": f"{name}-a{retry}", "session_id": f"{name}-a{retry}"}
            if retry:
                self._tell("retried", **mine, retry_of=f"{name}-a{retry - 1}", reason="failed")
            self._tell("dispatched", **mine)
            outcome = await self._attempt(mine, self.workload.random(name), prompt, -1 if retry else fault)
            self._tell(outcome, **mine, turns=self.workload.turns if outcome == "completed" else None)
            if outcome == "completed":
                return mine
            if outcome == "canceled":
                return None
        return None

    async def _attempt(self, tags: Tags, draw: random.Random, prompt: list[Tags], fault: int) -> Outcome:
        messages = [*prompt]
        work = self.workload
        for turn in range(work.turns):
            length = draw.randint(*work.answer_words)
            request = f"{tags['attempt_id']}-t{turn}"
            if turn == 1 and fault == work.impatient:
                await self._ask(tags, request, messages, length, patience=0.008)
                self._tell("retried", **tags, level="request", x_request_id=f"{request}-r1", retry_of=request)
                request += "-r1"
            model = "no-such-model" if turn == 1 and fault == work.misdirected else self.model
            cancel_at = length // 2 if turn == 1 and fault == work.canceled else None
            answer = await self._ask(tags, request, messages, length, model=model, cancel_at=cancel_at)
            if answer.outcome != "completed":
                return answer.outcome
            await asyncio.sleep(draw.uniform(*work.tool_seconds))
            messages.append({"role": "assistant", "content": answer.text})
            messages.append({"role": "user", "content": _words(draw, *work.tool_words)})
        return "completed"

    async def _evaluate(self, step: int) -> None:
        """One request with n=2, which belongs to no sample. Dynamo serves it and traces it not."""
        await asyncio.sleep(0.3)
        name = f"s{step}-evaluation"
        tags = {"step": step, "attempt_id": name, "session_id": name, "purpose": "evaluation"}
        question = {"role": "user", "content": _words(self.workload.random(name), 200)}
        await self._ask(tags, name, [question], 24, n=2)

    async def _ask(
        self,
        tags: Tags,
        name: str,
        messages: list[Tags],
        max_tokens: int,
        *,
        model: str | None = None,
        n: int = 1,
        patience: float | None = None,
        cancel_at: int | None = None,
    ) -> Answer:
        """Send one request and follow its stream, for at most `patience` seconds to the first token."""
        tags = {**tags, "level": "request", "x_request_id": name}
        self._tell("dispatched", **tags, n=n)
        body = {"model": model or self.model, "messages": messages, "max_tokens": max_tokens, "n": n}
        stream = _Stream(time.perf_counter())
        outcome, reason = await self._follow(stream, tags, body, patience, cancel_at)
        self._tell(outcome, **tags, **stream.seen, latency_ms=stream.milliseconds(), reason=reason)
        return Answer(outcome, "".join(stream.texts))

    async def _follow(
        self, stream: _Stream, tags: Tags, body: Tags, patience: float | None, cancel_at: int | None
    ) -> tuple[Outcome, str | None]:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"x-request-id": tags["x_request_id"], "x-dynamo-session-id": tags["session_id"]}
        try:
            async with (
                asyncio.timeout(patience) as waiting,
                self._http.post("/v1/chat/completions", json=body, headers=headers) as response,
            ):
                stream.seen["http_status"] = response.status
                if response.status != 200:
                    return "failed", f"http_{response.status}"
                async for line in response.content:
                    if stream.take(line):
                        waiting.reschedule(None)
                    if len(stream.texts) == cancel_at:
                        return "canceled", "client_abort"  # leaving closes the connection: the server sees it
        except TimeoutError:
            return "canceled", "first_token_timeout"
        except aiohttp.ClientError as error:
            return "failed", type(error).__name__
        return ("completed", None) if "finish_reason" in stream.seen else ("failed", "stream_ended_early")

    def _tell(self, event: str, *, level: str = "attempt", **fields: object) -> None:
        self.counts[f"{level}.{event}"] += 1
        if event == "dispatched" and fields.get("n") == 2:
            self.counts["request.n2"] += 1
        if fields.get("http_status") == 404:
            self.counts["request.http_404"] += 1
        if fields.get("reason") == "first_token_timeout":
            self.counts["request.first_token_timeout"] += 1
        self.attempts.emit(event, level=level, **fields)


@dataclass
class _Stream:
    """What a client learns from the server-sent events of one answer."""

    begun: float
    seen: Tags = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def milliseconds(self) -> float:
        return (time.perf_counter() - self.begun) * 1000

    def take(self, line: bytes) -> bool:
        """Read one line of the stream; true when it brought text."""
        if not line.startswith(b"data: {"):
            return False
        event = json.loads(line[6:])
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
                self.seen.setdefault("ttft_ms", self.milliseconds())
                self.texts.append(text)
        return len(self.texts) > came


def _words(draw: random.Random, least: int, most: int | None = None) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most or least)))
