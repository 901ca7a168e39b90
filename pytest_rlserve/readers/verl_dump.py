"""verl's rollout dumps, `trainer.rollout_data_dir/<step>.jsonl` (verl 1dda039b, 2026-08-22; V1 and legacy trainer).

A line is a sample that a step trained on, so it is an accepted attempt and nothing else: a dump knows no times, no
versions, and nothing of what was canceled, failed or thrown away. It is written anew when a resumed run trains the
step again, so only the last training of a step is there. Prompt, output and ground truth are not kept.

Detected by `input`, `output`, `score` and `step` in the first line. The V1 trainer's `uid` is
`<prompt>_<session>_<trajectory>` and becomes the attempt, of the group `<prompt>`; RL-Insight's `agent_session`
spans get the same id. The legacy trainer's `request_id` is the trajectory's, and verl-recipe's Dynamo backend sends
it as X-Request-ID with every turn, so it also joins rows. Without either, an attempt is named by file and line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Id, RecordReader, Whole

if TYPE_CHECKING:
    from typing import Any

    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "verl_dump"
_JOINS = (
    "verl sends X-Request-Id at most, which Dynamo leaves out of a row without a session: switch on the session header "
    "of its Dynamo recipe, or send X-Dynamo-Session-ID with the sample's uid"
)
_UID = re.compile(r"(?P<prompt>.+)_(?P<session>\d+)_(?P<index>\d+)")


class _Sample(msgspec.Struct):
    step: Whole
    score: float | None = None
    uid: Id | None = None
    request_id: Id | None = None


@reader(FORMAT, covers=("accepted",), joins=_JOINS)
def recognises(head: Head) -> bool:
    """Recognise the fields that every dumped sample has."""
    return {"input", "output", "score", "step"} <= set(head.row or {})


@recognises.read
def read(file: File) -> Content:
    """Read the samples of one step."""
    rows = RecordReader(file, FORMAT, _Sample, "attempt_events")
    for line, sample in rows.records():
        accepted = {"event": "accepted", "level": "attempt", "step": sample.step, "reward": sample.score}
        rows.add("attempt_events", "sample", line, accepted | _named(sample, f"{file.label}:{line}"))
    return rows.done()


def _named(sample: _Sample, place: str) -> dict[str, Any]:
    uid, request = text(sample.uid), text(sample.request_id)
    name = uid or request or place
    parts = _UID.fullmatch(uid or "")
    return {
        "attempt_id": name,
        "sample_id": name,
        "group_id": parts["prompt"] if parts else None,
        "x_request_ids": [request] if request else None,
    }
