from __future__ import annotations

import pytest

from tidewise.control import EDGES, LoopSettings, Phase, Step
from tidewise.core import (
    ChangeExpired,
    ChangeFinished,
    ChangeOutcome,
    ChangeRequested,
    ChangeSettled,
    ChangeStatus,
    Decided,
    Mechanism,
    Origin,
    Overridden,
    OverrideLifted,
    Reported,
    Ticked,
)

from .bench import Bench
from .fakes import config, observation


def test_requested_then_applied_then_settled() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    assert request.request_id == "test-1"
    assert (request.requested_at_s, request.deadline_s) == (10.0, 110.0)
    assert bench.phase() is Phase.REQUESTED
    assert bench.loop.state.planned == bench.loop.state.requested == config(6)
    assert bench.loop.state.observed == config(4)
    bench.end(request, 25.0, runs=config(6))
    assert bench.phase() is Phase.ON_PROBATION
    assert bench.loop.state.observed == config(6)
    assert bench.loop.state.requested is None
    bench.tell(Ticked(at_s=124.0))
    assert bench.phase() is Phase.ON_PROBATION
    handled = bench.tell(Ticked(at_s=125.0))
    assert handled.events[0] == ChangeSettled(at_s=125.0, request_id="test-1")
    assert bench.phase() is Phase.SETTLED


def test_the_deadline_grows_with_what_the_mechanism_takes() -> None:
    bench = Bench(config(4), LoopSettings(deadline_minimum_s=10.0, deadline_factor=3.0))
    request = bench.ask(10.0, config(4), config(4, memory_mib=2048))
    assert request.mechanism is Mechanism.HANDOVER
    assert request.deadline_s == 10.0 + 3 * 32.0


def test_a_failure_with_the_source_running_needs_no_rollback_and_bars_the_target() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 25.0, status=ChangeStatus.FAILED, runs=config(4))
    assert bench.phase() is Phase.FAILED
    assert len(bench.commands) == 1
    assert bench.loop.state.bars[config(6)].until_s == 525.0


def test_a_failure_half_way_is_rolled_back_to_the_source() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 25.0, status=ChangeStatus.FAILED, runs=config(5))
    back = bench.commands[-1]
    assert (back.origin, back.undoes, back.source, back.target) == (Origin.ROLLBACK, "test-1", config(5), config(4))


def test_a_rollback_into_less_is_withheld_while_the_promise_is_broken_or_unknown() -> None:
    for latency_s, at_s in ((9.0, 25.0), (1.0, 90.0)):
        bench = Bench(config(4))
        request = bench.ask(10.0, config(4), config(6), latency_s=latency_s)
        handled = bench.end(request, at_s, status=ChangeStatus.FAILED, runs=config(5))
        assert len(bench.commands) == 1
        withheld = handled.events[-1]
        assert isinstance(withheld, Decided)
        assert withheld.origin is Origin.ROLLBACK
        assert withheld.decision.reason.code == "rollback-withheld"


def test_a_change_that_passes_its_deadline_expires_and_is_rolled_back_even_if_the_source_runs() -> None:
    bench = Bench(config(4))
    bench.ask(10.0, config(4), config(2))
    bench.report(109.0, config(4))
    assert not bench.tell(Ticked(at_s=109.0)).commands
    handled = bench.tell(Ticked(at_s=110.0))
    assert handled.events[0] == ChangeExpired(at_s=110.0, request_id="test-1", configuration=config(4))
    back = bench.commands[-1]
    assert (back.undoes, back.source, back.target) == ("test-1", config(2), config(4))
    assert bench.loop.state.bars[config(2)].times == 1


def test_a_change_whose_target_the_reports_show_at_its_deadline_is_applied() -> None:
    bench = Bench(config(4))
    bench.ask(10.0, config(4), config(6))
    bench.report(105.0, config(6))
    handled = bench.tell(Ticked(at_s=110.0))
    assert isinstance(handled.events[0], ChangeFinished)
    assert bench.phase() is Phase.ON_PROBATION


