"""What the spans of verl's tracing say, in whichever file they stand.

| span | becomes |
|---|---|
| `agent_session` | an attempt `<uid>_<session>_<traj>`, as in verl's dumps, with the outcome that `status` names |
| `rollout_request` | a request of the attempt `trajectory_id`; its `request_id` is the engine's |
| `global_step` | a trainer step, from start to finish |
| any other | seconds in `step_metrics`, under the span's name |

A span is written when it ends, so nothing tells of what was still running. Nothing ties a session to its requests.
`vllm_generate` and `sglang_generate` are times in which a replica was busy at all, never requests: spans of one name
that overlap in a lane were merged, others were dropped. `global_steps` of a session is the trainer's step counter;
whether it also is the version that generated depends on how far the trainer runs ahead, so it is no version here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Id, Whole, word

if TYPE_CHECKING:
    from pytest_rlserve.readers.records import RecordReader

TABLES = ("attempt_events", "control_events", "step_metrics")
COVERS = ("completed", "failed", "policy", "steps")
JOINS = "verl's spans have the engine's request id, not Dynamo's: send X-Dynamo-Session-ID with the trajectory's id"
_OUTCOMES = {
    "success": "completed",
    "failed": "failed",
    "error": "failed",
    "aborted": "canceled",
    "canceled": "canceled",
    "cancelled": "canceled",
}


class Args(msgspec.Struct):
    """The attributes that are read."""

    run_id: Id | None = None
    global_step: Whole | None = None
    global_steps: Whole | None = None
    batch_step: Whole | None = None
    trajectory_id: Id | None = None
    request_id: Id | None = None
    weight_version: Id | None = None
    uid: Id | None = None
    session: Id | None = None
    traj: Id | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span: its instants are seconds since the Unix epoch."""

    name: str
    start: float
    end: float
    args: Args
    process: str | None
    lane: str | None


def take(rows: RecordReader[Any], line: int, span: Span) -> None:
    """Put what a span says into the tables."""
    args, run = span.args, text(span.args.run_id)
    match span.name:
        case "agent_session" if None not in (args.uid, args.session, args.traj):
            name = f"{args.uid}_{args.session}_{args.traj}"
            about = {"attempt_id": name, "sample_id": name, "group_id": text(args.uid), "step": args.global_steps}
            about |= {"run": run, "level": "attempt"}
            rows.put("attempt_events", line, {"event": "dispatched", "t": span.start, **about})
            if outcome := _OUTCOMES.get(args.status or ""):
                rows.put("attempt_events", line, {"event": outcome, "t": span.end, **about})
            else:
                rows.note(f"session {name} ended with the unknown status {word(args.status)}", "warning", line=line)
        case "rollout_request" if None not in (args.trajectory_id, args.request_id):
            about = {"attempt_id": text(args.trajectory_id), "response_id": text(args.request_id), "run": run}
            about |= {"level": "request", "policy": text(args.weight_version), "step": args.batch_step}
            rows.put("attempt_events", line, {"event": "dispatched", "t": span.start, **about})
            rows.put("attempt_events", line, {"event": "completed", "t": span.end, **about})
        case "global_step" if args.global_step is not None:
            step = {"step": args.global_step, "run": run}
            rows.put("control_events", line, {"event": "step_started", "t": span.start, **step})
            rows.put("control_events", line, {"event": "step_finished", "t": span.end, **step})
        case _:
            lane = "/".join(part for part in (span.process, span.lane) if part)
            step_ = args.global_step if args.global_step is not None else args.batch_step
            busy = {"step": step_, "t": span.start, "target": lane or None, "value": span.end - span.start}
            rows.put("step_metrics", line, {"name": f"{span.name} (s)", **busy})
    rows.count(span.name)
