"""Weight versions and their shards as ModelExpress' refit service answers (refit.proto of 5a023595 to 091c44ae, 2026).

The answers of `GetWeightVersion`, `ListWeightVersions`, `ListWeightVersionShards` and the creating calls, as JSON that
grpcurl or protobuf writes: one document, or one answer a line. Fields go by either of protobuf's two spellings, and
64-bit numbers may be text. What is left out of protobuf's JSON is 0 or not set, so a missing number stays unknown.

A version becomes an event `model_express:version` of the control table: `t` is when it was created, `update` its uid,
`policy_version` the framework's number, `reason` its state, `bytes` the sum of its shards, where the file has them. Of
several answers about one version the last counts. A shard's bytes go to `step_metrics` with the publishing worker as
the target; that is a trainer's process, not one that serves. Endpoints, digests and storage addresses are not kept.

Detected by a state `WEIGHT_VERSION_STATE_…`, or by a shard's version, worker and bytes. It covers no axis: the service
knows what was published, and neither when a version became READY, nor which serving worker loaded it or emptied its
cache. No check takes such a version for an update.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_rlserve.readers import Head, reader
from pytest_rlserve.readers.records import Count, Id, RecordReader, word
from pytest_rlserve.readers.rows import Refusal, decode

if TYPE_CHECKING:
    from pytest_rlserve.readers.jsonl import Content, File

FORMAT = "model_express.weight_versions"
EVENT = "model_express:version"
_STATE = re.compile(rb'"WEIGHT_VERSION_STATE_(STAGING|READY|RELEASING)"')
_SHARD = re.compile(rb'"(version_id|versionId)"(?=.*"(worker_id|workerId)")(?=.*"(total_bytes|totalBytes)")', re.DOTALL)
_PREFIX = "WEIGHT_VERSION_STATE_"
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_WHOLE = {"version_number", "created_at_unix_ms", "tensor_count", "total_bytes"}


class _Version(msgspec.Struct):
    uid: Id
    state: str
    version_number: Count | None = None
    created_at_unix_ms: Count | None = None


class _Shard(msgspec.Struct):
    version_id: Id
    worker_id: Id
    source_slot_id: str = ""
    logical_shard_id: str = ""
    total_bytes: Count | None = None
    transport: str | None = None


class _Answer(msgspec.Struct):
    version: _Version | None = None
    versions: list[_Version] = []
    shard: _Shard | None = None
    shards: list[_Shard] = []


@reader(FORMAT, covers=())
def recognises(head: Head) -> bool:
    """Recognise the name of a version's state, or the fields of a shard."""
    if not head.start.lstrip().startswith(b"{"):
        return False
    return _STATE.search(head.start) is not None or _SHARD.search(head.start) is not None


@recognises.read
def read(file: File) -> Content:
    """Read every answer; the last one about a version or shard counts."""
    rows = _Answers(file, FORMAT, _Answer, "control_events", "step_metrics")
    versions: dict[str, tuple[int, _Version]] = {}
    shards: dict[tuple[str, str, str], tuple[int, _Shard]] = {}
    for line, answer in rows.answers():
        for version in (*answer.versions, *filter(None, [answer.version])):
            versions[str(version.uid)] = line, version
        for shard in (*answer.shards, *filter(None, [answer.shard])):
            slot = shard.logical_shard_id or shard.source_slot_id
            shards[str(shard.version_id), slot, str(shard.worker_id)] = line, shard
    for uid, (line, version) in versions.items():
        parts = [shard.total_bytes for (owner, *_), (_, shard) in shards.items() if owner == uid]
        rows.add("control_events", "weight version", line, _event(uid, version, parts))
    for (uid, *_), (line, shard) in shards.items():
        how = word(shard.transport)
        name = f"model_express shard bytes of {uid}" + (f" by {how}" if how else "")
        number = {"target": str(shard.worker_id), "name": name, "value": shard.total_bytes}
        rows.add("step_metrics", "weight shard", line, number)
    return rows.done()


def _event(uid: str, version: _Version, parts: list[int | None]) -> dict[str, Any]:
    created, number = version.created_at_unix_ms, version.version_number
    known = [part for part in parts if part is not None]
    return {
        "event": EVENT,
        "t": created / 1e3 if created else None,
        "update": uid,
        "policy_version": None if number is None else str(number),
        "reason": word(version.state.removeprefix(_PREFIX)),
        "bytes": sum(known) if parts and len(known) == len(parts) else None,
    }


class _Answers(RecordReader[_Answer]):
    """Takes a file for one document where its first line is no whole one."""

    def answers(self) -> list[tuple[int, _Answer]]:
        """Return line number and answer of every one in the file."""
        lines = [(number, line) for number, line in self.lines() if line.strip()]
        if lines and isinstance(decode(lines[0][1]), Refusal):
            lines = [(lines[0][0], b"\n".join(line for _, line in lines))]
        found = []
        for number, line in lines:
            answer = self.record(line)
            if isinstance(answer, Refusal):
                self.refuse(number, str(answer))
            elif not _holds_any(answer) and line.strip() != b"{}":  # what protobuf writes of an empty list
                self.refuse(number, "is no answer about weight versions")
            else:
                found.append((number, answer))
        return found

    def named(self, row: dict[str, Any]) -> dict[str, Any]:
        """Spell fields as the proto file does; a bare version or shard becomes an answer that holds it."""
        plain = _plain(row)
        bare = "version" if "uid" in plain else "shard" if "version_id" in plain else None
        found: dict[str, Any] = {bare: plain} if bare else plain
        return found


def _holds_any(answer: _Answer) -> bool:
    return any((answer.version, answer.versions, answer.shard, answer.shards))


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        named = ((_HUMP.sub(lambda hump: f"_{hump[1].lower()}", key), one) for key, one in value.items())
        return {key: _plain(one, key) for key, one in named}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if name in _WHOLE and isinstance(value, str) and re.fullmatch(r"\d{1,19}", value) else value