def test_a_promise_broken_soon_after_a_reduction_takes_it_back_and_bars_the_target_for_longer_each_time() -> None:
    bench = Bench(config(4))
    at_s = 10.0
    for times, barred_s in ((1, 500.0), (2, 1000.0)):
        request = bench.ask(at_s, config(4), config(2))
        bench.end(request, at_s + 10, runs=config(2))
        bench.report(at_s + 30, config(2), latency_s=9.0)  # Its window begins within the grace: not judged.
        for step in range(1, 3):
            assert not bench.report(at_s + 30 + 10 * step, config(2), latency_s=9.0).commands
        handled = bench.report(at_s + 60, config(2), latency_s=9.0)
        back = bench.commands[-1]
        assert [type(event) for event in handled.events] == [Reported, Decided, ChangeRequested]
        assert (back.origin, back.undoes, back.target) == (Origin.ROLLBACK, request.request_id, config(4))
        assert bench.loop.state.bars[config(2)].times == times
        assert bench.loop.state.bars[config(2)].until_s == at_s + 60 + barred_s
        bench.end(back, at_s + 70, runs=config(4))
        at_s += 60 + barred_s


def test_a_barred_target_is_vetoed_until_its_time_is_over() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(4))
    bench.wanted = config(6)
    bench.report(519.0, config(4))
    decided = bench.tell(Ticked(at_s=519.0)).events[-1]
    assert isinstance(decided, Decided)
    assert decided.verdicts[-1].guard == "barred"
    assert bench.ask(580.0, config(4), config(6)).target == config(6)


def test_a_target_that_settles_is_no_longer_held_against() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(4))
    again = bench.ask(600.0, config(4), config(6))
    bench.end(again, 610.0, runs=config(6))
    bench.tell(Ticked(at_s=710.0))
    assert bench.loop.state.bars == {}


@pytest.mark.parametrize("case", ["broken before", "one good report", "scaled up", "after probation"])
def test_a_change_that_is_not_to_blame_is_not_taken_back(case: str) -> None:
    bench = Bench(config(4))
    target = config(6) if case == "scaled up" else config(2)
    request = bench.ask(10.0, config(4), target, latency_s=9.0 if case == "broken before" else 1.0)
    bench.end(request, 20.0, runs=target)
    start_s = 110.0 if case == "after probation" else 60.0
    for step in range(4):
        good = case == "one good report" and step == 2
        bench.report(start_s + 10 * step, target, latency_s=1.0 if good else 9.0)
    assert len(bench.commands) == 1


def test_a_rollback_is_never_rolled_back() -> None:
    for status in ChangeStatus:
        bench = Bench(config(4))
        request = bench.ask(10.0, config(4), config(2))
        bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(3))
        back = bench.commands[-1]
        bench.end(back, 30.0, status=status, runs=config(7))
        for step in range(8):
            bench.report(40.0 + 10 * step, config(7), latency_s=9.0)
        bench.tell(Ticked(at_s=400.0))
        assert len(bench.commands) == 2
    expired = Bench(config(4))
    expired.ask(10.0, config(4), config(2))
    expired.tell(Ticked(at_s=110.0))
    expired.report(205.0, config(2))
    expired.tell(Ticked(at_s=210.0))
    assert expired.phase() is Phase.EXPIRED
    assert len(expired.commands) == 2


def test_a_new_change_supersedes_one_on_probation() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(2))
    bench.end(request, 20.0, runs=config(2))
    bench.ask(75.0, config(2), config(8))
    assert bench.phase() is Phase.REQUESTED
    assert bench.loop.state.requested == config(8)


def test_late_repeated_and_unknown_outcomes_are_recorded_and_change_nothing() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 25.0, runs=config(6))
    before = bench.loop.state.change, bench.loop.state.observed, bench.loop.state.last_change_finished_at_s
    handled = bench.end(request, 30.0, status=ChangeStatus.FAILED, runs=config(1))
    assert [type(event) for event in handled.events] == [ChangeFinished]
    outcome = ChangeOutcome(
        request_id="never-seen", status=ChangeStatus.APPLIED, finished_at_s=31.0, configuration=config(9)
    )
    assert not bench.tell(ChangeFinished(at_s=31.0, outcome=outcome)).commands
    after = bench.loop.state.change, bench.loop.state.observed, bench.loop.state.last_change_finished_at_s
    assert before == after


def test_a_report_that_was_long_under_way_does_not_hide_what_the_engine_told_since() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    bench.end(request, 25.0, runs=config(6))
    bench.tell(Reported(at_s=26.0, observation=observation(20.0, config(4))))
    assert bench.loop.state.observed == config(6)
    bench.report(35.0, config(5))
    assert bench.loop.state.observed == config(5)


