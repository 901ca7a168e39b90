"""Comparisons with the stored baseline, one of them of a metric of one's own."""

from pytest_rlserve import assert_limit, metric
from pytest_rlserve.ledger import ledger
from pytest_rlserve.metrics import Value


@metric(
    unit="requests",
    better="lower",
    needs={"attempt_events"},
    numerator="HTTP requests of accepted attempts",
    denominator="accepted attempts",
    freshness="any policy version",
    phase="whole capture",
)
def requests_per_accepted_attempt(capture, scope):
    """How many requests, retries included, an accepted attempt took."""
    accounts = capture.derive(ledger)
    accepted = {a.attempt_id for a in accounts.attempts if a.acceptance == "accepted"}
    sent = sum(request.attempt_id in accepted for request in accounts.requests)
    return Value(sent / len(accepted), len(accepted))


def test_latency_has_not_regressed(rl_baseline):
    rl_baseline.check("ttft.p50", "itl.p50", regression="20%")


def test_attempts_need_few_retries(rl_trace):
    assert_limit(rl_trace, "requests_per_accepted_attempt", "<= 4.5 requests")
