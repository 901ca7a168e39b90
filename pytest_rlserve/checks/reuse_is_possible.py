"""Question 3: can the numbers about KV reuse be true at all?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import known, mask
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture

_NAME = "reuse_is_possible"
_NOUN = "requests that say how much was cached"
_COLUMNS = ("request_id", "cached_tokens", "input_tokens", "kv_hit_rate", "source", "line")


@check(question=3)
def reuse_is_possible(capture: Capture, evidence: Evidence) -> Outcome:
    """No request claims more cached than prompt tokens, or a hit rate outside of 0 to 1.

    Such numbers lift a reuse floor that the run does not meet. They are held against the rows of the trace and
    against the usage that clients recorded. The KV metrics leave these requests out and say so.
    """
    rows = capture.scalars.select(list(_COLUMNS))
    told = rows.filter(pc.or_(pc.is_valid(rows["cached_tokens"]), pc.is_valid(rows["kv_hit_rate"])))
    wrong = list(_in_rows(told))
    requests = capture.derive(ledger).requests
    usage = requests.some(known(requests.column("cached_tokens")))
    for account in usage.some(usage.reals("cached_tokens") > usage.reals("prompt_tokens")):
        said = _too_many(account.get("cached_tokens"), account.get("prompt_tokens"), "prompt_tokens")
        wrong.append(_finding(f"usage of {account.name}: {said}", account.source, account.line, account.name))
    total = told.num_rows + len(usage)
    why = None if total else "neither rows nor recorded usage say how many tokens were cached"
    return Outcome(observed=total - len(wrong), of=total, noun=_NOUN, findings=wrong, inconclusive=why)


def _in_rows(rows: pa.Table) -> Iterator[Finding]:
    too_many = pc.greater(rows["cached_tokens"], rows["input_tokens"])
    within = pc.and_(pc.greater_equal(rows["kv_hit_rate"], 0), pc.less_equal(rows["kv_hit_rate"], 1))
    wrong = mask(too_many) | mask(pc.invert(within))
    for row in rows.filter(pa.array(wrong)).to_pylist():
        said = [_too_many(row["cached_tokens"], row["input_tokens"], "input_tokens")]
        rate = row["kv_hit_rate"]
        if rate is not None and not 0 <= rate <= 1:
            said.append(f"kv_hit_rate {rate:g} is outside of 0 to 1")
        if reasons := "; ".join(filter(None, said)):
            yield _finding(reasons, row["source"], row["line"], row["request_id"])


def _too_many(cached: int | None, whole: int | None, name: str) -> str | None:
    if cached is None or whole is None or cached <= whole:
        return None
    return f"cached_tokens {cached} > {name} {whole}"


def _finding(message: str, path: str, line: int, name: str) -> Finding:
    return Finding(message=message, severity="failure", check=_NAME, path=path, line=line, ids=(name,))
