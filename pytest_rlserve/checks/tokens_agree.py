"""Question 2: do both sides count the same tokens?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from pytest_rlserve.capture import Finding
from pytest_rlserve.checks import Evidence, Outcome, check
from pytest_rlserve.columns import known, mask, reals, totals
from pytest_rlserve.joins import join
from pytest_rlserve.ledger import ledger

if TYPE_CHECKING:
    from pytest_rlserve.capture import Capture
    from pytest_rlserve.columns import Mask, Numbers, Reals
    from pytest_rlserve.joins import Joined
    from pytest_rlserve.ledger import Account, Accounts

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
    joined, accounts = capture.derive(join), capture.derive(ledger)
    own = accounts.requests or accounts.attempts
    rows = joined.counts[own.numbers]
    own = own.some(own.are("completed") & (rows > 0) & _complete(own, rows))
    asked = len(own)
    compared, wrong = _compared(capture, own)
    silent = asked - compared
    trained, more = _trained(capture, joined)
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


def _complete(accounts: Accounts, rows: Numbers) -> Mask:
    """Mark the accounts that lack no row, as far as that is known: a lack is the joins' affair, no wrong count."""
    turns = accounts.reals("turns")
    lacking: Mask = (turns > 0) & (turns != rows) & mask(pc.equal(accounts.column("level"), "attempt"))
    return ~lacking


def _compared(capture: Capture, accounts: Accounts) -> tuple[int, list[Finding]]:
    """Return of how many accounts both sides tell a count, and those where the counts differ, with both numbers.

    Of a request that was served twice, either row may be its own.
    """
    joined = capture.derive(join)
    owners, begins = joined.owner[joined.arrived], joined.edges[:-1]
    told, texts = np.zeros(len(accounts), dtype=np.bool_), dict[int, list[str]]()
    is_request = mask(pc.equal(accounts.column("level"), "request"))
    for own, column, word in _PAIRS if len(accounts) else ():
        said = np.full(len(joined.ledger.all), np.nan)
        said[accounts.numbers] = accounts.reals(own)
        values = reals(capture.scalars[column])[joined.arrived]
        sums, same = np.full(len(said), np.nan), np.zeros(len(said), dtype=np.bool_)
        sums[joined.served] = np.add.reduceat(values, begins)
        same[joined.served] = np.logical_or.reduceat(values == said[owners], begins)
        mine, counted, either = said[accounts.numbers], sums[accounts.numbers], same[accounts.numbers] & is_request
        both = ~np.isnan(mine) & ~np.isnan(counted)
        told |= both
        for place in np.flatnonzero(both & (mine != counted) & ~either).tolist():
            several = "s" * (len(joined.rows_of(accounts[place])) > 1)
            text = f"{int(mine[place]):,} {word} tokens by the framework, {int(counted[place]):,} by its row{several}"
            texts.setdefault(place, []).append(text)
    findings = []
    for place, parts in sorted(texts.items()):
        account = accounts[place]
        findings.append(_finding(capture, f"{account.name}: {'; '.join(parts)}", joined.rows_of(account)[0], account))
    return int(told.sum()), findings


def _trained(capture: Capture, joined: Joined) -> tuple[int, list[Finding]]:
    """Compare what accepted attempts were trained on with what was served for them, where every turn has a row."""
    attempts, every = joined.ledger.attempts, joined.ledger.all
    if not attempts:
        return 0, []
    owners = every.attempts[joined.owner[joined.order]]
    tokens, size = reals(capture.scalars["output_tokens"])[joined.order], int(every.attempts.max()) + 1
    served = np.bincount(owners, minlength=size)[attempts.attempts]
    counted = totals(owners, tokens, size)[attempts.attempts]
    without = (one for some in joined.without_row.values() for one in some if one.outcome == "completed")
    lacking = np.isin(attempts.attempts, every.attempts[[one.number for one in without]])
    claimed = _claims(attempts, own=joined.level == "request")
    judged = attempts.are("accepted") & (served > 0) & ~lacking & _complete(attempts, served)
    judged &= ~np.isnan(claimed) & ~np.isnan(counted)
    first, findings = np.zeros(size, dtype=np.int64), []
    first[owners[::-1]] = joined.order[::-1]  # of several, the last one stays
    for place in np.flatnonzero(judged & (claimed > counted)).tolist():
        account, row = attempts[place], int(first[attempts.attempts[place]])
        text = (
            f"{account.name}: accepted with {int(claimed[place]):,} output tokens, "
            f"{int(counted[place]):,} were served for it"
        )
        findings.append(_finding(capture, text, row, account))
    return int(judged.sum()), findings


def _claims(attempts: Accounts, *, own: bool) -> Reals:
    """Return the tokens that each attempt was trained on, else, of its `own` record, those it made."""
    claims = attempts.reals("output_tokens") if own else np.full(len(attempts), np.nan)
    told = attempts.column("tokens_by_version")
    for place in np.flatnonzero(known(told)).tolist():
        if shares := dict(told[place].as_py()):
            claims[place] = sum(shares.values())
    return claims


def _finding(capture: Capture, message: str, row: int, account: Account) -> Finding:
    place = capture.scalars.select(["source", "line"]).slice(row, 1).to_pylist()[0]
    return Finding(
        message=message,
        severity="failure",
        check=_NAME,
        path=place["source"],
        line=place["line"],
        ids=(account.name,),
    )
