"""Names for what the counts leave over: why a request has no row, and why a row has no request of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pytest_rlserve.columns import known, mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rlserve.ledger import Accounts

_NATIVE = ("/generate", "/inference/v1/generate")

RESIDUALS = {
    "n>1": "asked for several choices at once, which Dynamo does not trace",
    "native /generate": "went to a native generate route, which Dynamo does not trace",
    "404": "was refused with 404 before it reached a worker",
    "refused": "was refused by the frontend before it reached a worker",
    "unreachable": "failed without an HTTP answer",
    "broken stream": "failed after its answer had begun, as when the frontend itself dies",
    "early cancel": "was canceled before Dynamo wrote a row, which it may skip",
    "late cancel": "was canceled after its answer had begun, so a row was due and is lost",
    "open at the end": "had not ended when the records stop",
    "ambiguous key": "shares its join key with other attempts, so no row can be given to it",
    "no session header": "has no id that a row could show; its row may be one of those without a session",
    "lost turn": "has fewer rows than it says it took turns, so some were written and lost",
    "lost row": "completed on a traced route, so a row was written and lost",
}
"""Why a request or an attempt has no row, or too few of them, by name."""
UNEXPLAINED = ("ambiguous key", "no session header", "lost turn", "lost row")
"""The residuals of what completed and should have its row."""
DUE = (*UNEXPLAINED, "broken stream", "late cancel")
"""The residuals that Dynamo's way of tracing does not explain."""

STRAYS = {
    "duplicate": "says the same as another row with its request id",
    "conflicting duplicate": "says something else than another row with its request id",
    "served again": "is the same request once more: the client sent it again by itself",
    "unrecorded request": "belongs to an attempt by its ids, but is none of the requests that the framework recorded",
    "ambiguous key": "several attempts share its key",
    "no session header": "carries neither session nor x-request-id, so nothing can claim it",
    "foreign row": "carries ids that no attempt knows: of another client or run, or of a request that was not recorded",
}
"""Why a row is not the one row of one request, by name."""
OF_ROWS = "row: "
"""Put before these names where they stand beside those of requests."""

OUTSIDE = {
    "priming or probe": "is marked by its purpose as one that belongs to no sample",
    "of no attempt": "names an attempt of which nothing else is recorded",
}
"""Why a request belongs to no attempt, by name."""


def reasons(accounts: Accounts) -> NDArray[np.str_]:
    """Name the reason why each account may lack its row; "lost row" where there is none."""
    native = mask(pc.is_in(accounts.column("endpoint"), pa.array(_NATIVE)))
    answered = known(accounts.column("ttft_ms")) | (accounts.reals("output_tokens") > 0)
    canceled, failed, status = accounts.are("canceled"), accounts.are("failed"), accounts.reals("http_status")
    names = {
        "n>1": accounts.reals("n") > 1,
        "native /generate": native,
        "open at the end": accounts.are("open"),
        "late cancel": canceled & answered,
        "early cancel": canceled,
        "unreachable": failed & np.isnan(status),
        "404": failed & (status == 404),
        "broken stream": failed & (status < 300),
        "refused": failed,
    }
    return np.select(list(names.values()), list(names), "lost row")
