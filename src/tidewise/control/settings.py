"""What a user may set about the control loop, each setting declared once with its unit, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidewise.core import Mechanism
from tidewise.core.checks import require, require_finite, require_text

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyWindow:
    """The same hours of every day of the run's clock; may run over midnight (begin after end)."""

    begin_s: float
    """Seconds since the beginning of the day; part of the window."""
    end_s: float
    """Seconds since the beginning of the day; no longer part of the window."""
    why: str = "a daily blackout window"

    def __post_init__(self) -> None:
        for name, value in (("begin_s", self.begin_s), ("end_s", self.end_s)):
            require(0.0 <= value <= DAY_S, f"{name} of a daily window must lie between 0 and {DAY_S:g}, not {value:g}")
        require(self.begin_s != self.end_s, "a daily window must not be empty")
        require_text("why", self.why)

    def covers(self, now_s: float) -> bool:
        of_day_s = now_s % DAY_S
        if self.begin_s < self.end_s:
            return self.begin_s <= of_day_s < self.end_s
        return of_day_s >= self.begin_s or of_day_s < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsoluteWindow:
    """One stretch of the run's clock."""

    begin_s: float
    end_s: float
    """No longer part of the window."""
    why: str = "a blackout window"

    def __post_init__(self) -> None:
        require_finite("begin_s", self.begin_s)
        require_finite("end_s", self.end_s, above=self.begin_s)
        require_text("why", self.why)

    def covers(self, now_s: float) -> bool:
        return self.begin_s <= now_s < self.end_s


Blackout = DailyWindow | AbsoluteWindow


def _cooldowns() -> dict[Mechanism, float]:
    return {
        Mechanism.LIVE: 60.0,
        Mechanism.IN_PLACE_RESCALE: 120.0,
        Mechanism.QUERY_RESTART: 120.0,
        Mechanism.HANDOVER: 300.0,
        Mechanism.REDEPLOY: 600.0,
        Mechanism.OPERATOR_UPGRADE: 600.0,
        Mechanism.REPARTITION: 1800.0,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """How strict the guards are; None switches a guard off."""

    fresh_within_s: float | None = 120.0
    """A policy may change the job only if the latest report's window ended at most this long ago."""
    down_within_s: float | None = 60.0
    """The same for changes that take resources away; taking away blindly is worse than adding blindly."""
    quota_cores: float | None = None
    """The most cores that the job's executors may have together."""
    quota_memory_mib: float | None = None
    """The most memory that the job's executors may have together."""
    largest_step_executors: int | None = None
    """The most executors that one change may add or remove."""
    profile_cores: float | None = None
    """The most cores that the copies of one profile may have together."""
    profile_memory_mib: float | None = None
    """The most memory that they may have together."""
    profile_time_s: float | None = None
    """For how long profiles may be on, all of the run's together."""
    cooldown_s: Mapping[Mechanism, float] | None = field(default_factory=_cooldowns)
    """How long after the end of any change a change by this mechanism has to wait; absent means no wait."""
    blackouts: tuple[Blackout, ...] = ()
    """When policies must leave the job alone."""
    advice_only: bool = False
    """Whether everything is written down and nothing is done, whoever wants it."""

    def __post_init__(self) -> None:
        for name in (
            "fresh_within_s",
            "down_within_s",
            "quota_cores",
            "quota_memory_mib",
            "profile_cores",
            "profile_memory_mib",
        ):
            value = getattr(self, name)
            if value is not None:
                require_finite(name, value, above=0.0)
        if self.profile_time_s is not None:
            require_finite("profile_time_s", self.profile_time_s, least=0.0)
        step = self.largest_step_executors
        require(step is None or step >= 1, f"largest_step_executors must be at least 1, not {step}")
        for mechanism, wait_s in (self.cooldown_s or {}).items():
            require_finite(f"the cooldown of {mechanism}", wait_s, least=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How the loop decides, waits and takes changes back."""

    decide_every_s: float = 60.0
    """The shortest time between two decisions of the policy."""
    forecast_horizon_s: float = 3600.0
    forecast_step_s: float = 60.0
    forecast_every_s: float = 0.0
    """How old a forecast may be before another is made; 0: one for each decision."""
    deadline_minimum_s: float = 120.0
    """No change gets less time than this before it counts as lost."""
    deadline_factor: float = 3.0
    """How many times the mechanism's known duration a change may take, where that is more."""
    probation_s: float = 300.0
    """How long after its end a change is watched; longer by what a longer grace and disturbances take."""
    grace_s: float = 60.0
    """How much of the probation at least is not judged, and how long is not after a failure: the job catches up."""
    grace_factor: float = 2.0
    """How many times as long as the change itself took it is not judged, where that is more."""
    catch_up_s: float = 1800.0
    """A job whose backlog goes down so fast that it will be gone within this time is catching up, and not judged."""
    broken_reports: int | None = 3
    """How many reports in a row have to break a promise that was kept before the change is taken back.
    None: it never is. Changes that fail half-way or miss their deadline are taken back all the same."""
    shortfall_s: float = 600.0
    """How long executors may be missing, which the engine replaces by itself, before they count as gone."""
    back_off_s: float = 300.0
    """How long the target of a change that went wrong is barred; doubles with every further time."""
    back_off_most_s: float = 14_400.0
    """Where the doubling ends."""
    profile_deadline_factor: float = 3.0
    """How many times the settling and measuring time a profile may take, besides `deadline_minimum_s`."""
    profiles_kept: int = 256
    """How many results of profiles a policy sees."""
    observations_kept: int = 100_000
    """The most observations kept in memory, whatever the policy's `history_s`."""
    bars_kept: int = 64
    """The most barred targets kept in memory; those that end first are forgotten first."""

    def __post_init__(self) -> None:
        for name in (
            "decide_every_s",
            "forecast_horizon_s",
            "forecast_step_s",
            "deadline_minimum_s",
            "probation_s",
            "catch_up_s",
            "back_off_s",
        ):
            require_finite(name, getattr(self, name), above=0.0)
        require_finite("deadline_factor", self.deadline_factor, least=1.0)
        require_finite("profile_deadline_factor", self.profile_deadline_factor, least=1.0)
        for name in ("grace_s", "grace_factor", "shortfall_s", "forecast_every_s"):
            require_finite(name, getattr(self, name), least=0.0)
        require(self.grace_s < self.probation_s, "grace_s must be shorter than probation_s: nothing would be judged")
        require_finite("back_off_most_s", self.back_off_most_s, least=self.back_off_s)
        for name in ("broken_reports", "profiles_kept", "observations_kept", "bars_kept"):
            count = getattr(self, name)
            require(count is None or count >= 1, f"{name} must be at least 1, not {count}")

    def back_off_after_s(self, times: int) -> float:
        """How long to wait after something has gone wrong this many times in a row."""
        # Beyond 2**32 the longest wait has long been reached; the cap keeps the power finite.
        return min(self.back_off_most_s, self.back_off_s * 2.0 ** min(times - 1, 32))
