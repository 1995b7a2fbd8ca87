from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.control import GUARDS, AbsoluteWindow, Bar, DailyWindow, Facts, GuardSettings, Proposal, Review, review
from tidewise.control.settings import LoopSettings
from tidewise.core import Configuration, InvalidValueError, JobStatus, Mechanism, Origin, Verdict

from .fakes import SPACE, config, observation

OFF = GuardSettings(fresh_within_s=None, down_within_s=None, cooldown_s=None)


def facts(settings: GuardSettings = OFF, **changes: object) -> Facts:
    found = Facts(
        now_s=1000.0,
        latest=observation(995.0, config(4)),
        requested=None,
        paused_by=None,
        overridden_by=None,
        last_change_finished_at_s=None,
        bars={},
        space=SPACE,
        settings=settings,
    )
    return replace(found, **changes)  # type: ignore[arg-type]  # the tests name fields of Facts


def propose(
    target: Configuration, about: Facts, *, origin: Origin = Origin.POLICY, mechanism: Mechanism | None = None
) -> Review:
    return review(Proposal(origin=origin, source=config(4), target=target, mechanism=mechanism), about, GUARDS)


def veto(found: Review) -> tuple[str, str] | None:
    vetoes = [verdict for verdict in found.verdicts if verdict.verdict is Verdict.VETO]
    assert (found.cost is None) == bool(vetoes)
    return (vetoes[0].guard, vetoes[0].reason.code) if vetoes else None


def test_a_harmless_change_passes_without_a_verdict() -> None:
    found = propose(config(6), facts())
    assert found.verdicts == ()
    assert found.target == config(6)
    assert found.cost is not None
    assert found.cost.mechanism is Mechanism.LIVE


@pytest.mark.parametrize(
    ("about", "target", "expected"),
    [
        (facts(paused_by="ada"), config(6), ("paused", "paused")),
        (facts(overridden_by="ada"), config(6), ("override", "override")),
        (facts(replace(OFF, fresh_within_s=30.0), now_s=1030.0), config(6), ("fresh-data", "stale-data")),
        (facts(replace(OFF, fresh_within_s=30.0), latest=None), config(6), ("fresh-data", "no-data")),
        (facts(latest=None), config(2), ("never-down-blind", "down-without-data")),
        (facts(replace(OFF, down_within_s=30.0), now_s=1030.0), config(2), ("never-down-blind", "stale-data")),
        (
            facts(latest=observation(995.0, config(4), status=JobStatus.DOWN)),
            config(2),
            ("never-down-blind", "down-while-down"),
        ),
        (
            facts(latest=observation(995.0, config(4), latency_s=None)),
            config(2),
            ("never-down-blind", "down-without-latency"),
        ),
        (facts(bars={config(6): Bar(until_s=1000.5, times=1)}), config(6), ("barred", "barred")),
        (
            facts(replace(OFF, cooldown_s={Mechanism.LIVE: 60.0}), last_change_finished_at_s=940.5),
            config(2),
            ("cooldown", "cooldown"),
        ),
        (facts(replace(OFF, blackouts=(DailyWindow(begin_s=900, end_s=1001),))), config(6), ("blackout", "blackout")),
        (
            facts(replace(OFF, blackouts=(AbsoluteWindow(begin_s=1000, end_s=1001),))),
            config(6),
            ("blackout", "blackout"),
        ),
    ],
)
def test_guards_of_policies_veto_policies_and_nobody_else(
    about: Facts, target: Configuration, expected: tuple[str, str]
) -> None:
    assert veto(propose(target, about)) == expected
    assert veto(propose(target, about, origin=Origin.OPERATOR)) is None
    assert veto(propose(target, about, origin=Origin.ROLLBACK)) is None


def test_what_only_adds_to_the_job_without_a_gap_does_not_wait() -> None:
    about = facts(
        replace(OFF, cooldown_s={Mechanism.LIVE: 60.0, Mechanism.HANDOVER: 60.0}), last_change_finished_at_s=999.0
    )
    assert veto(propose(config(6), about)) is None
    assert veto(propose(config(2), about)) == ("cooldown", "cooldown")


