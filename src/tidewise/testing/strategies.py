"""Hypothesis strategies for the vocabulary, so that tests here and in outside plugins can draw any legal object.

Each is made once: to make it anew for every object that is drawn took longer than to draw it.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from tidewise.core import (
    MEDIAN,
    Audited,
    Censored,
    ChangeCost,
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    ControllerStopped,
    Decided,
    Decision,
    Estimate,
    FaultInjected,
    Forecast,
    GuardVerdict,
    JobStatus,
    JournalEvent,
    Keep,
    LatencyMethod,
    Measured,
    Mechanism,
    Meter,
    Observation,
    OperatorKind,
    OperatorReport,
    Origin,
    Overridden,
    OverrideLifted,
    Paused,
    Prices,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    ProfileRequested,
    Promises,
    Purpose,
    Reason,
    Reconfigure,
    Reported,
    Resumed,
    Situation,
    Usage,
    Verdict,
)

_Made = TypeVar("_Made")

_KiB = 1024
_spans_s = st.floats(0.0, 1e6)
_rates_per_s = st.floats(0.0, 1e9)
_shares = st.floats(0.0, 1.0)
_maybe_shares = st.none() | _shares
_three_spans_s = st.lists(_spans_s, min_size=3, max_size=3)
_levels = st.lists(st.floats(0.01, 0.99), max_size=4)


@cache
def times_s() -> st.SearchStrategy[float]:
    """Points in time on the clock of a run."""
    return st.floats(0.0, 1e9)


@cache
def texts() -> st.SearchStrategy[str]:
    """Names and sentences that are not blank."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20).filter(
        lambda text: bool(text.strip())
    )


@cache
def engine_settings() -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Other settings of an engine, sorted by name."""
    return st.dictionaries(texts(), st.text(max_size=10), max_size=3).map(lambda named: tuple(sorted(named.items())))


@cache
def configurations() -> st.SearchStrategy[Configuration]:
    """Any configuration."""
    return st.builds(
        Configuration,
        executors=st.integers(1, 1000),
        slots_per_executor=st.integers(1, 64),
        cores_per_executor=st.floats(0.01, 128.0),
        memory_mib_per_executor=st.integers(1, _KiB * _KiB),
        commit_interval_s=st.floats(0.0, 3600.0),
        state_partitions=st.none() | st.integers(1, 10_000),
        settings=engine_settings(),
    )


@cache
def change_costs() -> st.SearchStrategy[ChangeCost]:
    """What one mechanism costs."""
    return st.builds(
        ChangeCost,
        mechanism=st.sampled_from(Mechanism),
        gap_s=_spans_s,
        preparation_s=_spans_s,
        runs_double=st.booleans(),
    )


def _ascending(values: st.SearchStrategy[_Made]) -> st.SearchStrategy[tuple[_Made, ...]]:
    return st.lists(values, min_size=1, max_size=4, unique=True).map(
        lambda drawn: tuple(sorted(drawn))  # type: ignore[type-var]  # only ever called with numbers
    )


@cache
def spaces() -> st.SearchStrategy[ConfigurationSpace]:
    """Spaces of 1 to about 4,000 configurations, with any set of mechanisms in any order."""
    return st.builds(
        ConfigurationSpace,
        executors=_ascending(st.integers(1, 100)),
        slots_per_executor=_ascending(st.integers(1, 16)),
        cores_per_executor=_ascending(st.floats(0.1, 64.0)),
        memory_mib_per_executor=_ascending(st.integers(64, 64 * _KiB)),
        commit_interval_s=_ascending(st.floats(0.0, 600.0)),
        state_partitions=st.just((None,)) | _ascending(st.integers(1, 1000)),
        settings=engine_settings(),
        changes=st.lists(
            change_costs(), min_size=1, max_size=len(Mechanism), unique_by=lambda cost: cost.mechanism
        ).map(tuple),
    )


@st.composite
def members(draw: st.DrawFn, space: ConfigurationSpace) -> Configuration:
    """Configurations of this space."""
    return Configuration(
        executors=draw(st.sampled_from(space.executors)),
        slots_per_executor=draw(st.sampled_from(space.slots_per_executor)),
        cores_per_executor=draw(st.sampled_from(space.cores_per_executor)),
        memory_mib_per_executor=draw(st.sampled_from(space.memory_mib_per_executor)),
        commit_interval_s=draw(st.sampled_from(space.commit_interval_s)),
        state_partitions=draw(st.sampled_from(space.state_partitions)),
        settings=space.settings,
    )


@cache
def prices() -> st.SearchStrategy[Prices]:
    """Prices of which at least that of cores is not zero."""
    return st.builds(Prices, core_hour=st.floats(1e-6, 100.0), gib_hour=st.floats(0.0, 100.0), currency=texts())


@cache
def promises() -> st.SearchStrategy[Promises]:
    """Promises about latency, recovery or both."""
    times = st.floats(1e-3, 1e5)
    shares = st.floats(0.01, 0.99)
    return st.one_of(
        st.builds(Promises, latency_p95_s=times, good_share=shares),
        st.builds(Promises, recovery_s=times, good_share=shares),
        st.builds(Promises, latency_p95_s=times, recovery_s=times, good_share=shares),
    )


@cache
def estimates() -> st.SearchStrategy[Estimate]:
    """Beliefs, certain ones among them."""
    return st.builds(Estimate, mean=st.floats(-1e9, 1e9), spread=st.floats(0.0, 1e9))


@cache
def measured() -> st.SearchStrategy[Measured]:
    """Measured times, some of them cut off."""
    return st.one_of(_spans_s, st.builds(Censored, at_least=_spans_s))


_READS = OperatorReport(
    name="reads",
    kind=OperatorKind.CONTINUOUS,
    channels=4,
    input_rate_per_s=1000.0,
    throughput_per_channel_per_s=400.0,
    latency_s=0.5,
)
_COUNTS = OperatorReport(
    name="counts",
    kind=OperatorKind.WINDOW,
    channels=2,
    input_rate_per_s=10.0,
    throughput_per_channel_per_s=None,
    latency_s=None,
)
_OPERATORS = ((), (_READS,), (_READS, _COUNTS))
"""Drawn whole: histories have many reports, and to draw each number of each operator would take most of the time."""


@cache
@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Any report."""
    latencies = sorted(draw(_three_spans_s))
    p50, p95, p99 = (value if draw(st.booleans()) else None for value in latencies)
    return Observation(
        time_s=draw(times_s()),
        window_s=draw(st.floats(1e-3, 3600.0)),
        configuration=draw(configurations()),
        status=draw(st.sampled_from(JobStatus)),
        input_rate_per_s=draw(_rates_per_s),
        processed_rate_per_s=draw(_rates_per_s),
        backlog_records=draw(_rates_per_s),
        latency_p50_s=p50,
        latency_p95_s=p95,
        latency_p99_s=p99,
        latency_method=draw(st.sampled_from(LatencyMethod)),
        busy_share=draw(_maybe_shares),
        cpu_share=draw(_maybe_shares),
        memory_share=draw(st.none() | st.floats(0.0, 2.0)),
        state_mib=draw(st.none() | st.floats(0.0, 1e6)),
        arrival_rate_per_s=draw(st.none() | _rates_per_s),
        operators=draw(st.sampled_from(_OPERATORS)),
    )


