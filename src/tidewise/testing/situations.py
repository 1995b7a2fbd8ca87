"""Situations to try a policy in: built by hand, or drawn by Hypothesis with a past that hangs together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import strategies as st

from tidewise.core import (
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    Forecast,
    JobStatus,
    LatencyMethod,
    Mechanism,
    Observation,
    Prices,
    Promises,
    Situation,
)
from tidewise.testing.strategies import forecasts, intentions, members, promises, spaces

_COSTS = {
    Mechanism.LIVE: ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=10.0),
    Mechanism.QUERY_RESTART: ChangeCost(mechanism=Mechanism.QUERY_RESTART, gap_s=2.0),
    Mechanism.HANDOVER: ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=2.0, preparation_s=40.0, runs_double=True),
    Mechanism.REDEPLOY: ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=45.0),
}


def space_of(
    *, executors: Iterable[int] = range(1, 25), mechanisms: Iterable[Mechanism] = _COSTS
) -> ConfigurationSpace:
    """A space of executors only."""
    return ConfigurationSpace(executors=tuple(executors), changes=tuple(_COSTS[name] for name in mechanisms))


def report(
    *,
    time_s: float,
    executors: int = 4,
    window_s: float = 1.0,
    status: JobStatus = JobStatus.RUNNING,
    rate_per_s: float = 1000.0,
    processed_per_s: float | None = None,
    backlog: float = 0.0,
    busy_share: float | None = 0.5,
    cpu_share: float | None = 0.35,
    latency_s: float | None = 0.5,
) -> Observation:
    """A report; by default of a job that keeps up and meets its targets."""
    return Observation(
        time_s=time_s,
        window_s=window_s,
        configuration=Configuration(executors=executors),
        status=status,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s if processed_per_s is None else processed_per_s,
        backlog_records=backlog,
        latency_p50_s=latency_s,
        latency_p95_s=None if latency_s is None else 2 * latency_s,
        latency_p99_s=None if latency_s is None else 3 * latency_s,
        latency_method=None if latency_s is None else LatencyMethod.SIMULATED,
        busy_share=busy_share,
        cpu_share=cpu_share,
    )


def situation_of(
    history: Iterable[Observation],
    *,
    now_s: float | None = None,
    observed: Configuration | None = None,
    intended: Configuration | None = None,
    requested: Configuration | None = None,
    last_change_finished_at_s: float | None = None,
    last_change_mechanism: Mechanism | None = None,
    forecast: Forecast | None = None,
    space: ConfigurationSpace | None = None,
) -> Situation:
    """A situation with this history; by default at its end, with what it shows running as intended, no change on."""
    reports = list(history)
    runs = reports[-1].configuration if observed is None else observed
    return Situation(
        now_s=reports[-1].time_s if now_s is None else now_s,
        history=reports,
        observed=runs,
        intended=runs if intended is None else intended,
        requested=requested,
        last_change_finished_at_s=last_change_finished_at_s,
        last_change_mechanism=last_change_mechanism,
        forecast=forecast,
        profiles=(),
        space=space_of() if space is None else space,
        promises=Promises(latency_p95_s=2.0, recovery_s=180.0),
        prices=Prices(),
    )


# Made once: to make them anew for every report that is drawn took longer than to draw it.
_rates_per_s = st.one_of(st.just(0.0), st.floats(0.0, 1e6), st.just(1e12), st.just(5e-324))
_arrivals_per_s = st.one_of(st.none(), _rates_per_s)
_shares = st.one_of(st.none(), st.just(0.0), st.just(1.0), st.floats(0.0, 1.0))
_memory_shares = st.one_of(st.none(), st.floats(0.0, 2.0))
_latencies_s = st.one_of(st.none(), st.floats(0.0, 1e5))
_statuses = st.sampled_from((JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.CHANGING, JobStatus.DOWN))
_windows_s = st.sampled_from((0.5, 1.0, 15.0, 60.0, 300.0))
_begins_s = st.sampled_from((0.0, 1e4, 1.8e9))
_chapter_counts = st.integers(1, 5)
_pauses_s = st.sampled_from((0.0, 0.0, 5.0, 4000.0))
_report_counts = st.sampled_from((1, 2, 30))
_delays_s = st.sampled_from((0.0, 0.5, 120.0))
_forecasts = st.none() | forecasts()


@st.composite
def _chapters(draw: st.DrawFn, configuration: Configuration, window_s: float) -> Observation:
    """What the reports of one stretch of time say, each the same but for its time."""
    latency_s = draw(_latencies_s)
    return Observation(
        time_s=0.0,
        window_s=window_s,
        configuration=configuration,
        status=draw(_statuses),
        input_rate_per_s=draw(_rates_per_s),
        processed_rate_per_s=draw(_rates_per_s),
        backlog_records=draw(_rates_per_s),
        latency_p50_s=latency_s,
        latency_p95_s=None if latency_s is None else draw(st.one_of(st.none(), st.just(2 * latency_s))),
        latency_method=None if latency_s is None else LatencyMethod.SIMULATED,
        busy_share=draw(_shares),
        cpu_share=draw(_shares),
        memory_share=draw(_memory_shares),
        arrival_rate_per_s=draw(_arrivals_per_s),
    )


@st.composite
def stories(draw: st.DrawFn) -> Situation:
    """Situations with a past that hangs together: stretches of steady operation, gaps, failures, changes."""
    space = draw(spaces())
    home = draw(members(space))
    # Mostly the executors differ, as they do when a policy has been at work.
    others = [home, home, home.with_executors(draw(st.sampled_from(space.executors))), draw(members(space))]
    window_s = draw(_windows_s)
    # Times far from zero: nothing may depend on where a clock starts.
    time_s = draw(_begins_s)
    history: list[Observation] = []
    for _ in range(draw(_chapter_counts)):
        time_s += draw(_pauses_s)
        chapter = draw(_chapters(draw(st.sampled_from(others)), window_s))
        for _ in range(draw(_report_counts)):
            time_s += window_s
            history.append(replace(chapter, time_s=time_s))
    now_s = time_s + draw(_delays_s)
    observed = draw(st.sampled_from((history[-1].configuration, *others)))
    return Situation(
        now_s=now_s,
        history=history,
        observed=observed,
        intended=draw(intentions(space, observed)),
        requested=draw(st.sampled_from((None, None, None, others[-1]))),
        last_change_finished_at_s=draw(st.sampled_from((None, history[0].time_s, now_s))),
        forecast=draw(_forecasts),
        profiles=(),
        space=space,
        promises=draw(promises()),
        prices=Prices(),
    )