@pytest.mark.parametrize(
    "about",
    [
        facts(replace(OFF, fresh_within_s=30.0), now_s=1025.0),
        facts(replace(OFF, down_within_s=30.0), now_s=1025.0),
        facts(bars={config(2): Bar(until_s=1000.0, times=1), config(3): Bar(until_s=2000.0, times=1)}),
        facts(replace(OFF, cooldown_s={Mechanism.LIVE: 60.0}), last_change_finished_at_s=940.0),
        facts(replace(OFF, cooldown_s={Mechanism.HANDOVER: 60.0}), last_change_finished_at_s=999.0),
        facts(replace(OFF, cooldown_s={Mechanism.LIVE: 60.0}), last_change_finished_at_s=None),
        facts(replace(OFF, blackouts=(DailyWindow(begin_s=0, end_s=1000),))),
        facts(replace(OFF, blackouts=(AbsoluteWindow(begin_s=0, end_s=1000),))),
    ],
)
def test_guards_let_pass_what_is_just_allowed(about: Facts) -> None:
    assert veto(propose(config(2), about)) is None


def test_an_idle_job_may_give_resources_back() -> None:
    idle = replace(
        observation(995.0, config(4)),
        input_rate_per_s=0.0,
        processed_rate_per_s=0.0,
        backlog_records=0.0,
        latency_p50_s=None,
        latency_p95_s=None,
        latency_p99_s=None,
    )
    assert veto(propose(config(2), facts(latest=idle))) is None
    working = replace(idle, input_rate_per_s=1.0)
    assert veto(propose(config(2), facts(latest=working))) == ("never-down-blind", "down-without-latency")


@pytest.mark.parametrize("origin", list(Origin))
def test_one_change_at_a_time_binds_everyone(origin: Origin) -> None:
    assert veto(propose(config(6), facts(requested=config(8)), origin=origin)) == ("one-change", "change-on")


@pytest.mark.parametrize("origin", list(Origin))
def test_bounds_alter_everyones_target_to_the_nearest(origin: Origin) -> None:
    found = propose(config(40, memory_mib=1500), facts(), origin=origin)
    assert found.target == config(12, memory_mib=1024)
    assert [verdict.guard for verdict in found.verdicts] == ["bounds"]
    assert found.verdicts[0].target == found.target


@pytest.mark.parametrize("origin", list(Origin))
@pytest.mark.parametrize("settings", [replace(OFF, quota_cores=7.9), replace(OFF, quota_memory_mib=7 * 1024.0 + 1023)])
def test_the_quota_alters_everyones_target_to_the_most_that_fits(origin: Origin, settings: GuardSettings) -> None:
    found = propose(config(11), facts(settings), origin=origin)
    assert found.target == config(7)
    assert [verdict.guard for verdict in found.verdicts] == ["quota"]


def test_a_quota_that_nothing_fits_vetoes() -> None:
    assert veto(propose(config(6, cores=2.0), facts(replace(OFF, quota_cores=1.5)))) == ("quota", "over-quota")


@pytest.mark.parametrize(("wanted", "reached"), [(12, 6), (1, 2), (5, 5)])
def test_the_largest_step_shortens_a_policys_change(wanted: int, reached: int) -> None:
    assert propose(config(wanted), facts(replace(OFF, largest_step_executors=2))).target == config(reached)
    assert propose(
        config(wanted), facts(replace(OFF, largest_step_executors=2)), origin=Origin.OPERATOR
    ).target == config(wanted)


def test_a_step_that_the_quota_does_not_allow_is_vetoed() -> None:
    about = facts(replace(OFF, largest_step_executors=1, quota_cores=2.0))
    assert veto(propose(config(2), about)) == ("largest-step", "step-too-large")


