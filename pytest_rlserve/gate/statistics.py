"""Is it better or worse than the baseline, and how sure is that?

The unit of observation is the job: the runs of one job share their machine and their luck, so they are
averaged first. A harm d is judged by its one-sided 95 % bounds from Student's t; to be called a regression it
must be both sure (its lower bound above 0) and as large as the allowed change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rlserve.metrics import Better

Verdict = Literal["regressed", "improved", "unchanged", "inconclusive"]
Origin = Literal["measured", "assumed", "same job"]

CONFIDENCE = 0.95
POWER = 0.80
FLOOR = 0.005
"""Smallest sd taken for real: two runs that agree by chance prove no precision."""
ASSUMED_DF = 4
JOBS_TO_MEASURE = 3
SINGLE_JOB = 0.15
"""A change that one job may prove under an assumed noise: this, or three times the allowed one if that is more."""
_MOST_JOBS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The spread between jobs that a comparison reckons with."""

    sd: float
    df: float
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verdict and what it rests on. Changes are relative for positive scales, differences for fractions."""

    verdict: Verdict
    baseline: float
    current: float
    delta: float | None
    """current against baseline; None where the baseline is 0 and no ratio exists."""
    bound: tuple[float, float] | None
    """Lower and upper one-sided bound of the harm, as a change."""
    detectable: float | None
    """Smallest harm this comparison would have called a regression with a power of 80 %."""
    noise: Noise | None
    jobs_needed: int | None
    """Current jobs with which the allowed change would be detectable; None if already so, or beyond 50."""
    single_job: bool = False
    suspect: bool = False
    """Inconclusive although the change is as large as the allowed one."""


def compare(
    baseline: Mapping[str, Sequence[float]],
    current: Mapping[str, Sequence[float]],
    *,
    better: Better,
    allowed: float,
    assumed_sd: float,
    linear: bool,
    carried: tuple[float, float] = (0.0, 0.0),
) -> Result:
    """Compare the values of current runs with those of baseline runs, both grouped by job.

    Args:
        baseline: job → one value a run.
        current: job → one value a run.
        better: direction of an improvement.
        allowed: smallest change that matters: a share, or a difference for a linear scale.
        assumed_sd: sd between jobs where fewer than three baseline jobs were measured.
        linear: compare differences (fractions) instead of ratios.
        carried: variance and degrees of freedom known from earlier levels of the baseline.
    """
    scale = _Linear() if linear else _Log()
    means = _mean_of_jobs(baseline), _mean_of_jobs(current)
    if not linear and min(_all(baseline) + _all(current)) <= 0:
        return _with_zero(*means, better)
    old = {job: [scale.to(v) for v in values] for job, values in baseline.items()}
    new = {job: [scale.to(v) for v in values] for job, values in current.items()}
    sign = 1 if better == "lower" else -1
    if set(new) <= set(old):
        step, noise, reach = _inside_jobs(old, new, assumed_sd)
    else:
        step, noise, reach = _between_jobs(old, new, assumed_sd, carried)
    harm = sign * step
    error = noise.sd * math.sqrt(reach)
    margin = quantile(CONFIDENCE, noise.df) * error
    matters = scale.harm(allowed, better)
    single = noise.origin == "assumed" and len(new) == 1
    needed = scale.harm(max(SINGLE_JOB, 3 * allowed), better) if single and not linear else matters
    verdict = _verdict(harm, margin, matters, needed)
    enough = (quantile(CONFIDENCE, noise.df) + quantile(POWER, noise.df)) * error
    return Result(
        verdict=verdict,
        baseline=scale.back(_mean_of_jobs(old)),
        current=scale.back(_mean_of_jobs(new)),
        delta=scale.change(step),
        bound=(scale.size(harm - margin, better), scale.size(harm + margin, better)),
        detectable=scale.size(enough, better),
        noise=noise,
        jobs_needed=_jobs_needed(noise, len(old), len(new), matters),
        single_job=single,
        suspect=verdict == "inconclusive" and harm >= matters,
    )


def _verdict(harm: float, margin: float, matters: float, needed: float) -> Verdict:
    low, high = harm - margin, harm + margin
    if low > 0 and harm >= needed:
        return "regressed"
    if high < 0 and harm <= -matters:
        return "improved"
    return "unchanged" if high < matters else "inconclusive"


def _between_jobs(
    old: dict[str, list[float]], new: dict[str, list[float]], assumed_sd: float, carried: tuple[float, float]
) -> tuple[float, Noise, float]:
    """Return the step between the means of jobs, its noise, and 1/n + 1/m."""
    before, after = [_mean(v) for v in old.values()], [_mean(v) for v in new.values()]
    reach = 1 / len(before) + 1 / len(after)
    step = _mean(after) - _mean(before)
    if len(before) < JOBS_TO_MEASURE:
        return step, Noise(sd=assumed_sd, df=ASSUMED_DF, origin="assumed"), reach
    squares, df = carried[0] * carried[1], carried[1]
    for means in (before, after):
        squares += sum((m - _mean(means)) ** 2 for m in means)
        df += len(means) - 1
    return step, Noise(sd=max(math.sqrt(squares / df), FLOOR), df=df, origin="measured"), reach


def _inside_jobs(
    old: dict[str, list[float]], new: dict[str, list[float]], assumed_sd: float
) -> tuple[float, Noise, float]:
    """Return the mean step inside jobs that both sides share, with the spread of runs within a job."""
    steps = [_mean(new[job]) - _mean(old[job]) for job in new]
    reach = sum(1 / len(old[job]) + 1 / len(new[job]) for job in new) / len(new) ** 2
    groups = [*old.values(), *new.values()]
    df = sum(len(values) - 1 for values in groups)
    if not df:
        return _mean(steps), Noise(sd=assumed_sd, df=ASSUMED_DF, origin="assumed"), reach
    squares = sum((v - _mean(values)) ** 2 for values in groups for v in values)
    return _mean(steps), Noise(sd=max(math.sqrt(squares / df), FLOOR), df=df, origin="same job"), reach


def _jobs_needed(noise: Noise, before: int, after: int, matters: float) -> int | None:
    factor = (quantile(CONFIDENCE, noise.df) + quantile(POWER, noise.df)) * noise.sd
    for jobs in range(after, _MOST_JOBS + 1):
        if factor * math.sqrt(1 / before + 1 / jobs) <= matters:
            return None if jobs == after else jobs
    return None


def _with_zero(baseline: float, current: float, better: Better) -> Result:
    """Judge a positive scale on which something is 0: there is a direction, but no ratio."""
    worse = current > baseline if better == "lower" else current < baseline
    verdict: Verdict = "unchanged" if current == baseline else "regressed" if worse else "improved"
    delta = (current - baseline) / baseline if baseline else None
    return Result(
        verdict=verdict,
        baseline=baseline,
        current=current,
        delta=delta,
        bound=None,
        detectable=None,
        noise=None,
        jobs_needed=None,
    )


def quantile(probability: float, df: float) -> float:
    """Return the quantile of Student's t with `df` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


class _Log:
    """Positive scales: ratios add up as logarithms."""

    def to(self, value: float) -> float:
        return math.log(value)

    def back(self, y: float) -> float:
        return math.exp(y)

    def change(self, step: float) -> float:
        return math.expm1(step)

    def harm(self, change: float, better: Better) -> float:
        return math.log1p(change) if better == "lower" else -math.log1p(-min(change, 0.999))

    def size(self, harm: float, better: Better) -> float:
        return math.expm1(harm) if better == "lower" else -math.expm1(-harm)


class _Linear:
    """Fractions: differences, in points."""

    def to(self, value: float) -> float:
        return value

    def back(self, y: float) -> float:
        return y

    def change(self, step: float) -> float:
        return step

    def harm(self, change: float, better: Better) -> float:
        return change

    def size(self, harm: float, better: Better) -> float:
        return harm


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _mean_of_jobs(jobs: Mapping[str, Sequence[float]]) -> float:
    return _mean([_mean(values) for values in jobs.values()])


def _all(jobs: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for values in jobs.values() for value in values]
