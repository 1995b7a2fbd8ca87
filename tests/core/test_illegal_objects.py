"""No object of the vocabulary can hold an illegal value: every field of every class is tried."""

from __future__ import annotations

import math
import types
import typing
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewise.core
from tidewise.core import (
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
    Estimate,
    FaultInjected,
    Forecast,
    GuardVerdict,
    InvalidValueError,
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
    Prices,
    Profile,
    ProfileExpired,
    ProfileFinished,
    ProfileMeasurement,
    ProfileOutcome,
    ProfileRequest,
    ProfileRequested,
    Promises,
    Reason,
    Reconfigure,
    Reported,
    Resumed,
    Situation,
    Ticked,
    Usage,
    Verdict,
)
from tidewise.testing import strategies

ONE = Configuration(executors=1)
COST = ChangeCost(mechanism=Mechanism.LIVE, gap_s=1.0, preparation_s=1.0)
SPACE = ConfigurationSpace(executors=(1, 2), changes=(COST,))
REASON = Reason(code="a-code", sentence="A sentence.")
OBSERVATION = Observation(
    time_s=10.0,
    window_s=5.0,
    configuration=ONE,
    status=JobStatus.RUNNING,
    input_rate_per_s=10.0,
    processed_rate_per_s=10.0,
    backlog_records=1.0,
    latency_p50_s=1.0,
    latency_p95_s=2.0,
    latency_p99_s=3.0,
    latency_method=LatencyMethod.SIMULATED,
    busy_share=0.5,
    cpu_share=0.5,
    memory_share=0.5,
    state_mib=10.0,
)
FORECAST = Forecast(made_at_s=10.0, step_s=5.0, levels=(0.5, 0.9), paths_per_s=((1.0, 2.0), (2.0, 2.0)), model="m")
REQUEST = ChangeRequest(
    request_id="r",
    origin=Origin.POLICY,
    source=ONE,
    target=ONE,
    mechanism=Mechanism.LIVE,
    requested_at_s=1.0,
    deadline_s=2.0,
    reason=REASON,
)
OUTCOME = ChangeOutcome(request_id="r", status=ChangeStatus.APPLIED, finished_at_s=1.0, configuration=ONE, gap_s=1.0)
PROFILE_REQUEST = ProfileRequest(
    request_id="r",
    candidates=(ONE,),
    settle_s=1.0,
    measure_s=1.0,
    inject_failure=True,
    recovery_limit_s=1.0,
    requested_at_s=1.0,
    deadline_s=2.0,
    reason=REASON,
)
MEASUREMENT = ProfileMeasurement(
    configuration=ONE,
    input_rate_per_s=1.0,
    processed_rate_per_s=1.0,
    latency_p50_s=1.0,
    latency_p95_s=2.0,
    busy_share=0.5,
    recovery_s=3.0,
)
OPERATOR = OperatorReport(
    name="o",
    kind=OperatorKind.WINDOW,
    channels=1,
    input_rate_per_s=1.0,
    throughput_per_channel_per_s=1.0,
    latency_s=1.0,
)
PROFILE_OUTCOME = ProfileOutcome(request_id="r", finished_at_s=1.0, measurements=(MEASUREMENT,))

