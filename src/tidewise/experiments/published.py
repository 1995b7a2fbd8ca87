"""What was published of the earlier systems: 18 hours on Flink, a failure every 45 minutes, up to 24 workers.

Recomputed from the released measurements, restarts and missing seconds counted; only the p99 leaves missing seconds
out. Ranges are over repeated runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from pydantic import JsonValue

from tidewise.core import Configuration, Mechanism, Purpose
from tidewise.core.checks import require
from tidewise.engines.simulator import load_profile
from tidewise.experiments.comparison import Aggregate, Spread
from tidewise.experiments.measures import OverBaseline
from tidewise.experiments.plan import read_plan
from tidewise.experiments.record import RunRecord
from tidewise.experiments.shipped import find_plan
from tidewise.experiments.toml_file import TomlFile

DURATION_S = 64_800.0
FAILURE_EVERY_S = 2700.0
FAILURE_KIND = "network-delay"
START = Configuration(executors=24, memory_mib_per_executor=4096, commit_interval_s=10.0)
"""What static keeps, and every other policy began with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """From the least to the most that was published."""

    least: float
    most: float

    def __post_init__(self) -> None:
        require(self.least <= self.most, f"a range must ascend, not go from {self.least:g} to {self.most:g}")

    @property
    def middle(self) -> float:
        return (self.least + self.most) / 2

    def outside(self, value: float) -> float:
        """How far a value lies below (negative) or above the range; 0 inside."""
        return value - min(max(value, self.least), self.most)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One policy on one job."""

    core_over_static: Range
    gib_over_static: Range
    good_share: Range
    latency_p99_s: Range
    changes: Range
    recovery_mean_s: Range
    recovery_max_s: float
    """The longest of all runs."""
    profiling_core: float = 0.0
    """Core-hours of side jobs over those of static, beside the above."""
    profiling_gib: float = 0.0
    """Their GiB-hours, likewise."""


def _at(value: float) -> Range:
    return Range(least=value, most=value)


def _from(least: float, most: float) -> Range:
    return Range(least=least, most=most)


_PUBLISHED: dict[tuple[str, str], Published] = {
    ("YSB", "static"): Published(
        core_over_static=_at(1.0),
        gib_over_static=_at(1.0),
        good_share=_at(0.986),
        latency_p99_s=_at(1.5),
        changes=_at(0),
        recovery_mean_s=_at(58.0),
        recovery_max_s=102.0,
    ),
    ("YSB", "demeter"): Published(
        core_over_static=_at(0.83),
        gib_over_static=_at(0.61),
        profiling_core=0.13,
        profiling_gib=0.05,
        good_share=_from(0.88, 0.95),
        latency_p99_s=_from(18.0, 97.0),
        changes=_from(41, 60),
        recovery_mean_s=_from(62.0, 83.0),
        recovery_max_s=246.0,
    ),
    ("YSB", "ds2"): Published(
        core_over_static=_at(0.87),
        gib_over_static=_at(0.87),
        good_share=_from(0.67, 0.76),
        latency_p99_s=_from(74.0, 159.0),
        changes=_from(79, 96),
        recovery_mean_s=_from(80.0, 89.0),
        recovery_max_s=395.0,
    ),
    ("YSB", "reactive"): Published(
        core_over_static=_at(0.61),
        gib_over_static=_at(0.61),
        good_share=_from(0.94, 0.95),
        latency_p99_s=_from(10.0, 11.0),
        changes=_from(104, 118),
        recovery_mean_s=_from(44.0, 56.0),
        recovery_max_s=164.0,
    ),
    ("TSW", "static"): Published(
        core_over_static=_at(1.0),
        gib_over_static=_at(1.0),
        good_share=_at(0.979),
        latency_p99_s=_at(9.4),
        changes=_at(0),
        recovery_mean_s=_at(71.0),
        recovery_max_s=145.0,
    ),
    ("TSW", "demeter"): Published(
        core_over_static=_at(0.83),
        gib_over_static=_at(0.55),
        profiling_core=0.17,
        profiling_gib=0.05,
        good_share=_from(0.88, 0.91),
        latency_p99_s=_from(68.0, 155.0),
        changes=_from(34, 51),
        recovery_mean_s=_from(70.0, 79.0),
        recovery_max_s=144.0,
    ),
    ("TSW", "ds2"): Published(
        core_over_static=_at(0.91),
        gib_over_static=_at(0.91),
        good_share=_from(0.64, 0.72),
        latency_p99_s=_from(219.0, 265.0),
        changes=_from(71, 89),
        recovery_mean_s=_from(84.0, 133.0),
        recovery_max_s=1092.0,
    ),
    ("TSW", "reactive"): Published(
        core_over_static=_at(0.82),
        gib_over_static=_at(0.82),
        good_share=_from(0.85, 0.86),
        latency_p99_s=_from(36.0, 43.0),
        changes=_from(165, 184),
        recovery_mean_s=_from(100.0, 107.0),
        recovery_max_s=284.0,
    ),
}

PHOEBE = (
    "Phoebe was published on a run of its own (6 hours, 8 failures, both jobs several times): 14.4 of 24 workers on "
    "average (0.60 of static), 88-90 % and 75-90 % of the seconds within the limit, recoveries of 172-215 s on "
    "average, 45 of 72 over its own target of 180 s."
)
NEVER_PUBLISHED = "TidalScale and the rescaler were never published on these jobs: nothing stands beside them."
BEST_FIXED = {"YSB": (0.67, 0.17), "TSW": (0.58, 0.07)}
"""Core-h and GB-h over static of the best fixed configuration in an earlier trial simulation; nobody measured it."""

BAD_S_PER_CHANGE = {
    Mechanism.IN_PLACE_RESCALE: _from(15.0, 20.0),
    Mechanism.REDEPLOY: _from(57.0, 108.0),
    Mechanism.OPERATOR_UPGRADE: _from(140.0, 240.0),
}
"""Outside failures; redeploys on YSB."""
REDEPLOY_BAD_S = {"YSB": BAD_S_PER_CHANGE[Mechanism.REDEPLOY], "TSW": _from(122.0, 153.0)}
STABLE_BELOW_PER_CORE_S = {"YSB": 3000.0, "TSW": 4000.0}
"""Events per second and core; above twice as much, most profiles were bad."""
RECOVERY_BY_INTERVAL_S = {10.0: 121.0, 30.0: 145.0, 50.0: 167.0, 70.0: 195.0}
"""Of TSW, by its checkpoint interval: medians of the profiles that recovered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One figure of a policy: what came of its runs, and what was published."""

    figure: str
    unit: Literal["ratio", "share", "seconds", "latency", "count"]
    ours: Spread | None
    theirs: Range
    longest: bool = False
    """Whether the longest of all runs was published, and so counts here as well, instead of the mean over the seeds."""
    close_within: float | None = None
    """How far off a policy that was rebuilt may be: a share of the published, or of all seconds. None: no goal."""

    @property
    def value(self) -> float | None:
        """Ours, in one number; the least that it can be where it was cut off."""
        if self.ours is None:
            return None
        return self.ours.most if self.longest else self.ours.mean

    @property
    def is_cut_off(self) -> bool:
        """Whether ours may be larger."""
        return self.ours is not None and self.ours.censored

    @property
    def misfit(self) -> float | None:
        """To the nearest end of the published range, as a share of it; shares of seconds are subtracted.

        None where there is nothing to divide by, nothing of ours, or where ours was cut off before it was above the
        range: nobody knows where it would have ended.
        """
        value = self.value
        if value is None or not math.isfinite(value):
            return None
        off = self.theirs.outside(value)
        if self.is_cut_off and off <= 0:
            return None
        if self.unit == "share" or not off:
            return off
        nearest = value - off
        return off / nearest if nearest else None

    @property
    def is_close(self) -> bool | None:
        """None: no goal was set, or nothing can be said."""
        if self.close_within is None or self.misfit is None:
            return None
        return abs(self.misfit) <= self.close_within


def beside(aggregate: Aggregate) -> list[Beside]:
    """The figures of a policy beside those published of it on the same job; empty where none were."""
    record = aggregate.summaries[0].record
    job = published_job(record)
    if job is None or (job, aggregate.policy) not in _PUBLISHED:
        return []
    theirs = _PUBLISHED[job, aggregate.policy]
    is_rebuilt = set_up_alike(record)

    def over(pick: Callable[[OverBaseline], float | None]) -> Spread | None:
        return aggregate.spread(lambda one: None if one.over_baseline is None else pick(one.over_baseline))

    def goal(within: float) -> float | None:
        return within if is_rebuilt else None

    def profiling_core(over: OverBaseline) -> float:
        return over.by_purpose[Purpose.PROFILING].core if Purpose.PROFILING in over.by_purpose else 0.0

    def profiling_gib(over: OverBaseline) -> float:
        return over.by_purpose[Purpose.PROFILING].gib if Purpose.PROFILING in over.by_purpose else 0.0

    return [
        Beside(
            figure="core-h / static",
            unit="ratio",
            ours=over(lambda one: one.core),
            theirs=theirs.core_over_static,
            close_within=goal(0.10),
        ),
        Beside(
            figure="GiB-h / static",
            unit="ratio",
            ours=over(lambda one: one.gib),
            theirs=theirs.gib_over_static,
            close_within=goal(0.10),
        ),
        Beside(
            figure="profiling core-h / static",
            unit="ratio",
            ours=over(profiling_core),
            theirs=_at(theirs.profiling_core),
        ),
        Beside(
            figure="profiling GiB-h / static",
            unit="ratio",
            ours=over(profiling_gib),
            theirs=_at(theirs.profiling_gib),
        ),
        Beside(
            figure="good seconds",
            unit="share",
            ours=aggregate.spread(lambda one: one.good_share),
            theirs=theirs.good_share,
            close_within=goal(0.05),
        ),
        Beside(
            figure="latency p99",
            unit="latency",
            ours=aggregate.spread(lambda one: None if one.latency_p50 is None else one.latency_p50.p99_s),
            theirs=theirs.latency_p99_s,
        ),
        Beside(
            figure="changes",
            unit="count",
            ours=aggregate.spread(lambda one: one.changes),
            theirs=theirs.changes,
            close_within=goal(0.30),
        ),
        Beside(
            figure="recovery mean",
            unit="seconds",
            ours=aggregate.spread(lambda one: one.recovery_mean_s),
            theirs=theirs.recovery_mean_s,
        ),
        Beside(
            figure="recovery max",
            unit="seconds",
            ours=aggregate.spread(lambda one: one.recovery_max_s),
            theirs=_at(theirs.recovery_max_s),
            longest=True,
        ),
    ]


_JOBS = {"paper-cluster": "YSB", "paper-cluster-tsw": "TSW"}


def published(job: str, policy: str) -> Published:
    """The figures of this policy on this job; KeyError where there are none."""
    return _PUBLISHED[job, policy]


def published_job(record: RunRecord) -> str | None:
    """The job whose published figures a run can stand beside; None where there is none.

    The same cluster (the profile as it is shipped), start, length and failures.
    """
    job = _JOBS.get(record.profile or "")
    failures = record.plan.get("failures")
    if job is None or record.profile is None or not isinstance(failures, dict):
        return None
    is_alike = (
        record.duration_s == DURATION_S
        and failures.get("every") == FAILURE_EVERY_S
        and failures.get("kind") == [FAILURE_KIND]
        and record.start == START
        and record.versions.get("profile") == _digest(record.profile)
    )
    return job if is_alike else None


def set_up_alike(record: RunRecord) -> bool:
    """Whether a run's policy and its loop are set up as in the shipped plan `paper`: else it is another policy."""
    paper = _paper()
    return record.plan.get("control") == paper["control"] and _policy_in(record.plan, record.policy) == _policy_in(
        paper, record.policy
    )


@cache
def _paper() -> Mapping[str, JsonValue]:
    return read_plan(TomlFile(find_plan("paper"))).resolved()


@cache
def _digest(profile: str) -> str:
    return load_profile(profile).digest


def _policy_in(plan: Mapping[str, JsonValue], label: str) -> JsonValue:
    policies = plan.get("policies")
    tables = [table for table in policies if isinstance(table, dict)] if isinstance(policies, list) else []
    return next((table for table in tables if (table.get("name") or table.get("policy")) == label), None)