def test_a_change_that_has_become_none_is_vetoed() -> None:
    assert veto(propose(config(4), facts())) == ("no-change", "no-change")
    assert veto(propose(config(9), facts(replace(OFF, quota_cores=4.0)))) == ("no-change", "no-change")


def test_an_alteration_cannot_smuggle_a_blind_reduction_past_the_guards() -> None:
    about = facts(replace(OFF, quota_cores=3.0), latest=None)
    assert veto(propose(config(6), about)) == ("never-down-blind", "down-without-data")


def test_what_no_mechanism_can_do_is_vetoed_with_a_reason() -> None:
    found = propose(config(4, memory_mib=2048), facts(), mechanism=Mechanism.LIVE)
    assert veto(found) == ("possible", "impossible-change")
    assert "memory_mib_per_executor" in found.verdicts[-1].reason.sentence


def test_a_daily_window_may_run_over_midnight() -> None:
    night = DailyWindow(begin_s=22 * 3600, end_s=6 * 3600)
    assert night.covers(23 * 3600)
    assert night.covers(86_400 + 5 * 3600)
    assert not night.covers(6 * 3600)


@pytest.mark.parametrize(
    "build",
    [
        lambda: GuardSettings(fresh_within_s=0),
        lambda: GuardSettings(largest_step_executors=0),
        lambda: GuardSettings(cooldown_s={Mechanism.LIVE: -1}),
        lambda: DailyWindow(begin_s=-1, end_s=5),
        lambda: DailyWindow(begin_s=5, end_s=5),
        lambda: AbsoluteWindow(begin_s=5, end_s=4),
        lambda: LoopSettings(grace_s=300, probation_s=300),
        lambda: LoopSettings(back_off_s=10, back_off_most_s=5),
        lambda: LoopSettings(broken_reports=0),
        lambda: LoopSettings(catch_up_s=0),
        lambda: LoopSettings(grace_factor=-1),
        lambda: LoopSettings(shortfall_s=-1),
    ],
)
def test_impossible_settings_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(InvalidValueError):
        build()


def test_the_back_off_doubles_up_to_its_most() -> None:
    settings = LoopSettings(back_off_s=100.0, back_off_most_s=1000.0)
    assert [settings.back_off_after_s(times) for times in (1, 2, 3, 4, 5, 10_000)] == [100, 200, 400, 800, 1000, 1000]


configurations = st.builds(
    config,
    st.integers(1, 30),
    cores=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    memory_mib=st.sampled_from([512, 1024, 4096]),
)


@given(
    origin=st.sampled_from(Origin),
    source=configurations,
    target=configurations,
    quota_cores=st.none() | st.floats(0.5, 40),
    quota_memory_mib=st.none() | st.floats(100, 40_000),
    step=st.none() | st.integers(1, 10),
    latest_age_s=st.none() | st.floats(0, 200),
)
def test_whatever_passes_is_inside_bounds_and_quota_and_never_a_blind_reduction(  # noqa: PLR0917 - Hypothesis names them
    origin: Origin,
    source: Configuration,
    target: Configuration,
    quota_cores: float | None,
    quota_memory_mib: float | None,
    step: int | None,
    latest_age_s: float | None,
) -> None:
    settings = GuardSettings(
        quota_cores=quota_cores, quota_memory_mib=quota_memory_mib, largest_step_executors=step, down_within_s=60.0
    )
    latest = None if latest_age_s is None else observation(1000.0 - latest_age_s, source)
    about = facts(settings, latest=latest)
    found = review(Proposal(origin=origin, source=source, target=target), about, GUARDS)
    if found.cost is None:
        assert found.verdicts[-1].verdict is Verdict.VETO
        return
    assert found.target in SPACE
    assert about.within_quota(found.target)
    assert found.target != source
    if origin is Origin.POLICY and found.target.takes_less_than(source):
        assert latest_age_s is not None
        assert latest_age_s <= 60.0
    if origin is Origin.POLICY and step is not None:
        assert abs(found.target.executors - source.executors) <= step