LEGAL: list[object] = [
    ONE,
    COST,
    SPACE,
    REASON,
    OBSERVATION,
    FORECAST,
    REQUEST,
    OUTCOME,
    PROFILE_REQUEST,
    MEASUREMENT,
    PROFILE_OUTCOME,
    Prices(),
    Promises(latency_p95_s=1.0, recovery_s=1.0),
    Estimate(mean=1.0, spread=1.0),
    Censored(at_least=1.0),
    Usage(core_s=1.0, memory_mib_s=1.0),
    Keep(reason=REASON),
    Reconfigure(reason=REASON, target=ONE),
    Profile(reason=REASON, candidates=(ONE,)),
    GuardVerdict(guard="g", verdict=Verdict.VETO, reason=REASON),
    Situation(
        now_s=10.0,
        history=(OBSERVATION,),
        observed=ONE,
        intended=ONE,
        requested=None,
        last_change_finished_at_s=None,
        forecast=None,
        profiles=(),
        space=SPACE,
        promises=Promises(recovery_s=1.0),
        prices=Prices(),
    ),
    ControllerStarted(at_s=1.0, version="1", policy="p", configuration=ONE),
    Reported(at_s=1.0, observation=OBSERVATION),
    Ticked(at_s=1.0),
    Decided(at_s=1.0, origin=Origin.POLICY, decision=Keep(reason=REASON)),
    ChangeRequested(at_s=1.0, request=REQUEST),
    ChangeFinished(at_s=1.0, outcome=OUTCOME),
    ChangeExpired(at_s=1.0, request_id="r", configuration=ONE),
    ChangeSettled(at_s=1.0, request_id="r"),
    ProfileRequested(at_s=1.0, request=PROFILE_REQUEST),
    ProfileFinished(at_s=1.0, outcome=PROFILE_OUTCOME),
    ProfileExpired(at_s=1.0, request_id="r"),
    FaultInjected(at_s=1.0, fault="f"),
    Audited(at_s=1.0, after="a", checkpoint="c", clean=True, sentence="s"),
    Paused(at_s=1.0, by="b"),
    Resumed(at_s=1.0, by="b"),
    Overridden(at_s=1.0, by="b", target=ONE),
    OverrideLifted(at_s=1.0, by="b"),
    ControllerStopped(at_s=1.0, reason="r"),
    OPERATOR,
]

MAY_BE_NEGATIVE = {"at_s", "time_s", "now_s", "made_at_s", "requested_at_s", "finished_at_s", "mean"}
MAY_BE_BLANK = {"detail"}


def names_of_type(thing: object, wanted: type) -> list[str]:
    """The fields of a dataclass that may hold this type, among others."""
    assert is_dataclass(thing)
    assert not isinstance(thing, type)
    hints = typing.get_type_hints(type(thing))
    found = []
    for field in fields(thing):
        hint = hints[field.name]
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if wanted in choices:
            found.append(field.name)
    return found


def changed(thing: object, name: str, value: object) -> object:
    assert is_dataclass(thing)
    assert not isinstance(thing, type)
    return replace(thing, **{name: value})


def test_every_class_of_the_vocabulary_is_tried() -> None:
    there = [getattr(tidewise.core, name) for name in tidewise.core.__all__]
    classes = {each for each in there if isinstance(each, type) and is_dataclass(each)}
    assert classes == {type(thing) for thing in LEGAL}


@pytest.mark.parametrize("thing", LEGAL, ids=lambda thing: type(thing).__name__)
def test_numbers_are_finite_and_negative_only_where_that_means_something(thing: object) -> None:
    for name in names_of_type(thing, float):
        if name == "last_change_finished_at_s":
            continue  # taken over from an outcome, where it was checked
        for bad in (math.nan, math.inf, -math.inf, *(() if name in MAY_BE_NEGATIVE else (-1.0,))):
            with pytest.raises(InvalidValueError):
                changed(thing, name, bad)


@pytest.mark.parametrize("thing", LEGAL, ids=lambda thing: type(thing).__name__)
def test_counts_are_at_least_one(thing: object) -> None:
    for name in names_of_type(thing, int):
        for bad in (0, -1):
            with pytest.raises(InvalidValueError):
                changed(thing, name, bad)


@pytest.mark.parametrize("thing", LEGAL, ids=lambda thing: type(thing).__name__)
def test_texts_are_not_blank(thing: object) -> None:
    for name in names_of_type(thing, str):
        if name in MAY_BE_BLANK or name == "undoes":
            continue
        for bad in ("", "  \n"):
            with pytest.raises(InvalidValueError):
                changed(thing, name, bad)


@pytest.mark.parametrize("thing", LEGAL, ids=lambda thing: type(thing).__name__)
def test_objects_are_frozen(thing: object) -> None:
    assert is_dataclass(thing)
    with pytest.raises(FrozenInstanceError):
        setattr(thing, fields(thing)[0].name, None)


