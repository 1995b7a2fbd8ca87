"""Copies are measured where that pays, of executors that never ran alone, and not all the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewise.core import Configuration, ConfigurationSpace, Profile, ProfileMeasurement, ProfileOutcome, Promises
from tidewise.policies.curiosity import Curiosity, kind_of
from tidewise.qos import Candidates, JobModel
from tidewise.testing.situations import report, situation_of, space_of

ONE = Configuration(executors=8)
SPACE = ConfigurationSpace(
    executors=tuple(range(1, 9)),
    slots_per_executor=(1, 2),
    cores_per_executor=(1.0, 2.0),
    memory_mib_per_executor=(ONE.memory_mib_per_executor,),
    commit_interval_s=(ONE.commit_interval_s,),
    changes=space_of().changes,
)
CALM = replace(
    situation_of([report(time_s=1000.0, executors=8, rate_per_s=4000.0)], space=SPACE),
    promises=Promises(latency_p95_s=2.0, good_share=0.95),
)


@pytest.fixture
def model() -> JobModel:
    """Eight executors do 8,000 records/s; of two cores together nothing is known."""
    learnt = JobModel(changes=SPACE.changes)
    for number in range(20):
        learnt.capacity.learn(ONE, 8000.0)
        learnt.latency.learn(ONE, 4000.0 + 100.0 * (number % 5), p50_s=1.0, p95_s=1.5, p99_s=2.0, busy_share=0.5)
        learnt.memory.learn(ONE, 4000.0, memory_share=0.3, state_mib=10.0)
    return learnt


def wanted(
    curiosity: Curiosity, model: JobModel, *, now_s: float = 1000.0, profiles: tuple[ProfileOutcome, ...] = ()
) -> Profile | None:
    situation = replace(CALM, now_s=now_s, profiles=profiles)
    curiosity.news(situation)
    return curiosity.wants(situation, model, Candidates.of(SPACE), rate_per_s=4000.0, proven={kind_of(ONE)})


def curious() -> Curiosity:
    return Curiosity(settle_s=60.0, horizon_s=5400.0)


def told(number: int, *, at_s: float, detail: str = "") -> ProfileOutcome:
    measured = ProfileMeasurement(
        configuration=ONE,
        input_rate_per_s=100.0,
        processed_rate_per_s=100.0,
        latency_p50_s=None,
        latency_p95_s=None,
        busy_share=None,
        detail=detail,
    )
    return ProfileOutcome(request_id=f"r-{number}", finished_at_s=at_s, measurements=(measured,))


def test_a_profile_of_what_never_ran_is_wanted_where_it_may_save_more_than_it_costs(model: JobModel) -> None:
    profile = wanted(curious(), model)
    assert profile is not None
    assert all(kind_of(one) != kind_of(ONE) for one in profile.candidates)
    assert "expected to save" in profile.reason.sentence


def test_nothing_is_wanted_where_there_is_nothing_to_save(model: JobModel) -> None:
    assert wanted(Curiosity(settle_s=60.0, horizon_s=1.0), model) is None


def test_it_is_thought_about_every_ten_minutes_and_not_within_an_hour_of_a_profile(model: JobModel) -> None:
    curiosity = curious()
    assert wanted(curiosity, model) is not None
    assert wanted(curiosity, model, now_s=1300.0) is None
    assert wanted(curiosity, model, now_s=1700.0) is not None
    assert wanted(curiosity, model, now_s=4000.0, profiles=(told(1, at_s=1900.0),)) is None
    assert wanted(curiosity, model, now_s=5600.0, profiles=(told(1, at_s=1900.0),)) is not None


def test_copies_that_die_make_it_ask_less_often(model: JobModel) -> None:
    died = (told(1, at_s=1900.0, detail="it died"),)
    assert wanted(curious(), model, now_s=5600.0, profiles=died) is None
    assert wanted(curious(), model, now_s=9200.0, profiles=died) is not None


def test_what_a_copy_told_is_news_once() -> None:
    curiosity = curious()
    situation = replace(CALM, profiles=(told(1, at_s=1.0), told(2, at_s=2.0, detail="it died")))
    assert [one.configuration for one in curiosity.news(situation)] == [ONE]
    assert curiosity.news(situation) == []
