"""A known problem that somebody answers for: it is judged as ever, and then excused until a date."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_rlserve.gate.judgement import Judgement
    from pytest_rlserve.gate.policy import Policy

_BAD = ("regressed", "failed")


def waived(found: Judgement, policy: Policy) -> Judgement:
    """Return what a judgement is under the policy's waivers; one that has run out excuses nothing, and says so.

    A value that is worse can be excused. A baseline that is not there cannot: nothing was judged.
    """
    field = "status" if found.kind == "limits" else "verdict"
    if not any(record[field] in _BAD for record in found.records):
        return found
    if waiver := policy.waiver(found.name):
        records = tuple({**one, field: "waived"} if one[field] in _BAD else one for one in found.records)
        return dataclasses.replace(found, verdict="waived", message=f"{waiver}\n{found.message}", records=records)
    if over := policy.expired(found.name):
        text = f"{found.message}\n  the waiver of {over.owner} ran out on {over.until}: {over.reason}"
        return dataclasses.replace(found, message=text)
    return found
