"""Hypothesis strategies for everything that a journal may hold."""

from __future__ import annotations

from hypothesis import strategies as st

from tidewise.core import (
    Audited,
    Censored,
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Configuration,
    ControllerStarted,
    ControllerStopped,
    Decided,
    FaultInjected,
    Forecast,
    GuardVerdict,
    JobStatus,
    JournalEvent,
    Keep,
    LatencyMethod,
    Mechanism,
    Observation,
    OperatorKind,
    OperatorReport,
    Origin,
    Overridden,
    OverrideLifted,
    Paused,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    ProfileRequested,
    Reason,
    Reconfigure,
    Reported,
    Resumed,
    Verdict,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(-1e12, 1e12)
amounts = st.floats(0.0, 1e15)
positive = st.floats(1e-6, 1e9)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = text.filter(lambda each: bool(each.strip()))
codes = st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", fullmatch=True)

configurations = st.builds(
    Configuration,
    executors=st.integers(1, 10_000),
    slots_per_executor=st.integers(1, 64),
    cores_per_executor=positive,
    memory_mib_per_executor=st.integers(1, 1_000_000),
    commit_interval_s=st.floats(0.0, 1e6),
    state_partitions=st.none() | st.integers(1, 10_000),
    settings=st.dictionaries(text, text, max_size=3).map(lambda found: tuple(sorted(found.items()))),
)
evidence = st.dictionaries(text, numbers | st.integers(-(2**53), 2**53) | text | st.booleans() | st.none(), max_size=4)
reasons = st.builds(Reason, code=codes, sentence=words, evidence=evidence)


@st.composite
def operator_reports(draw: st.DrawFn) -> OperatorReport:
    return OperatorReport(
        name=draw(words),
        kind=draw(st.sampled_from(OperatorKind)),
        channels=draw(st.integers(1, 100)),
        input_rate_per_s=draw(amounts),
        throughput_per_channel_per_s=draw(st.none() | positive),
        latency_s=draw(st.none() | amounts),
    )


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    latencies = sorted(draw(st.lists(amounts, min_size=3, max_size=3)))
    known = draw(st.booleans())
    return Observation(
        time_s=draw(times),
        window_s=draw(positive),
        configuration=draw(configurations),
        status=draw(st.sampled_from(JobStatus)),
        input_rate_per_s=draw(amounts),
        processed_rate_per_s=draw(amounts),
        backlog_records=draw(amounts),
        latency_p50_s=latencies[0] if known else None,
        latency_p95_s=latencies[1] if known else None,
        latency_p99_s=latencies[2] if known and draw(st.booleans()) else None,
        latency_method=draw(st.sampled_from(LatencyMethod)) if known else None,
        busy_share=draw(st.none() | st.floats(0, 1)),
        cpu_share=draw(st.none() | st.floats(0, 1)),
        memory_share=draw(st.none() | amounts),
        state_mib=draw(st.none() | amounts),
        operators=tuple(draw(st.lists(operator_reports(), max_size=2))),
    )


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    steps = draw(st.integers(1, 5))
    low = draw(st.lists(amounts, min_size=steps, max_size=steps))
    middle = [value * 1.5 for value in low]
    return Forecast(
        made_at_s=draw(times),
        step_s=draw(positive),
        levels=(0.1, 0.5),
        paths_per_s=(tuple(low), tuple(middle)),
        model=draw(words),
    )


decisions = (
    st.builds(Keep, reason=reasons)
    | st.builds(Reconfigure, target=configurations, reason=reasons, mechanism=st.none() | st.sampled_from(Mechanism))
    | st.builds(
        Profile,
        candidates=st.lists(configurations, min_size=1, max_size=3).map(tuple),
        reason=reasons,
        settle_s=amounts,
        measure_s=positive,
        inject_failure=st.booleans(),
    )
)
verdicts = st.builds(
    GuardVerdict, guard=words, verdict=st.just(Verdict.ALTER), reason=reasons, target=configurations
) | st.builds(GuardVerdict, guard=words, verdict=st.just(Verdict.VETO), reason=reasons)


@st.composite
def change_requests(draw: st.DrawFn) -> ChangeRequest:
    origin, requested_at_s = draw(st.sampled_from(Origin)), draw(st.floats(-1e6, 1e6))
    return ChangeRequest(
        request_id=draw(words),
        origin=origin,
        source=draw(configurations),
        target=draw(configurations),
        mechanism=draw(st.sampled_from(Mechanism)),
        requested_at_s=requested_at_s,
        deadline_s=requested_at_s + draw(st.floats(1.0, 1e6)),
        reason=draw(reasons),
        undoes=draw(words) if origin is Origin.ROLLBACK else None,
    )


@st.composite
def profile_requests(draw: st.DrawFn) -> ProfileRequest:
    requested_at_s = draw(st.floats(-1e6, 1e6))
    return ProfileRequest(
        request_id=draw(words),
        candidates=tuple(draw(st.lists(configurations, min_size=1, max_size=3))),
        settle_s=draw(amounts),
        measure_s=draw(positive),
        inject_failure=draw(st.booleans()),
        recovery_limit_s=draw(positive),
        requested_at_s=requested_at_s,
        deadline_s=requested_at_s + draw(st.floats(1.0, 1e6)),
        reason=draw(reasons),
    )


@st.composite
def profile_measurements(draw: st.DrawFn) -> ProfileMeasurement:
    latencies = sorted(draw(st.lists(amounts, min_size=2, max_size=2)))
    return ProfileMeasurement(
        configuration=draw(configurations),
        input_rate_per_s=draw(amounts),
        processed_rate_per_s=draw(amounts),
        latency_p50_s=latencies[0] if draw(st.booleans()) else None,
        latency_p95_s=latencies[1] if draw(st.booleans()) else None,
        busy_share=draw(st.none() | st.floats(0, 1)),
        recovery_s=draw(st.none() | amounts | st.builds(Censored, at_least=amounts)),
        detail=draw(text),
    )


change_outcomes = st.builds(
    ChangeOutcome,
    request_id=words,
    status=st.sampled_from(ChangeStatus),
    finished_at_s=times,
    configuration=configurations,
    gap_s=amounts,
    detail=words,
)
profile_outcomes = st.builds(
    ProfileOutcome,
    request_id=words,
    finished_at_s=times,
    measurements=st.lists(profile_measurements(), max_size=3).map(tuple),
)

EVENTS: dict[type[JournalEvent], st.SearchStrategy[JournalEvent]] = {
    ControllerStarted: st.builds(
        ControllerStarted, at_s=times, version=words, policy=words, configuration=configurations
    ),
    Reported: st.builds(Reported, at_s=times, observation=observations()),
    Decided: st.builds(
        Decided,
        at_s=times,
        origin=st.sampled_from(Origin),
        decision=decisions,
        verdicts=st.lists(verdicts, max_size=3).map(tuple),
        forecast=st.none() | forecasts(),
    ),
    ChangeRequested: st.builds(ChangeRequested, at_s=times, request=change_requests()),
    ChangeFinished: st.builds(ChangeFinished, at_s=times, outcome=change_outcomes),
    ChangeExpired: st.builds(ChangeExpired, at_s=times, request_id=words, configuration=configurations),
    ChangeSettled: st.builds(ChangeSettled, at_s=times, request_id=words),
    ProfileRequested: st.builds(ProfileRequested, at_s=times, request=profile_requests()),
    ProfileFinished: st.builds(ProfileFinished, at_s=times, outcome=profile_outcomes),
    ProfileExpired: st.builds(ProfileExpired, at_s=times, request_id=words),
    FaultInjected: st.builds(FaultInjected, at_s=times, fault=words),
    Audited: st.builds(Audited, at_s=times, after=words, checkpoint=words, clean=st.booleans(), sentence=words),
    Paused: st.builds(Paused, at_s=times, by=words),
    Resumed: st.builds(Resumed, at_s=times, by=words),
    Overridden: st.builds(Overridden, at_s=times, by=words, target=configurations),
    OverrideLifted: st.builds(OverrideLifted, at_s=times, by=words),
    ControllerStopped: st.builds(ControllerStopped, at_s=times, reason=words),
}
