"""prime-rl's `rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl` and `metrics.jsonl` (559b4477, 2026-08-21).

A line of `traces.jsonl` is an episode (verifiers 0.4.0), and an episode is one attempt. `all` has every episode that
ended, `effective` those that step N shipped to the trainer, which makes them accepted; their lag is the framework's
own, (N − 1) − the version at the start. The path tells them apart, so keep the folders or name the files alike. The
id of each of its traces is the session that Dynamo records: prime-rl is joined with rows exactly.

Limits: an episode that was canceled in flight is only counted, in `metrics.jsonl`, so neither the dispatched nor the
canceled are known. An episode that is in `all` and not in `effective` was filtered, dropped, or is not shipped yet;
nothing says which, so it stays without a decision. Tries inside an episode are its own affair. Times of acceptance
are not recorded. Episodes of an evaluation are attempts with the purpose `eval`, and are never accepted. Tokens are
the sums over the episode's calls, cached ones counted as prompt; prompts, completions and messages are not kept.

Detected by `traces` and `run`; `metrics.jsonl` by `step`, `time` and a name with a slash. Its numbers go to
`step_metrics`; the end of the step and the version it served go to the control events.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Amount, Count, Id, RecordReader, Whole, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "prime_rl"
METRICS = "prime_rl.metrics"
_JOINS = "prime-rl sends the trace's id as X-Session-ID: see that no proxy takes it out, and that both are of one run"
_SHIPPED = re.compile(r"step_(?P<step>\d+)\D.*effective")
_LAYERS = len(("step_N", "train", "effective", "traces.jsonl"))
_OUTCOMES = ("completed", "failed", "policy", "tokens")
_VERSION = "watcher/policy_version"


class _Group(msgspec.Struct):
    id: Id | None = None


class _Policy(msgspec.Struct):
    start: Id | None = None
    end: Id | None = None


class _Work(msgspec.Struct):
    type: str | None = None
    step: Whole | None = None
    policy: _Policy = msgspec.field(default_factory=_Policy)


class _Run(msgspec.Struct):
    work: _Work
    id: Id | None = None


class _Span(msgspec.Struct):
    start: Amount = 0.0
    end: Amount = 0.0


class _Timing(msgspec.Struct):
    start: Amount = 0.0
    agent: _Span = msgspec.field(default_factory=_Span)
    finalize: _Span = msgspec.field(default_factory=_Span)
    scoring: _Span = msgspec.field(default_factory=_Span)


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_input_tokens: Count = 0


class _Call(msgspec.Struct):
    usage: _Usage | None = None
    finish_reason: str | None = None


class _Reward(msgspec.Struct):
    score: float
    weight: float = 1.0


class _Trace(msgspec.Struct):
    id: Id
    timing: _Timing = msgspec.field(default_factory=_Timing)
    calls: list[_Call] = []
    rewards: dict[str, _Reward] = {}


class _Error(msgspec.Struct):
    type: str | None = None


class _Episode(msgspec.Struct):
    id: Id
    run: _Run
    ok: bool
    is_timeout: bool = False
    errors: list[_Error] = []
    traces: list[_Trace] = []
    group: _Group = msgspec.field(default_factory=_Group)


@reader(FORMAT, covers=("accepted", *_OUTCOMES), joins=_JOINS)
def recognises(head: Head) -> bool:
    """Recognise an episode."""
    row = head.row or {}
    return isinstance(row.get("traces"), list) and isinstance(row.get("run"), dict) and "ok" in row


@recognises.read
def read(file: File) -> Content:
    """Read the episodes of one step: what became of them from `all`, which were accepted from `effective`."""
    rows = RecordReader(file, FORMAT, _Episode, "attempt_events")
    shipped = _SHIPPED.search("/".join(file.path.parts[-_LAYERS:]))
    rows.content.covers = ("accepted", "policy") if shipped else _OUTCOMES
    for line, episode in rows.records():
        for event in _accepted(episode, int(shipped["step"])) if shipped else _lived(episode):
            rows.put("attempt_events", line, _about(episode) | event)
        rows.count("episode")
    return rows.done()


def _about(episode: _Episode) -> dict[str, Any]:
    work = episode.run.work
    return {
        "level": "attempt",
        "run": text(episode.run.id),
        "group_id": text(episode.group.id),
        "sample_id": text(episode.id),
        "attempt_id": text(episode.id),
        "policy": text(work.policy.start),
        "policy_end": text(work.policy.end),
        "purpose": "eval" if work.type == "eval" else None,
    }


def _accepted(episode: _Episode, step: int) -> list[dict[str, Any]]:
    if episode.run.work.type == "eval":
        return []
    return [{"event": "accepted", "step": step, "trained_version": str(step - 1), "reward": _reward(episode)}]


def _lived(episode: _Episode) -> list[dict[str, Any]]:
    """Return when an episode was dispatched, and how it ended."""
    sessions = [str(trace.id) for trace in episode.traces]
    starts = [trace.timing.start for trace in episode.traces if trace.timing.start]
    ends = [end for trace in episode.traces if (end := _end(trace.timing))]
    keys = {"session_id": sessions[0]} if len(sessions) == 1 else {"session_ids": sessions}
    dispatched = {"event": "dispatched", "t": min(starts, default=None), "step": episode.run.work.step}
    ended = {"event": "completed" if episode.ok else "failed", "t": max(ends, default=None), "reason": _why(episode)}
    return [dispatched | keys, ended | _usage(episode) | {"reward": _reward(episode)}]


def _why(episode: _Episode) -> str | None:
    """Name what an episode that is not ok failed of; an episode that is ok may list errors of earlier tries."""
    if episode.ok:
        return None
    return "timeout" if episode.is_timeout else word(episode.errors[-1].type) if episode.errors else None


def _end(timing: _Timing) -> float:
    """Return when the agent was done, else the last instant that is set: 0.0 means unset."""
    return timing.agent.end or max(timing.finalize.end, timing.scoring.end)


def _usage(episode: _Episode) -> dict[str, Any]:
    """Add up what the calls used; a sum is unknown if a part of it is."""
    calls = [call for trace in episode.traces for call in trace.calls]
    used = [call.usage for call in calls if call.usage]
    known = len(used) == len(calls) and None not in (n for u in used for n in (u.prompt_tokens, u.completion_tokens))
    if not known:
        return {"turns": len(calls)}
    cached = sum(usage.cached_input_tokens for usage in used)
    return {
        "turns": len(calls),
        "prompt_tokens": sum(usage.prompt_tokens or 0 for usage in used) + cached,
        "output_tokens": sum(usage.completion_tokens or 0 for usage in used),
        "cached_tokens": cached,
    }


def _reward(episode: _Episode) -> float | None:
    parts = [reward for trace in episode.traces for reward in trace.rewards.values()]
    return sum(part.score * part.weight for part in parts) if parts else None


@reader(METRICS, covers=("steps",))
def recognises_metrics(head: Head) -> bool:
    """Recognise a step's numbers by their names."""
    row = head.row or {}
    return {"step", "time"} <= set(row) and any("/" in name for name in row)


@recognises_metrics.read
def read_metrics(file: File) -> Content:
    """Read the steps' numbers, each into a row of its own."""
    rows = RecordReader(file, METRICS, dict[str, float], "step_metrics", "control_events")
    for line, numbers in rows.records():
        place = {"step": int(numbers.pop("step")), "t": numbers.pop("time")}
        for name, value in numbers.items():
            rows.put("step_metrics", line, {"name": name, "value": value, **place})
        version = numbers.get(_VERSION)
        served = None if version is None else f"{version:.0f}"
        rows.put("control_events", line, {"event": "step_finished", "policy_version": served, **place})
        rows.count("step")
    return rows.done()
