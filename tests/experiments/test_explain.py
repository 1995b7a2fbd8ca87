"""What was decided, expected and came, read from a journal whose truth is known."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.jobs import write_job
from tests.experiments.journals import BEGAN_S, EXPECTED, a_run, change, config, keep, report, write_journal
from tidewise.core import (
    BadInputError,
    ControllerStarted,
    Decided,
    FaultInjected,
    Forecast,
    GuardVerdict,
    JobStatus,
    JournalEvent,
    Origin,
    Prices,
    Reason,
    Reconfigure,
    Verdict,
)
from tidewise.experiments.explain import Account, Expected, Held, Step
from tidewise.experiments.explain_run import find_recorded, moment_s, stamp

BEGIN: list[JournalEvent] = [ControllerStarted(at_s=BEGAN_S, version="1", policy="p", configuration=config(4))]
PRICES = Prices(core_hour=0.04, gib_hour=0.005)


def account(events: list[JournalEvent]) -> Account:
    return Account(events, prices=PRICES)


def the_change(told: Account) -> Step:
    return next(step for step in told.steps if step.acted)


def test_a_decision_is_found_by_its_time() -> None:
    told = account(a_run())
    assert told.lasted_s == 600.0
    assert told.at(BEGAN_S + 59.0) is None
    first = told.at(BEGAN_S + 99.0)
    assert first is not None
    assert first.is_keep
    found = told.at(BEGAN_S + 105.0)
    assert found is the_change(told)
    assert found.change is not None
    assert found.change.applied_at_s == BEGAN_S + 105.0
    assert found.change.settled_at_s == BEGAN_S + 500.0


def test_what_came_is_held_against_what_was_expected() -> None:
    told = account(a_run())
    came = told.came(the_change(told))
    assert came.is_whole
    # Windows from 100 s to 200 s: one of ten above the expected rate.
    assert came.rate == Held(held=9, of=10)
    assert came.peak_rate_per_s == 1200.0
    # The new configuration ran from 105 s on: nine whole windows, in two of them too late.
    assert came.latency == Held(held=7, of=9)
    assert came.worst_latency_p95_s == 2.0
    assert came.latency_p95_s == 1.0
    assert came.cost_per_hour == pytest.approx(PRICES.per_hour(config(2)))


def test_the_look_ahead_ends_with_the_journal() -> None:
    told = account([*BEGIN, report(10.0), keep(10.0, EXPECTED), report(20.0), report(30.0)])
    came = told.came(told.steps[0])
    assert not came.is_whole
    assert came.end_s == BEGAN_S + 30.0
    assert came.rate == Held(held=2, of=2)


def test_a_decision_answers_for_its_configuration_only_until_the_next_change() -> None:
    events = [*BEGIN, keep(0.0, EXPECTED), report(10.0), *change(20.0, source=4, target=2), report(30.0, latency_s=9.0)]
    told = account(events)
    came = told.came(told.steps[0])
    assert came.latency == Held(held=1, of=1)
    assert (came.ran_from_s, came.ran_until_s) == (BEGAN_S, BEGAN_S + 20.0)
    assert came.ran_windows == 1


def test_what_a_guard_stopped_is_not_judged_by_latency() -> None:
    reason = Reason(code="cheaper", sentence="Fewer are enough.", evidence=EXPECTED)
    veto = GuardVerdict(guard="cooldown", verdict=Verdict.VETO, reason=Reason(code="cooldown", sentence="Too soon."))
    stopped = Decided(
        at_s=BEGAN_S,
        origin=Origin.POLICY,
        decision=Reconfigure(target=config(2), reason=reason),
        verdicts=(veto,),
    )
    told = account([*BEGIN, stopped, report(10.0, latency_s=9.0), report(20.0)])
    came = told.came(told.steps[0])
    assert came.latency == Held()
    assert came.rate == Held(held=2, of=2)


def test_a_window_that_owed_output_is_a_miss_and_an_idle_one_says_nothing() -> None:
    silent = report(20.0, latency_s=None)
    idle = report(30.0, latency_s=None, rate_per_s=0.0)
    down = report(40.0, latency_s=None, rate_per_s=0.0, status=JobStatus.DOWN)
    told = account([*BEGIN, keep(0.0, EXPECTED), report(10.0), silent, idle, down])
    came = told.came(told.steps[0])
    assert came.latency == Held(held=1, of=3)
    assert came.without_output == 2


def test_the_calibration_until_a_time_knows_nothing_of_what_came_later() -> None:
    told = account(a_run())
    assert told.calibration(BEGAN_S + 140.0).rate == Held(held=4, of=4)
    assert told.calibration().rate == Held(held=9, of=10)
    assert told.calibration().latency == Held(held=7, of=9)


def test_a_report_that_two_decisions_looked_ahead_to_counts_twice_and_is_one_report() -> None:
    told = account([*BEGIN, keep(0.0, EXPECTED), report(10.0), keep(10.0, EXPECTED), report(20.0)])
    assert told.calibration().rate == Held(held=3, of=3)
    assert told.calibration().rate_windows == 2
    assert told.calibration().latency_windows == 2


def test_a_recovery_is_held_against_the_decision_before_the_failure() -> None:
    told = account(a_run())
    assert [one.kind for one in told.recoveries] == ["kill-driver"]
    # The decision before it expected no recovery.
    assert told.calibration().recovery == Held()
    events = [*a_run(), keep(399.0, EXPECTED)]
    told = account(sorted(events, key=lambda event: event.at_s))
    assert told.calibration().recovery == Held(held=1, of=1)


def test_a_window_of_a_recovery_is_judged_by_the_recovery_and_not_by_its_latency() -> None:
    before = [report(float(at_s)) for at_s in range(-200, 10, 10)]
    fault = FaultInjected(at_s=BEGAN_S + 1.0, fault="kill-driver")
    down = [report(float(at_s), latency_s=None, status=JobStatus.DOWN) for at_s in (10, 20)]
    after = [report(30.0, latency_s=20.0), *(report(float(at_s)) for at_s in range(40, 100, 10))]
    told = account([*BEGIN, *before, keep(0.0, EXPECTED), fault, *down, *after])
    came = told.came(told.steps[0])
    assert came.recovery.of == 1
    assert came.without_output == 2
    assert came.latency.held == came.latency.of
    assert came.latency.of >= 5
    assert came.recovering_windows == came.latency_windows - came.latency.of
    assert came.worst_latency_p95_s == 20.0


def test_rates_are_expected_as_forecast_where_the_reason_does_not_say() -> None:
    forecast = Forecast(
        made_at_s=0.0, step_s=300.0, levels=(0.5, 0.9), paths_per_s=((5.0, 7.0, 9.0), (6.0, 8.0, 10.0)), model="m"
    )
    found = Expected.of({}, forecast)
    assert (found.expected_rate_per_s, found.expected_rate_high_per_s) == (7.0, 8.0)
    assert Expected.of({"expected_rate_high_per_s": 3}, forecast).expected_rate_high_per_s == 3.0
    assert Expected.of({"expected_rate_per_s": "many", "look_ahead_s": True}).expected_rate_per_s is None


def test_an_empty_journal_is_told() -> None:
    with pytest.raises(BadInputError, match="no controller has begun"):
        account([])


# Times.


@given(st.integers(0, 10_000_000))
def test_a_time_that_is_shown_can_be_asked_for(at_s: int) -> None:
    assert moment_s(stamp(float(at_s)), began_unix_s=None, lasted_s=10_000_000.0) == at_s


@pytest.mark.parametrize(
    ("text", "at_s"), [("90s", 90.0), ("1h30min", 5400.0), ("1h 30m", 5400.0), ("0s", 0.0), ("2h", 7200.0)]
)
def test_times_are_durations_since_the_beginning(text: str, at_s: float) -> None:
    assert moment_s(text, began_unix_s=None, lasted_s=7200.0) == at_s


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("3h", "from 0s to 2h00m00s"),
        ("soon", "no time"),
        ("12", "no time"),
        ("1x", "unknown unit"),
        ("14:05", "no wall clock"),
        ("25:05", "no time"),
    ],
)
def test_a_time_that_is_not_in_the_run_is_refused(text: str, sentence: str) -> None:
    with pytest.raises((BadInputError, ValueError), match=sentence):
        moment_s(text, began_unix_s=None, lasted_s=7200.0)


def test_a_time_of_day_is_found_on_the_day_of_the_run() -> None:
    began = datetime(2026, 3, 4, 23, 30).astimezone()
    began_unix_s = began.timestamp()
    assert moment_s("23:45", began_unix_s=began_unix_s, lasted_s=7200.0) == 900.0
    assert moment_s("00:10:30", began_unix_s=began_unix_s, lasted_s=7200.0) == 2430.0
    assert moment_s("2026-03-05T00:10", began_unix_s=began_unix_s, lasted_s=7200.0) == 2400.0
    with pytest.raises(BadInputError, match="which is from 2026-03-04 23:30:00"):
        moment_s("22:00", began_unix_s=began_unix_s, lasted_s=7200.0)
    with pytest.raises(BadInputError, match="more than once"):
        moment_s("23:45", began_unix_s=began_unix_s, lasted_s=2 * 86_400.0)


# Runs.


def test_a_run_that_is_on_is_found_by_its_name_and_by_its_home(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "home" / "small-reactive-1.partial", a_run())
    (write_job(tmp_path)).rename(tmp_path / "home" / "job.toml")
    (tmp_path / "home" / "began.json").write_text(json.dumps({"unix_s": time.time()}), encoding="utf-8")
    for path in (folder, folder.with_name("small-reactive-1"), tmp_path / "home"):
        run = find_recorded(path)
        assert run.folder == folder
        assert run.record is None
        assert run.prices == Prices()
        assert run.promises is not None
        assert run.promises.latency_p95_s == 3.0
        assert run.began_unix_s is not None
        assert run.began_unix_s <= time.time()


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no run"):
        find_recorded(tmp_path / "gone")
    with pytest.raises(BadInputError, match=r"it has no journal\.sqlite"):
        find_recorded(tmp_path)
    for name in ("a.partial", "b.partial"):
        write_journal(tmp_path / name, a_run())
    with pytest.raises(BadInputError, match="holds 2 runs; name one of them"):
        find_recorded(tmp_path)
