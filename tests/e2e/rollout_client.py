"""A client that asks of a Dynamo frontend what a synchronous RL trainer asks, and records it.

Each step dispatches all its samples at once as multi-turn attempts; some are canceled, lose patience or meet a model
that does not exist. At the step's end the trainer takes the groups whose rewards differ, and new weights follow. What
is asked is drawn from a seed, so that runs differ only in how they were served.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
from chat import Question, ask
from tiny_model import WORDS

if TYPE_CHECKING:
    from chat import Answer, Outcome
    from dynamo_stack import Stack

Tags = dict[str, Any]  # the fields that name an attempt in its records
Messages = list[dict[str, str]]


class Recorder(Protocol):
    """AttemptRecorder and ControlRecorder; a trainer without the package loads their file by path."""

    def emit(self, event: str, *, t: float | None = None, **fields: Any) -> None: ...


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


@dataclass
class Rollouts:
    """One run. `counts` is the client's own count of what it did, kept apart from the records."""

    stack: Stack
    model: str
    workload: Workload
    attempts: Recorder
    control: Recorder
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {"attempts": Counter(), "requests": Counter()})
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
        evaluation = asyncio.create_task(self._evaluate(step))
        groups = await asyncio.gather(*(self._group(step, group) for group in range(self.workload.groups)))
        await evaluation
        for finished in groups:  # acceptance comes when the step's batch is complete
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
        await self._ask({**primer, "purpose": "prefix_prime"}, f"{name}-prime", Question(self.model, prompt, 1))
        samples = range(self.workload.samples)
        ended = await asyncio.gather(*(self._sample(step, group, sample, prompt) for sample in samples))
        return [(tags, self._reward(step, group, sample)) for sample, tags in zip(samples, ended, strict=True) if tags]

    def _reward(self, step: int, group: int, sample: int) -> float:
        """One group in each step is too easy: all its rewards are 1, and it teaches nothing."""
        return 1.0 if group == 0 else float((sample + step) % 2)

    async def _sample(self, step: int, group: int, sample: int, prompt: Messages) -> Tags | None:
        """Try until an attempt completes or is canceled; a failed one is retried once, as a new attempt."""
        name = f"s{step}-g{group}-n{sample}"
        tags = {"step": step, "group_id": f"s{step}-g{group}", "sample_id": name, "target_policy": self.policy}
        tags["parent_session_id"] = tags["group_id"]  # the primer's session, so that the parent has a row too
        fault = (group * self.workload.samples + sample) % 16
        for retry in range(2):
            mine: Tags = {**tags, "attempt_id": f"{name}-a{retry}", "session_id": f"{name}-a{retry}"}
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

    async def _attempt(self, tags: Tags, draw: random.Random, prompt: Messages, fault: int) -> Outcome:
        messages = [*prompt]
        for turn in range(self.workload.turns):
            request = f"{tags['attempt_id']}-t{turn}"
            question = Question(self.model, messages, draw.randint(*self.workload.answer_words))
            answer = await self._ask(tags, request, self._faulty(question, fault) if turn == 1 else question)
            if answer.reason == "first_token_timeout":
                self._tell("retried", **tags, level="request", x_request_id=f"{request}-r1", retry_of=request)
                answer = await self._ask(tags, f"{request}-r1", question)
            if answer.outcome != "completed":
                return answer.outcome
            await asyncio.sleep(draw.uniform(*self.workload.tool_seconds))
            messages.append({"role": "assistant", "content": "".join(answer.texts)})
            messages.append({"role": "user", "content": _words(draw, *self.workload.tool_words)})
        return "completed"

    def _faulty(self, question: Question, fault: int) -> Question:
        if fault == self.workload.canceled:
            return replace(question, cancel_at=question.max_tokens // 2)
        if fault == self.workload.impatient:
            return replace(question, patience=0.008)  # far below what any first token takes
        if fault == self.workload.misdirected:
            return replace(question, model="no-such-model")
        return question

    async def _evaluate(self, step: int) -> None:
        """One request with n=2, which belongs to no sample. Dynamo serves it and traces it not."""
        await asyncio.sleep(0.3)
        name = f"s{step}-evaluation"
        tags = {"step": step, "attempt_id": name, "session_id": name, "purpose": "evaluation"}
        question = {"role": "user", "content": _words(self.workload.random(name), 200)}
        await self._ask(tags, name, Question(self.model, [question], 24, n=2))

    async def _ask(self, tags: Tags, name: str, question: Question) -> Answer:
        tags = {**tags, "level": "request", "x_request_id": name}
        self._tell("dispatched", **tags, n=question.n)
        headers = {"x-request-id": name, "x-dynamo-session-id": tags["session_id"]}
        if "parent_session_id" in tags:
            headers["x-dynamo-parent-session-id"] = tags["parent_session_id"]
        answer = await ask(self._http, question, headers)
        self._tell(answer.outcome, **tags, **answer.seen, reason=answer.reason)
        return answer

    def _tell(self, event: str, *, level: str = "attempt", **fields: Any) -> None:
        counts = self.counts[f"{level}s"]
        counts[event] += 1
        # Those that Dynamo's tracer leaves out, or may leave out.
        counts["n2"] += event == "dispatched" and fields.get("n") == 2
        counts["http_404"] += fields.get("http_status") == 404
        counts["first_token_timeout"] += fields.get("reason") == "first_token_timeout"
        self.attempts.emit(event, level=level, **fields)


def _words(draw: random.Random, least: int, most: int | None = None) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most or least)))
