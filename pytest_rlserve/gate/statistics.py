"""How large is the harm, and how sure is that? Numbers only; what they mean is decided in `decision`.

The unit of observation is the job: the runs of one job share their machine and their luck, so they are
averaged first, and never counted one by one. Positive scales are compared by their logarithms, fractions by
their differences. `y` below is a value on that scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.metrics import Better

    Jobs = Mapping[str, Sequence[float]]
    """Job → one value for each of its runs."""

Origin = Literal["measured", "assumed", "same job", "pairs"]

FLOOR = 0.005
"""Smallest sd taken for real: runs that agree by chance prove no precision."""
ASSUMED_DF = 4
"""Degrees of freedom an assumed sd is worth: as if five jobs had shown it."""
_JOBS_TO_MEASURE = 3
_PAIRS_TO_MEASURE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The spread that a comparison reckons with, on the scale of y."""

    sd: float
    df: float
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The harm of the current runs against the baseline's, with its standard error."""

    baseline: float
    """Mean over jobs, in the metric's unit."""
    current: float
    step: float
    """current minus baseline, in y."""
    harm: float
    """The step in the direction that is worse."""
    error: float
    """Standard error of the step."""
    noise: Noise
    jobs: tuple[int, int]
    """Jobs of the baseline and of the current side."""
    counted: tuple[int, int]
    """What the error shrinks with, on both sides: jobs, runs of one job, or pairs."""

    @property
    def noun(self) -> str:
        """Name what is counted."""
        return {"same job": "runs", "pairs": "pairs"}.get(self.noise.origin, "jobs")

    def p(self) -> float:
        """Return the probability of so much harm or more if nothing had changed (one-sided)."""
        from scipy.special import stdtr

        return float(stdtr(self.noise.df, -self.harm / self.error))

    def bound(self, alpha: float) -> float:
        """Return how far the harm may lie from its estimate, at one-sided error `alpha`."""
        return quantile(1 - alpha, self.noise.df) * self.error