def test_an_override_waits_for_the_change_that_is_on_and_is_then_carried_out() -> None:
    bench = Bench(config(4))
    request = bench.ask(10.0, config(4), config(6))
    assert not bench.tell(Overridden(at_s=15.0, by="ada", target=config(9))).commands
    bench.tell(Ticked(at_s=20.0))
    bench.end(request, 25.0, runs=config(6))
    override = bench.commands[-1]
    assert (override.origin, override.source, override.target) == (Origin.OPERATOR, config(6), config(9))
    bench.end(override, 35.0, runs=config(9))
    assert bench.loop.state.override_in_force


def test_an_override_that_fails_is_tried_again_after_a_back_off_and_not_rolled_back() -> None:
    bench = Bench(config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(9)))
    bench.end(bench.commands[-1], 10.0, status=ChangeStatus.FAILED, runs=config(5))
    assert len(bench.commands) == 1
    bench.tell(Ticked(at_s=509.0))
    assert len(bench.commands) == 1
    assert bench.loop.next_due_s() == 510.0
    bench.tell(Ticked(at_s=510.0))
    assert bench.commands[-1].target == config(9)
    assert len(bench.commands) == 2


def test_the_change_of_an_override_lifted_meanwhile_is_rolled_back_if_it_fails_half_way() -> None:
    bench = Bench(config(4))
    bench.report(4.0, config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(9)))
    bench.tell(OverrideLifted(at_s=6.0, by="ada"))
    bench.end(bench.commands[-1], 10.0, status=ChangeStatus.FAILED, runs=config(5))
    assert bench.commands[-1].undoes == "test-1"


def test_an_override_of_what_runs_is_in_place_at_once() -> None:
    bench = Bench(config(4))
    handled = bench.tell(Overridden(at_s=5.0, by="ada", target=config(4)))
    assert not handled.commands
    assert bench.loop.state.override_in_force


def test_an_override_is_brought_about_again_whenever_something_else_runs_but_not_at_every_report() -> None:
    bench = Bench(config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(6)))
    bench.end(bench.commands[-1], 10.0, runs=config(6))
    for step in range(1, 120):
        bench.report(10.0 + 10 * step, config(7))
        bench.tell(Ticked(at_s=10.0 + 10 * step))
        if len(bench.commands) == 2 and bench.phase() is Phase.REQUESTED:
            assert step == 50  # The back-off of 500 s after it was carried out.
            bench.end(bench.commands[-1], 10.0 + 10 * step, runs=config(6))
    assert [each.target for each in bench.commands] == [config(6)] * 3
    assert {each.origin for each in bench.commands} == {Origin.OPERATOR}


def test_an_override_leaves_lost_executors_to_the_engine_for_a_time() -> None:
    bench = Bench(config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(6)))
    bench.end(bench.commands[-1], 10.0, runs=config(6))
    for step in range(1, 70):
        bench.report(10.0 + 10 * step, config(5))
        bench.tell(Ticked(at_s=10.0 + 10 * step))
        assert len(bench.commands) == (1 if step <= 60 else 2)


def test_an_override_that_bounds_and_quota_altered_is_in_force_where_they_let_it() -> None:
    bench = Bench(config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(40)))
    bench.end(bench.commands[-1], 10.0, runs=config(12))
    assert bench.loop.state.override_in_force
    bench.tell(Ticked(at_s=5000.0))
    assert len(bench.commands) == 1


def test_an_override_of_more_than_the_most_is_in_force_where_the_most_runs() -> None:
    bench = Bench(config(12))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(40)))
    assert bench.loop.state.override_in_force
    for at_s in range(10, 5000, 10):
        bench.tell(Ticked(at_s=float(at_s)))
    operators = [event for event in bench.events if isinstance(event, Decided) and event.origin is Origin.OPERATOR]
    assert len(operators) == 1


def test_an_override_that_the_engine_applied_otherwise_is_tried_again_after_a_back_off() -> None:
    bench = Bench(config(4))
    bench.tell(Overridden(at_s=5.0, by="ada", target=config(6)))
    bench.end(bench.commands[-1], 10.0, runs=config(8))
    bench.tell(Ticked(at_s=509.0))
    assert len(bench.commands) == 1
    bench.tell(Ticked(at_s=510.0))
    assert bench.commands[-1].target == config(6)
    assert len(bench.commands) == 2


def test_every_phase_but_the_last_ones_has_a_way_out() -> None:
    ends = {Phase.UNDONE, Phase.SUPERSEDED}
    assert {phase for phase, _ in EDGES} == set(Phase) - ends
    assert {step for _, step in EDGES} == set(Step)
    assert set(EDGES.values()) == set(Phase) - {Phase.REQUESTED}
