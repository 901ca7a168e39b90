"""NeMo RL's `rollout_trace.jsonl`, which `rollout_checkpointing.trace` writes (read in the nightly docs of 2026-09).

Only three events are public: `trace_opened`, `group_published` and `step_trained`. They tell which groups a step
trained on and how many tokens each version generated, group by group, and nothing of attempts. Other names are
counted and kept, as control events `nemo_rl:<name>`. Whoever knows what they mean says so in the policy::

    [readers.nemo_rl.events]
    attempt_dispatched = "dispatched"

What is explained counts as told, and as 0 where no line has that name. Attempts go under NeMo Gym's id
`<group>_g<generation>[-a<attempt>]`, and a step accepts the attempt of each generation that completed last.
Detected by `trace_opened` in the first line, or by the file's usual name.

Limits: a killed process loses the end of its queue without a trace, so a file that stops is no sign of
cancellation. A resumed run appends; where it does so to half a line, the half is reported and the rest is read.
A group id lives in one run, so a prompt that is taken up again under a new group is not known as a retry. NeMo RL
sends Dynamo neither session nor x-request-id: its attempts cannot be joined with rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from pytest_rlserve.capture import AXES
from pytest_rlserve.errors import UsageError, nearest
from pytest_rlserve.readers import Head, attempts, control, reader
from pytest_rlserve.readers.attempts import text
from pytest_rlserve.readers.records import Amount, Count, Id, RecordReader, Whole, word
from pytest_rlserve.readers.rows import Refusal

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "nemo_rl"
_JOINS = (
    "NeMo RL sends neither session nor x-request-id: send X-Dynamo-Session-ID <group>_g<generation>[-a<attempt>] from "
    "its rollout worker"
)
EVENTS = {"trace_opened": "process_started", "group_published": "published", "step_trained": "step_trained"}
"""What the public names mean here; `settings` may add to it."""
_ATTEMPT_EVENTS = get_args(attempts.Event)
_MEANINGS = (*_ATTEMPT_EVENTS, *get_args(control.Event), *EVENTS.values())
_COVERS = ("accepted", "policy", "tokens", "steps")
_START = b'{"t":'


class _Line(msgspec.Struct):
    t: Amount
    event: str
    run: Id | None = None


class _Published(_Line, kw_only=True):
    group_id: Id
    tokens_by_version: dict[str, Count]


class _Trained(_Line, kw_only=True):
    step: Whole
    trained_version: Id
    group_ids: list[Id]


class _Told(_Line):
    """A line of an event that the settings explain; its fields go by the names of NeMo RL's own ledger."""

    group_id: Id | None = None
    generation_index: Count | None = None
    attempt_index: Count = 0
    reason: str | None = None
    step: Whole | None = None
    target_step: Whole | None = None
    version: Id | None = None