def estimate(
    baseline: Jobs,
    current: Jobs,
    *,
    better: Better,
    assumed_sd: float,
    linear: bool,
    carried: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Estimate the harm of current runs against baseline runs.

    Where every current job is also in the baseline, runs are compared inside jobs, by the spread of runs within
    a job, unless no job has shown one although three have shown theirs; else the means of jobs are compared, by the
    spread between jobs.

    Args:
        baseline: values of the baseline's runs by job, all above 0 unless `linear`.
        current: values of the current runs by job.
        better: direction of an improvement.
        assumed_sd: the sd between jobs, where fewer than three baseline jobs have shown it.
        linear: compare differences (fractions) instead of ratios.
        carried: variance between jobs and its degrees of freedom, known from earlier levels.
    """
    old, new = _on_scale(baseline, linear), _on_scale(current, linear)
    inside = compared_inside(baseline, current, carried)
    shared = {job: old[job] for job in new} if inside else old
    if inside:
        step, noise, reach = _inside_jobs(old, new, assumed_sd)
        counted = sum(len(old[job]) for job in new), sum(map(len, new.values()))
    else:
        step, noise, reach = _between_jobs(old, new, assumed_sd, carried)
        counted = len(old), len(new)
    return Estimate(
        baseline=_off_scale(_mean_of_jobs(shared), linear),
        current=_off_scale(_mean_of_jobs(new), linear),
        step=step,
        harm=step if better == "lower" else -step,
        error=noise.sd * math.sqrt(reach),
        noise=noise,
        jobs=(len(old), len(new)),
        counted=counted,
    )


def compared_inside(baseline: Jobs, current: Jobs, carried: tuple[float, float] = (0.0, 0.0)) -> bool:
    """Tell whether runs are compared inside the jobs that both sides share.

    Single runs show no spread inside a job. Where the spread between jobs is known, it is then the better guide
    than an assumed one, and no smaller than what it stands in for.
    """
    if not set(current) <= set(baseline):
        return False
    repeated = any(len(values) > 1 for side in (baseline, current) for values in side.values())
    return repeated or carried[1] + len(baseline) < _JOBS_TO_MEASURE


def estimate_pairs(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, better: Better, linear: bool
) -> Estimate | None:
    """Estimate the harm from interleaved pairs: baseline and current runs made in turn on one machine.

    Returns None for fewer than three pairs, which show no spread of their own.
    """
    if len(pairs) < _PAIRS_TO_MEASURE:
        return None
    sides = [[_mean(_scaled(values, linear)) for values in pair] for pair in pairs.values()]
    steps = [after - before for before, after in sides]
    step, df = _mean(steps), len(steps) - 1
    sd = max(math.sqrt(sum((s - step) ** 2 for s in steps) / df), FLOOR)
    return Estimate(
        baseline=_off_scale(_mean([before for before, _ in sides]), linear),
        current=_off_scale(_mean([after for _, after in sides]), linear),
        step=step,
        harm=step if better == "lower" else -step,
        error=sd / math.sqrt(len(steps)),
        noise=Noise(sd=sd, df=df, origin="pairs"),
        jobs=(len(pairs), len(pairs)),
        counted=(len(pairs), len(pairs)),
    )


def _between_jobs(old: Jobs, new: Jobs, assumed_sd: float, carried: tuple[float, float]) -> tuple[float, Noise, float]:
    """Return the step between the means of jobs, its noise, and 1/n + 1/m."""
    before, after = [_mean(v) for v in old.values()], [_mean(v) for v in new.values()]
    reach = 1 / len(before) + 1 / len(after)
    step = _mean(after) - _mean(before)
    if carried[1] + len(before) < _JOBS_TO_MEASURE:
        return step, Noise(sd=assumed_sd, df=ASSUMED_DF, origin="assumed"), reach
    variance, df = pooled([carried, spread(before), spread(after)])
    return step, Noise(sd=max(math.sqrt(variance), FLOOR), df=df, origin="measured"), reach


def _inside_jobs(old: Jobs, new: Jobs, assumed_sd: float) -> tuple[float, Noise, float]:
    """Return the mean step inside the jobs that both sides share, with the spread of runs within a job."""
    step = _mean([_mean(new[job]) - _mean(old[job]) for job in new])
    reach = sum(1 / len(old[job]) + 1 / len(new[job]) for job in new) / len(new) ** 2
    variance, df = pooled([spread(values) for values in (*old.values(), *new.values())])
    if not df:
        return step, Noise(sd=assumed_sd, df=ASSUMED_DF, origin="assumed"), reach
    return step, Noise(sd=max(math.sqrt(variance), FLOOR), df=df, origin="same job"), reach


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the variance of values and its degrees of freedom."""
    df = len(values) - 1
    mean = _mean(values)
    return (sum((v - mean) ** 2 for v in values) / df if df else 0.0), df


def pooled(spreads: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Pool variances by their degrees of freedom."""
    df = sum(one[1] for one in spreads)
    return (sum(variance * own for variance, own in spreads) / df if df else 0.0), df


def job_spread(jobs: Jobs, *, linear: bool) -> tuple[float, float]:
    """Return the variance between the means of jobs, on the scale of y, and its degrees of freedom."""
    return spread([_mean(values) for values in _on_scale(jobs, linear).values()])


def quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t with `df` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def to_harm(change: float, better: Better, *, linear: bool) -> float:
    """Turn a change for the worse, as a user states it, into harm on the scale of y."""
    if linear:
        return change
    return math.log1p(change) if better == "lower" else -math.log1p(-min(change, 0.999999))


def to_change(harm: float, better: Better, *, linear: bool) -> float:
    """Turn harm on the scale of y into a change for the worse, as a user reads it."""
    if linear:
        return harm
    return math.expm1(harm) if better == "lower" else -math.expm1(-harm)


def _on_scale(jobs: Jobs, linear: bool) -> dict[str, list[float]]:
    return {job: _scaled(values, linear) for job, values in jobs.items()}


def _scaled(values: Sequence[float], linear: bool) -> list[float]:
    return list(values) if linear else [math.log(value) for value in values]


def _off_scale(y: float, linear: bool) -> float:
    return y if linear else math.exp(y)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean_of_jobs(jobs: Jobs) -> float:
    return _mean([_mean(values) for values in jobs.values()])