@pytest.mark.parametrize(
    ("thing", "name", "bad"),
    [
        (ONE, "settings", (("b", "1"), ("a", "1"))),
        (ONE, "settings", (("a", "1"), ("a", "2"))),
        (REASON, "code", "Not A Code"),
        (REASON, "code", "ends-"),
        (REASON, "code", "1st"),
        (OBSERVATION, "latency_p50_s", 2.5),
        (OBSERVATION, "latency_p99_s", 1.5),
        (OBSERVATION, "latency_method", None),
        (OBSERVATION, "busy_share", 1.01),
        (OBSERVATION, "cpu_share", 1.01),
        (OBSERVATION, "window_s", 0.0),
        (FORECAST, "levels", (0.4, 0.9)),
        (FORECAST, "levels", (0.9, 0.5)),
        (FORECAST, "levels", (0.5, 0.5)),
        (FORECAST, "levels", (0.5, 1.0)),
        (FORECAST, "levels", (0.0, 0.5)),
        (FORECAST, "levels", (0.5, math.nan)),
        (FORECAST, "levels", (0.5,)),
        (FORECAST, "paths_per_s", ((1.0, 2.0), (2.0, 1.0))),
        (FORECAST, "paths_per_s", ((1.0, 2.0), (2.0,))),
        (FORECAST, "paths_per_s", ((), ())),
        (FORECAST, "paths_per_s", ((1.0, math.nan), (2.0, 2.0))),
        (FORECAST, "paths_per_s", ((1.0, 2.0), (2.0, math.inf))),
        (FORECAST, "paths_per_s", ((-1.0, 2.0), (2.0, 2.0))),
        (FORECAST, "step_s", 0.0),
        (REQUEST, "deadline_s", 1.0),
        (REQUEST, "undoes", "q"),
        (REQUEST, "origin", Origin.ROLLBACK),
        (OUTCOME, "status", ChangeStatus.FAILED),
        (PROFILE_REQUEST, "candidates", ()),
        (PROFILE_REQUEST, "deadline_s", 1.0),
        (MEASUREMENT, "latency_p50_s", 2.5),
        (MEASUREMENT, "busy_share", 1.01),
        (Profile(reason=REASON, candidates=(ONE,)), "candidates", ()),
        (Profile(reason=REASON, candidates=(ONE,)), "measure_s", 0.0),
        (GuardVerdict(guard="g", verdict=Verdict.VETO, reason=REASON), "target", ONE),
        (GuardVerdict(guard="g", verdict=Verdict.VETO, reason=REASON), "verdict", Verdict.ALTER),
        (Promises(recovery_s=1.0), "recovery_s", None),
        (Promises(recovery_s=1.0), "recovery_s", 0.0),
        (Promises(latency_p95_s=1.0), "latency_p95_s", 0.0),
        (Promises(recovery_s=1.0), "good_share", 0.0),
        (Promises(recovery_s=1.0), "good_share", 1.0),
        (Prices(gib_hour=0.0), "core_hour", 0.0),
        (SPACE, "executors", ()),
        (SPACE, "executors", (2, 1)),
        (SPACE, "executors", (1, 1)),
        (SPACE, "executors", (0, 1)),
        (SPACE, "cores_per_executor", (1.0, math.nan, 2.0)),
        (SPACE, "cores_per_executor", (1.0, math.inf)),
        (SPACE, "commit_interval_s", (-1.0, 1.0)),
        (SPACE, "state_partitions", (None, 8)),
        (SPACE, "changes", ()),
        (SPACE, "changes", (COST, COST)),
        (SPACE, "settings", (("b", "1"), ("a", "1"))),
        (LEGAL[20], "history", ()),
    ],
)
def test_fields_have_to_agree(thing: object, name: str, bad: object) -> None:
    with pytest.raises(InvalidValueError):
        changed(thing, name, bad)


@given(event=strategies.events())
def test_any_event_can_be_drawn(event: JournalEvent) -> None:
    assert isinstance(event, typing.get_args(JournalEvent))


@settings(max_examples=50)
@given(situation=strategies.situations())
def test_any_situation_can_be_drawn_and_its_latest_report_is_the_last(situation: Situation) -> None:
    assert situation.latest is situation.history[-1]
    assert situation.observed in situation.space


@given(verdicts=st.lists(strategies.guard_verdicts(), max_size=3))
def test_one_veto_is_enough(verdicts: list[GuardVerdict]) -> None:
    decided = Decided(at_s=0.0, origin=Origin.POLICY, decision=Keep(reason=REASON), verdicts=tuple(verdicts))
    assert decided.vetoed == (Verdict.VETO in [each.verdict for each in verdicts])