def _meanings(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what the settings say that names mean."""
    for key in settings:
        if key != "events":
            raise UsageError(f"unknown key {f'readers.{FORMAT}.{key}'!r}{nearest(key, ['events'])}")
    told = settings.get("events", {})
    if not isinstance(told, Mapping):
        raise UsageError(f"readers.{FORMAT}.events must be a table of names and what they mean")
    for name, meaning in told.items():
        if name in EVENTS:
            raise UsageError(f"readers.{FORMAT}.events: {name} is known already, as {EVENTS[name]!r}")
        if meaning not in _MEANINGS:
            hint = nearest(str(meaning), _MEANINGS)
            text = f"{name} cannot mean {meaning!r}{hint}; known are {', '.join(_MEANINGS)}"
            raise UsageError(f"readers.{FORMAT}.events: {text}")
    return dict(told)


@reader(FORMAT, covers=_COVERS, joins=_JOINS, told=_meanings)
def recognises(head: Head) -> bool:
    """Recognise a process's first line, or a line of the usual file."""
    row = head.row or {}
    return row.get("event") == "trace_opened" or ("rollout_trace" in head.name and {"t", "run", "event"} <= set(row))


@recognises.read
def read(file: File) -> Content:
    """Read one file; the settings' `events` say what further names mean."""
    return _Trace(file, EVENTS | _meanings(file.settings)).read()


class _Trace(RecordReader[_Line]):
    """One file, and what has been seen of its groups."""

    def __init__(self, file: File, names: Mapping[str, str]) -> None:
        super().__init__(file, FORMAT, _Line, "attempt_events", "control_events")
        self._names = names
        self._published = set[str]()
        self._trained = dict[str, int]()
        self._sealed: dict[str, dict[int, str]] = {}
        self._unknown = Counter[str]()

    def shape_for(self, row: dict[str, Any]) -> type[_Line]:
        match self._names.get(str(row.get("event"))):
            case "published":
                return _Published
            case "step_trained":
                return _Trained
            case "process_started" | None:
                return _Line
        return _Told

    def read(self) -> Content:
        for number, line in self.lines():
            found = self.record(line)
            record = self._salvaged(number, line, found) if isinstance(found, Refusal) else found
            if record is not None:
                self._take(number, record)
                self.count(_named(record))
        self._report()
        told = set(self._names.values())
        more = {*told, "retried"} if "dispatched" in told else told
        self.content.covers = tuple(axis for axis in AXES if axis in more or axis in _COVERS)
        return self.done()

    def _salvaged(self, number: int, line: bytes, refusal: Refusal) -> _Line | None:
        """Return the whole record that a new process appended to the half that a killed one had left."""
        start = line.rfind(_START)
        record = self.record(line[start:]) if start > 0 else refusal
        if isinstance(record, Refusal):
            self.refuse(number, str(refusal))
            return None
        why = f"a record is cut off; the one after it, from column {start + 1} on, was read"
        if record.event == "trace_opened":
            self.note(f"{why}: a process was killed, and its last event is lost", "warning", line=number)
        else:
            self.refuse(number, why)
        return record

    def _take(self, line: int, record: _Line) -> None:
        event = self._names.get(record.event)
        match record:
            case _Published():
                self._published.add(str(record.group_id))
                shares = list(record.tokens_by_version.items())
                self._group(line, record, record.group_id, "published", tokens_by_version=shares)
            case _Trained():
                version = text(record.trained_version)
                self._control(line, record, "step_trained", step=record.step, policy_version=version)
                for group in record.group_ids:
                    self._trained.setdefault(str(group), line)
                    self._decide(line, record, group, "accepted", step=record.step, trained_version=version)
            case _Told() if event in _ATTEMPT_EVENTS:
                self._attempt(line, record, str(event))
            case _Told():
                fields = {"step": record.step, "policy_version": text(record.version), "reason": word(record.reason)}
                self._control(line, record, str(event), **fields)
            case _ if event is not None:
                self._control(line, record, event)
            case _:
                self._unknown[_named(record)] += 1
                self._control(line, record, f"{FORMAT}:{_named(record)}")

    def _attempt(self, line: int, record: _Told, event: str) -> None:
        """Take an event of one generation of a group, or of the whole group where it names none."""
        if record.group_id is None:
            self.refuse(line, "is no record of nemo_rl: an event of an attempt without its group_id")
            return
        reason, index, number = word(record.reason), record.generation_index, record.attempt_index
        if index is None:
            self._decide(line, record, record.group_id, event, reason=reason)
            return
        sample = f"{record.group_id}_g{index}"
        named = {"group_id": text(record.group_id), "sample_id": sample, "attempt_id": _attempt_id(sample, number)}
        if event == "dispatched" and number:
            earlier = _attempt_id(sample, number - 1)
            self._event(line, record, "retried", level="attempt", retry_of=earlier, **named)
        self._event(line, record, event, level="attempt", reason=reason, step=record.target_step, **named)
        if event == "completed":
            self._sealed.setdefault(str(record.group_id), {})[index] = named["attempt_id"] or ""

    def _decide(self, line: int, record: _Line, group: str | int, event: str, **fields: Any) -> None:
        """Tell what became of a group, and of those of its attempts that had completed last."""
        self._group(line, record, group, event, **fields)
        if event in ("accepted", "rejected"):
            for index, name in self._sealed.get(str(group), {}).items():
                of = {"group_id": text(group), "sample_id": f"{group}_g{index}", "attempt_id": name}
                self._event(line, record, event, level="attempt", **of, **fields)

    def _group(self, line: int, record: _Line, group: str | int, event: str, **fields: Any) -> None:
        self._event(line, record, event, level="group", group_id=text(group), **fields)

    def _event(self, line: int, record: _Line, event: str, **fields: Any) -> None:
        self.put("attempt_events", line, {"event": event, "t": record.t, "run": text(record.run), **fields})

    def _control(self, line: int, record: _Line, event: str, **fields: Any) -> None:
        self.put("control_events", line, {"event": event, "t": record.t, "run": text(record.run), **fields})

    def _report(self) -> None:
        unseen = sorted(name for name in self._names if name not in EVENTS and name not in self.content.kinds)
        if unseen:
            text_ = "no line has a name that the settings explain, so what it stands for counts as 0"
            self.note(text_, ids=tuple(unseen), count=len(unseen))
        lost = [group for group in self._trained if group not in self._published]
        if lost:
            one = "1 group was" if len(lost) == 1 else f"{len(lost):,} groups were"
            text_ = f"{one} trained on but never published, so the versions of its tokens are not known"
            self.note(text_, "warning", line=self._trained[lost[0]], ids=tuple(lost))
        if self._unknown:
            lines = self._unknown.total()
            what = "1 line is" if lines == 1 else f"{lines:,} lines are"
            text_ = (
                f"{what} of events that nothing explains; they are kept as they are. Who knows what they mean says so "
                f"under [readers.{FORMAT}.events] of the policy"
            )
            self.note(text_, ids=tuple(sorted(self._unknown)), count=lines)


def _named(record: _Line) -> str:
    return word(record.event) or "of no plain name"


def _attempt_id(sample: str, number: int) -> str:
    return f"{sample}-a{number}" if number else sample
