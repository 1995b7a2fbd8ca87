"""The rows of a run: told once and in time, as `explain` says them, and the same however the journal is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.jobs import GOOD
from tests.experiments.journals import BEGAN_S, EXPECTED, a_run, change, config, keep, report, write_journal
from tests.experiments.recorded import record
from tests.experiments.shipping import BEGAN_UNIX_S, a_home, end_run
from tidewise.control import SqliteJournal
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequest,
    ChangeRequested,
    ChangeStatus,
    ControllerStarted,
    ControllerStopped,
    Decided,
    Forecast,
    JournalEvent,
    Mechanism,
    Origin,
    Prices,
    Promises,
    Reason,
    Reported,
    Usage,
)
from tidewise.core.telemetry import ChangeRow, Envelope, ForecastErrorRow, RecoveryRow, ReportRow
from tidewise.experiments.explain import Account
from tidewise.experiments.explain_run import find_recorded
from tidewise.experiments.telemetry_changes import highest_minute_per_s
from tidewise.experiments.telemetry_rows import RunFacts, RunTeller, facts_of_run
from tidewise.experiments.telemetry_sources import RunSource
from tidewise.testing import strategies

PRICES = Prices(core_hour=0.04, gib_hour=0.005)
FACTS = RunFacts(
    job="clicks",
    run="clicks-1",
    began_unix_s=BEGAN_UNIX_S,
    program="2.1",
    promises=Promises(latency_p95_s=5.0, recovery_s=60.0),
    prices=PRICES,
    driver=Usage(core_s=3600.0, memory_mib_s=1024 * 3600.0),
)
BEGIN: list[JournalEvent] = [ControllerStarted(at_s=BEGAN_S, version="1", policy="p", configuration=config(4))]


def tell(events: Iterable[JournalEvent], *, facts: RunFacts = FACTS) -> list[Envelope]:
    teller = RunTeller(facts)
    return [row for event in events for row in teller.take(event)]


def changes(events: Iterable[JournalEvent]) -> list[ChangeRow]:
    return [one.row for one in tell(events) if isinstance(one.row, ChangeRow)]


def reports(first: int, last: int, *, executors: int = 2, rate_per_s: float = 1000.0) -> Iterator[JournalEvent]:
    for at_s in range(first, last + 10, 10):
        yield report(float(at_s), executors=executors, rate_per_s=rate_per_s)


def test_a_report_is_told_at_once_with_what_was_promised_and_what_it_costs() -> None:
    (only,) = tell([*BEGIN, report(10.0, busy_share=0.25)])
    assert (only.job, only.run, only.line, only.program) == ("clicks", "clicks-1", 1, "2.1")
    row = only.row
    assert isinstance(row, ReportRow)
    assert row.at_unix_s == BEGAN_UNIX_S + BEGAN_S + 10.0
    assert (row.executors, row.load_per_s, row.busy_share, row.policy) == (4, 1000.0, 0.25, "p")
    assert (row.promised_latency_p95_s, row.promised_recovery_s, row.currency) == (5.0, 60.0, "USD")
    assert row.cost_per_hour == pytest.approx(PRICES.per_hour(config(4)) + 0.04 + 0.005)


def test_without_promises_and_prices_these_are_unknown() -> None:
    (only,) = tell([report(10.0)], facts=RunFacts(job="a", run="b", began_unix_s=0.0))
    assert isinstance(only.row, ReportRow)
    row = only.row
    assert (row.cost_per_hour, row.currency, row.promised_latency_p95_s, row.policy) == (None,) * 4


def test_what_a_controller_before_had_told_is_not_told_again() -> None:
    again = ControllerStarted(at_s=BEGAN_S + 25.0, version="1", policy="q", configuration=config(4))
    told = tell([*BEGIN, report(10.0), report(20.0), again, report(20.0), report(30.0)])
    assert [one.row.at_unix_s - BEGAN_UNIX_S - BEGAN_S for one in told] == [10.0, 20.0, 30.0]
    assert [one.row.policy for one in told if isinstance(one.row, ReportRow)] == ["p", "p", "q"]
    assert [one.line for one in told] == [1, 2, 3]


def test_a_change_is_told_when_its_look_ahead_has_passed_and_not_before() -> None:
    events = a_run()
    (row,) = changes(events)
    assert (row.outcome, row.source_executors, row.target_executors) == ("applied", 4, 2)
    assert (row.took_s, row.gap_s, row.reason_code) == (5.0, 0.0, "cheaper")
    assert row.at_unix_s == BEGAN_UNIX_S + BEGAN_S + 100.0
    assert (row.expected_rate_per_s, row.expected_latency_p95_s) == (1050.0, 1.0)
    assert (row.expected_recovery_s, row.expected_cost_per_hour) == (20.0, 0.09)
    assert row.came_latency_p95_s == 1.0
    assert row.came_cost_per_hour == pytest.approx(PRICES.per_hour(config(2)))
    # One window of ten seconds at 1200 in any minute.
    assert row.came_rate_per_s == pytest.approx((5 * 1000.0 + 1200.0) / 6)
    assert changes(event for event in events if event.at_s < BEGAN_S + 200.0) == []
    assert changes(event for event in events if event.at_s <= BEGAN_S + 200.0) == [row]


def test_a_change_is_told_when_the_next_one_was_asked_for_with_what_came_until_then() -> None:
    first, second = change(0.0, source=4, target=2, evidence=EXPECTED), change(50.0, source=2, target=3)
    events = [*BEGIN, *first, *reports(10, 50), *second, *reports(60, 70, executors=3, rate_per_s=9000.0)]
    (row,) = changes(events)
    assert row.target_executors == 2
    assert row.came_rate_per_s == 1000.0


def test_a_report_that_comes_late_still_counts_for_the_change_before() -> None:
    first, second = change(0.0, source=4, target=2, evidence=EXPECTED), change(50.0, source=2, target=3)
    late = replace(report(50.0, executors=2, rate_per_s=4000.0), at_s=BEGAN_S + 55.0)
    events = [*BEGIN, *first, *reports(10, 40), *second[:2], late, *second[2:]]
    (row,) = changes(events)
    assert row.came_rate_per_s == pytest.approx((4 * 1000.0 + 4000.0) / 5)


def test_a_silent_job_does_not_keep_a_change_from_being_told() -> None:
    events = [*BEGIN, *change(0.0, source=4, target=2, evidence=EXPECTED), *reports(10, 40)]
    assert changes([*events, keep(200.0)]) == []
    (row,) = changes([*events, keep(200.0), keep(230.0)])
    assert row.came_rate_per_s == 1000.0


def test_the_end_of_the_run_tells_what_is_known_of_a_change() -> None:
    stopped = ControllerStopped(at_s=BEGAN_S + 45.0, reason="the load has ended")
    started = [*BEGIN, *change(0.0, source=4, target=2, evidence=EXPECTED), *reports(10, 40)]
    (row,) = changes([*started, stopped])
    assert (row.outcome, row.came_rate_per_s) == ("applied", 1000.0)
    (row,) = changes([*BEGIN, *change(0.0, source=4, target=2, took_s=None), *reports(10, 40), stopped])
    assert (row.outcome, row.took_s, row.gap_s, row.came_rate_per_s) == ("unfinished", None, None, None)
    # Where no controller said so, whoever knows that nothing more comes says it.
    teller = RunTeller(FACTS)
    for event in started:
        teller.take(event)
    (end,) = teller.end()
    assert isinstance(end.row, ChangeRow)
    assert end.line == 5
    assert teller.end() == []


def test_changes_that_came_to_nothing_are_told_at_once() -> None:
    asked = change(0.0, source=4, target=2, took_s=None)
    request = asked[1]
    assert isinstance(request, ChangeRequested)
    failed = ChangeOutcome(
        request_id=request.request.request_id,
        status=ChangeStatus.FAILED,
        finished_at_s=BEGAN_S + 7.0,
        configuration=config(4),
        gap_s=2.0,
        detail="no room",
    )
    (row,) = changes([*BEGIN, *asked, ChangeFinished(at_s=BEGAN_S + 7.0, outcome=failed)])
    assert (row.outcome, row.took_s, row.gap_s, row.came_rate_per_s) == ("failed", 7.0, 2.0, None)
    expired = ChangeExpired(at_s=BEGAN_S + 120.0, request_id=failed.request_id, configuration=config(4))
    (row,) = changes([*BEGIN, *asked, *reports(10, 120), expired])
    assert (row.outcome, row.took_s, row.gap_s) == ("expired", None, None)


def test_a_change_that_was_undone_is_rolled_back_and_its_rollback_a_change_of_its_own() -> None:
    events = [*BEGIN, *change(0.0, source=4, target=2, evidence=EXPECTED), *reports(10, 30)]
    undo = ChangeRequest(
        request_id="back",
        origin=Origin.ROLLBACK,
        source=config(2),
        target=config(4),
        mechanism=Mechanism.LIVE,
        requested_at_s=BEGAN_S + 30.0,
        deadline_s=BEGAN_S + 150.0,
        reason=Reason(code="worse", sentence="It got worse."),
        undoes="run-0",
    )
    asked = ChangeRequested(at_s=BEGAN_S + 30.0, request=undo)
    first, second = changes([*events, asked, *reports(40, 50), ControllerStopped(at_s=BEGAN_S + 60.0, reason="x")])
    assert (first.request_id, first.outcome, first.came_rate_per_s) == ("run-0", "rolled back", 1000.0)
    assert (second.request_id, second.origin, second.outcome) == ("back", "rollback", "unfinished")


def test_a_recovery_is_told_when_it_is_over() -> None:
    told = tell(a_run())
    (row,) = (one.row for one in told if isinstance(one.row, RecoveryRow))
    (known,) = Account(a_run(), prices=None).recoveries
    assert (row.failure, row.at_unix_s) == ("kill-driver", BEGAN_UNIX_S + known.at_s)
    assert (row.took_s, row.is_bound, row.executors, row.promised_recovery_s) == (known.took_s, False, 2, 60.0)


def forecast(made_at_s: float, *, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> Forecast:
    """Minutes at 1000, 1100, 1200, ... records a second, and half and twice as much."""
    median = tuple(1000.0 + 100.0 * step for step in range(15))
    scale = {0.05: 0.5, 0.5: 1.0, 0.9: 1.5, 0.95: 2.0}
    paths = tuple(tuple(scale[level] * rate for rate in median) for level in levels)
    return Forecast(made_at_s=made_at_s, step_s=60.0, levels=levels, paths_per_s=paths, model="m")


def errors(events: Iterable[JournalEvent]) -> list[ForecastErrorRow]:
    return [one.row for one in tell(events) if isinstance(one.row, ForecastErrorRow)]


def resting_on(made: Forecast) -> Decided:
    return replace(keep(made.made_at_s - BEGAN_S), forecast=made)


def test_a_forecast_is_held_against_the_minute_that_came_at_each_horizon() -> None:
    events = [*BEGIN, resting_on(forecast(BEGAN_S)), *reports(10, 900)]
    rows = errors(events)
    assert [row.horizon_s for row in rows] == [60.0, 180.0, 600.0]
    assert [row.at_unix_s - BEGAN_UNIX_S - BEGAN_S for row in rows] == [60.0, 180.0, 600.0]
    assert [row.expected_per_s for row in rows] == [1000.0, 1200.0, 1900.0]
    assert [row.low_per_s for row in rows] == [500.0, 600.0, 950.0]
    assert [row.high_per_s for row in rows] == [2000.0, 2400.0, 3800.0]
    assert {row.came_per_s for row in rows} == {1000.0}
    assert [row.error_share for row in rows] == [0.0, pytest.approx(200 / 2200), pytest.approx(900 / 2900)]
    assert errors(event for event in events if event.at_s < BEGAN_S + 60.0) == []


def test_levels_that_a_forecast_does_not_have_are_unknown() -> None:
    (row, *_) = errors([*BEGIN, resting_on(forecast(BEGAN_S, levels=(0.5, 0.9))), *reports(10, 60)])
    assert (row.low_per_s, row.high_per_s) == (None, None)


def test_one_forecast_a_minute_is_judged_and_none_of_a_time_that_nobody_reported() -> None:
    made = [resting_on(forecast(BEGAN_S + at_s)) for at_s in (0.0, 20.0, 40.0, 60.0)]
    rows = errors([*BEGIN, *made, *reports(10, 130)])
    assert [row.at_unix_s - BEGAN_UNIX_S - BEGAN_S for row in rows] == [60.0, 120.0]
    gap = [*reports(10, 20), *reports(130, 130)]
    assert errors([*BEGIN, resting_on(forecast(BEGAN_S)), *gap]) == []


def test_a_window_that_reaches_beyond_the_forecast_time_counts_with_its_part() -> None:
    wide = report(90.0, rate_per_s=2000.0)
    wide = replace(wide, observation=replace(wide.observation, window_s=60.0))
    (row, *_) = errors([*BEGIN, resting_on(forecast(BEGAN_S)), *reports(10, 30), wide])
    assert row.came_per_s == pytest.approx(1500.0)


def test_the_highest_minute_is_that_of_whole_minutes_where_there_are_any() -> None:
    seen = [report(float(at_s), rate_per_s=1000.0 if at_s > 10 else 9000.0).observation for at_s in range(10, 80, 10)]
    # 9000 for ten seconds and 1000 for fifty.
    assert highest_minute_per_s(seen, since_s=BEGAN_S) == pytest.approx(14_000 / 6)
    assert highest_minute_per_s(seen, since_s=BEGAN_S + 5.0) == 1000.0
    assert highest_minute_per_s(seen[:2], since_s=BEGAN_S) == 5000.0
    assert highest_minute_per_s(seen, since_s=BEGAN_S + 100.0) is None


def test_nothing_that_is_remembered_grows_with_the_run() -> None:
    teller = RunTeller(FACTS)
    told = 0
    for minute in range(600):
        at_s = 60.0 * minute
        events: list[JournalEvent] = [
            resting_on(forecast(BEGAN_S + at_s)),
            *reports(60 * minute + 10, 60 * minute + 60),
        ]
        if minute % 20 == 0:
            events = [*change(at_s, source=4, target=2, evidence=EXPECTED), *events]
        told += sum(len(teller.take(event)) for event in events)
        assert len(teller._changes._open) <= 2
        assert sum(len(one.events) for one in teller._changes._open) <= 140
        assert len(teller._forecasts._claims) <= 33
        assert len(teller._forecasts._reports) <= 20
    assert told >= 600 * 6 + 590 * 3 + 30


@given(events=st.lists(strategies.events(), max_size=12))
def test_any_journal_gives_the_same_rows_again_numbered_without_a_gap(events: list[JournalEvent]) -> None:
    told = [one.to_json() for one in tell(events)]
    assert told == [one.to_json() for one in tell(events)]
    assert [one.line for one in tell(events)] == list(range(1, len(told) + 1))


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8), most=st.integers(1, 50), restarts=st.booleans())
def test_a_journal_that_is_read_in_pieces_while_it_grows_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int, restarts: bool
) -> None:
    events = [
        *a_run(),
        resting_on(forecast(BEGAN_S + 610.0)),
        *reports(620, 900),
        ControllerStopped(at_s=999.0, reason="x"),
    ]
    if restarts:
        again = ControllerStarted(at_s=BEGAN_S + 130.0, version="2", policy="other", configuration=config(2))
        middle = next(index for index, event in enumerate(events) if event.at_s >= again.at_s)
        events = [*events[:middle], again, *events[middle:]]
    home = tmp_path_factory.mktemp("home")
    run = a_home(home, events[: sizes[0]])
    source = RunSource(find_recorded(run))
    told = source.read(most)
    rest = events[sizes[0] :]
    for size in [*sizes[1:], len(events)]:
        with SqliteJournal(home / "small-reactive-1.partial" / "journal.sqlite") as journal:
            journal.append(rest[:size])
        rest = rest[size:]
        told += source.read(most)
    while not source.is_over:
        told += source.read(most)
    facts = facts_of_run(find_recorded(run))
    assert facts is not None
    assert told == tell(events, facts=facts)


def test_a_run_that_is_on_and_the_same_when_it_is_over_are_one_run(tmp_path: Path) -> None:
    run = a_home(tmp_path / "home", a_run(), job=GOOD + '\n[telemetry]\nto = "rows"\nprogram = "2.1"\n')
    on = facts_of_run(find_recorded(run))
    end_run(run)
    assert on is not None
    over = facts_of_run(find_recorded(run))
    assert over is not None
    assert (on.run, on.job, on.began_unix_s, on.program) == (over.run, "small", BEGAN_UNIX_S, "2.1")
    assert on.driver == over.driver == Usage(core_s=3600.0, memory_mib_s=1024 * 3600.0)
    assert on.promises == Promises(latency_p95_s=3.0)
    # Another run of the same job in another home.
    other = facts_of_run(find_recorded(a_home(tmp_path / "other", [*BEGIN, report(10.0)])))
    assert other is not None
    assert other.run != on.run


def test_a_run_that_keeps_its_own_clock_is_known_when_it_is_over(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "a-b-1.partial", a_run())
    assert facts_of_run(find_recorded(folder)) is None
    end_run(tmp_path / "a-b-1", created="2026-01-01")
    facts = facts_of_run(find_recorded(tmp_path / "a-b-1"))
    assert facts is not None
    assert (facts.job, facts.began_unix_s) == ("a-b-1", 1_767_225_600.0 - 6.0)
    # The driver used six core seconds in six seconds.
    assert facts.driver == Usage(core_s=3600.0)


def test_runs_of_different_experiments_are_different_runs_of_different_jobs(tmp_path: Path) -> None:
    told: dict[str, RunFacts] = {}
    for place, plan in (
        ("one", {"name": "one"}),
        ("longer", {"name": "one", "seeds": [1, 2]}),
        ("two", {"name": "two"}),
    ):
        write_journal(tmp_path / place / "a-b-1.partial", a_run())
        end_run(tmp_path / place / "a-b-1", created="2026-01-01", plan=plan)
        facts = facts_of_run(find_recorded(tmp_path / place / "a-b-1"))
        assert facts is not None
        told[place] = facts
    assert {place: facts.job for place, facts in told.items()} == {
        "one": "one-a-b-1",
        "longer": "one-a-b-1",
        "two": "two-a-b-1",
    }
    assert len({facts.run for facts in told.values()}) == 3
    # Read again, or from another place, it is the same run.
    (tmp_path / "elsewhere").mkdir()
    again = facts_of_run(find_recorded((tmp_path / "one" / "a-b-1").rename(tmp_path / "elsewhere" / "a-b-1")))
    assert again == told["one"]


def test_the_rows_of_a_simulated_run_are_what_explain_says_of_it(tmp_path: Path) -> None:
    run = find_recorded(record(tmp_path, policy="reactive").folder)
    facts = facts_of_run(run)
    assert facts is not None
    with run.open_journal() as journal:
        told = tell(journal.read(), facts=facts)
        account = Account.read(journal, prices=run.prices)
        seen = [event for event in journal.read() if isinstance(event, Reported)]
    assert sum(isinstance(one.row, ReportRow) for one in told) == len(seen)
    steps = {step.change.request.request_id: step for step in account.steps if step.change is not None}
    rows = {one.row.request_id: one.row for one in told if isinstance(one.row, ChangeRow)}
    assert rows.keys() == steps.keys()
    assert len(rows) > 3
    for request_id, row in rows.items():
        came = account.came(steps[request_id])
        assert row.expected_cost_per_hour == steps[request_id].expected.cost_per_hour
        if row.outcome == "applied":
            assert row.came_latency_p95_s == came.latency_p95_s
            assert row.came_cost_per_hour == came.cost_per_hour
            assert came.peak_rate_per_s is not None
            assert row.came_rate_per_s is not None
            assert row.came_rate_per_s <= came.peak_rate_per_s
    recoveries = [one.row for one in told if isinstance(one.row, RecoveryRow)]
    assert [row.at_unix_s - facts.began_unix_s for row in recoveries] == pytest.approx(
        [one.at_s for one in account.recoveries]
    )
    assert len(recoveries) >= 2