@cache
@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    """Any forecast: one to five quantile paths that do not cross."""
    levels = sorted({MEDIAN, *draw(_levels)})
    steps = draw(st.integers(1, 12))
    columns = [sorted(draw(st.lists(_rates_per_s, min_size=len(levels), max_size=len(levels)))) for _ in range(steps)]
    return Forecast(
        made_at_s=draw(times_s()),
        step_s=draw(st.floats(0.1, 3600.0)),
        levels=tuple(levels),
        paths_per_s=tuple(zip(*columns, strict=True)),
        model=draw(texts()),
    )


@cache
def reasons() -> st.SearchStrategy[Reason]:
    """Reasons with evidence of every type that JSON knows."""
    words = st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,5}){0,3}", fullmatch=True)
    plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e12, 1e12) | st.text(max_size=10)
    return st.builds(Reason, code=words, sentence=texts(), evidence=st.dictionaries(texts(), plain, max_size=3))


def _several(one: st.SearchStrategy[_Made], *, least: int = 1) -> st.SearchStrategy[tuple[_Made, ...]]:
    return st.lists(one, min_size=least, max_size=3).map(tuple)


@cache
def decisions() -> st.SearchStrategy[Decision]:
    """Any decision of a policy."""
    return st.one_of(
        st.builds(Keep, reason=reasons()),
        st.builds(
            Reconfigure,
            target=configurations(),
            reason=reasons(),
            mechanism=st.none() | st.sampled_from(Mechanism),
        ),
        st.builds(
            Profile,
            candidates=_several(configurations()),
            reason=reasons(),
            settle_s=_spans_s,
            measure_s=st.floats(0.1, 1e5),
            inject_failure=st.booleans(),
        ),
    )


@cache
@st.composite
def change_requests(draw: st.DrawFn) -> ChangeRequest:
    """Any request to change a job."""
    origin = draw(st.sampled_from(Origin))
    requested_at_s = draw(times_s())
    return ChangeRequest(
        request_id=draw(texts()),
        origin=origin,
        source=draw(configurations()),
        target=draw(configurations()),
        mechanism=draw(st.sampled_from(Mechanism)),
        requested_at_s=requested_at_s,
        deadline_s=requested_at_s + draw(st.floats(1.0, 1e5)),
        reason=draw(reasons()),
        undoes=draw(texts()) if origin is Origin.ROLLBACK else None,
    )


@cache
def change_outcomes() -> st.SearchStrategy[ChangeOutcome]:
    """Any end of a change."""
    return st.builds(
        ChangeOutcome,
        request_id=texts(),
        status=st.sampled_from(ChangeStatus),
        finished_at_s=times_s(),
        configuration=configurations(),
        gap_s=_spans_s,
        detail=texts(),
    )


