"""Question 2: do both sides count the same tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rlserve.capture import Capture
    from pytest_rlserve.joins import Joined
    from pytest_rlserve.ledger import Account

_NAME = "tokens_agree"
_PAIRS = (("prompt_tokens", "input_tokens", "prompt"), ("output_tokens", "output_tokens", "output"))
_NAMED = 20
_SILENT = 0.05
"""Share of completed requests that may tell no token count before that is said."""


@check(question=2, kinds=("rollout",))
def tokens_agree(capture: Capture, evidence: Evidence) -> Outcome:
    """What the framework counted in a completed request is what the server counted, prompt and output.

    Compared are the response's usage and the request's row; where usage is known of attempts only, its sums and
    those of the attempt's rows, as long as no row is missing. An accepted attempt cannot have been trained on more
    tokens than were served for it. Dynamo's count after a migration between workers has been wrong before; a token
    rate takes the server's count, and this check says when that is not the framework's.
    """
    joined = capture.derive(join)
    accounts = capture.derive(ledger)
    rows = capture.scalars.select(["input_tokens", "output_tokens", "source", "line"]).to_pylist()
    compared = asked = 0
    wrong: list[Finding] = []
    for account in accounts.requests or accounts.attempts:
        served = [rows[number] for number in joined.rows_of(account)]
        if account.outcome != "completed" or not served or _incomplete(account, len(served)):
            continue
        asked += 1
        known = [pair for pair in _PAIRS if account.get(pair[0]) is not None and _sum(served, pair[1]) is not None]
        compared += bool(known)
        wrong += _mismatch(account, served, known)
    silent = asked - compared
    trained, more = _trained(joined, accounts.attempts, rows)
    compared, wrong = compared + trained, [*wrong, *more]
    findings = wrong[:_NAMED]
    if len(wrong) > _NAMED:
        text = f"{len(wrong) - _NAMED:,} more do not agree on their tokens"
        rest = tuple(name for finding in wrong[_NAMED:] for name in finding.ids)
        findings.append(Finding(message=text, severity="failure", check=_NAME, ids=rest, count=len(rest)))
    if compared and silent > _SILENT * asked:
        noun = "requests" if accounts.requests else "attempts"
        text = f"{silent:,} of {asked:,} completed {noun} with a row tell no token count that the row has too"
        findings.append(Finding(message=text, severity="warning", check=_NAME, count=silent))
    why = None
    if not compared:
        why = (
            "no token count is known on both sides: record prompt_tokens and output_tokens of each response's usage, "
            "with what joins the request to its row"
        )
    noun = "token counts of completed requests and accepted attempts"
    return Outcome(observed=compared - len(wrong), of=compared, noun=noun, findings=findings, inconclusive=why)


def _incomplete(account: Account, rows: int) -> bool:
    """Tell whether the sums of an attempt lack rows, which is the joins' affair and not a wrong count."""
    return account.level == "attempt" and (account.get("turns") or rows) != rows


def _sum(rows: list[dict[str, Any]], column: str) -> int | None:
    values = [row[column] for row in rows]
    return None if None in values else sum(values)


def _mismatch(account: Account, served: list[dict[str, Any]], known: list[tuple[str, str, str]]) -> list[Finding]:
    """Name both numbers where counts differ; of a request that was served twice, either row may be its own."""
    parts = []
    for own, column, word in known:
        said, counted = account.get(own), _sum(served, column)
        either = account.level == "request" and said in [row[column] for row in served]
        if said != counted and not either:
            parts.append(f"{said:,} {word} tokens by the framework, {counted:,} by its row{'s' * (len(served) > 1)}")
    return [_finding(f"{account.name}: {'; '.join(parts)}", served[0], account)] if parts else []


def _trained(joined: Joined, attempts: tuple[Account, ...], rows: list[dict[str, Any]]) -> tuple[int, list[Finding]]:
    """Compare what accepted attempts were trained on with what was served for them, where every turn has a row."""
    of_attempt: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for number, owner in joined.owners.items():
        of_attempt.setdefault(owner.attempt, []).append(rows[number])
    lacking = {one.attempt for some in joined.without_row.values() for one in some if one.outcome == "completed"}
    compared, findings = 0, list[Finding]()
    for account, trained in _claims(attempts, own=joined.level == "request"):
        served = of_attempt.get(account.attempt, [])
        counted = _sum(served, "output_tokens") if served else None
        if counted is None or account.attempt in lacking or _incomplete(account, len(served)):
            continue
        compared += 1
        if trained > counted:
            text = f"{account.name}: accepted with {trained:,} output tokens, {counted:,} were served for it"
            findings.append(_finding(text, served[0], account))
    return compared, findings


def _claims(attempts: tuple[Account, ...], *, own: bool) -> Iterator[tuple[Account, int]]:
    """Yield accepted attempts with the tokens they were trained on, else, of their `own` record, those they made."""
    for account in attempts:
        shares = dict(account.get("tokens_by_version") or ())
        claimed = sum(shares.values()) if shares else account.get("output_tokens") if own else None
        if account.acceptance == "accepted" and claimed is not None:
            yield account, claimed


def _finding(message: str, row: dict[str, Any], account: Account) -> Finding:
    return Finding(
        message=message,
        severity="failure",
        check=_NAME,
        path=row["source"],
        line=row["line"],
        ids=(account.name,),
    )