@cache
@st.composite
def profile_requests(draw: st.DrawFn) -> ProfileRequest:
    """Any request to measure copies."""
    requested_at_s = draw(times_s())
    return ProfileRequest(
        request_id=draw(texts()),
        candidates=draw(_several(configurations())),
        settle_s=draw(_spans_s),
        measure_s=draw(st.floats(0.1, 1e5)),
        inject_failure=draw(st.booleans()),
        recovery_limit_s=draw(st.floats(0.1, 1e5)),
        requested_at_s=requested_at_s,
        deadline_s=requested_at_s + draw(st.floats(1.0, 1e5)),
        reason=draw(reasons()),
    )


@cache
@st.composite
def profile_measurements(draw: st.DrawFn) -> ProfileMeasurement:
    """What one copy showed."""
    p50, p95 = (value if draw(st.booleans()) else None for value in sorted([draw(_spans_s), draw(_spans_s)]))
    return ProfileMeasurement(
        configuration=draw(configurations()),
        input_rate_per_s=draw(_rates_per_s),
        processed_rate_per_s=draw(_rates_per_s),
        latency_p50_s=p50,
        latency_p95_s=p95,
        busy_share=draw(_maybe_shares),
        recovery_s=draw(st.none() | measured()),
        detail=draw(st.text(max_size=10)),
    )


@cache
def profile_outcomes() -> st.SearchStrategy[ProfileOutcome]:
    """Any end of a profile."""
    return st.builds(
        ProfileOutcome, request_id=texts(), finished_at_s=times_s(), measurements=_several(profile_measurements())
    )


@cache
def guard_verdicts() -> st.SearchStrategy[GuardVerdict]:
    """Vetoes, and alterations with their target."""
    return st.one_of(
        st.builds(GuardVerdict, guard=texts(), verdict=st.just(Verdict.VETO), reason=reasons()),
        st.builds(
            GuardVerdict, guard=texts(), verdict=st.just(Verdict.ALTER), reason=reasons(), target=configurations()
        ),
    )


@cache
def usages() -> st.SearchStrategy[Usage]:
    """Any amount used."""
    return st.builds(Usage, core_s=st.floats(0.0, 1e12), memory_mib_s=st.floats(0.0, 1e15))


@cache
def meters() -> st.SearchStrategy[Meter]:
    """Any state of a meter, purposes that have cost nothing left out."""
    return st.dictionaries(st.sampled_from(Purpose), usages())


@cache
def events() -> st.SearchStrategy[JournalEvent]:
    """Any event that a journal may hold, each kind as likely as another."""
    at_s, name = times_s(), texts()
    return st.one_of(
        st.builds(ControllerStarted, at_s=at_s, version=name, policy=name, configuration=configurations()),
        st.builds(Reported, at_s=at_s, observation=observations()),
        st.builds(
            Decided,
            at_s=at_s,
            origin=st.sampled_from(Origin),
            decision=decisions(),
            verdicts=_several(guard_verdicts(), least=0),
            forecast=st.none() | forecasts(),
        ),
        st.builds(ChangeRequested, at_s=at_s, request=change_requests()),
        st.builds(ChangeFinished, at_s=at_s, outcome=change_outcomes()),
        st.builds(ChangeExpired, at_s=at_s, request_id=name, configuration=configurations()),
        st.builds(ChangeSettled, at_s=at_s, request_id=name),
        st.builds(ProfileRequested, at_s=at_s, request=profile_requests()),
        st.builds(ProfileFinished, at_s=at_s, outcome=profile_outcomes()),
        st.builds(ProfileExpired, at_s=at_s, request_id=name),
        st.builds(FaultInjected, at_s=at_s, fault=name),
        st.builds(Audited, at_s=at_s, after=name, checkpoint=name, clean=st.booleans(), sentence=name),
        st.builds(Paused, at_s=at_s, by=name),
        st.builds(Resumed, at_s=at_s, by=name),
        st.builds(Overridden, at_s=at_s, by=name, target=configurations()),
        st.builds(OverrideLifted, at_s=at_s, by=name),
        st.builds(ControllerStopped, at_s=at_s, reason=name),
    )


def intentions(space: ConfigurationSpace, observed: Configuration) -> st.SearchStrategy[Configuration]:
    """What may be meant to run where this is observed: mostly the same, now and then with more executors."""
    more = [observed.with_executors(count) for count in space.executors if count > observed.executors]
    return st.sampled_from((observed, observed, *more))


@cache
@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Anything a policy may find; its reports need not tell one story."""
    space = draw(spaces())
    history = sorted(draw(st.lists(observations(), min_size=1, max_size=5)), key=lambda observation: observation.time_s)
    now_s = history[-1].time_s + draw(st.floats(0.0, 60.0))
    observed = draw(members(space))
    return Situation(
        now_s=now_s,
        history=tuple(history),
        observed=observed,
        intended=draw(intentions(space, observed)),
        requested=draw(st.none() | members(space)),
        last_change_finished_at_s=draw(st.none() | st.floats(0.0, now_s)),
        forecast=draw(st.none() | forecasts()),
        profiles=draw(_several(profile_outcomes(), least=0)),
        space=space,
        promises=draw(promises()),
        prices=draw(prices()),
    )
