"""What is not tried again after a change was taken back, and for how long."""

from __future__ import annotations

from tidewise.control import Bar
from tidewise.control.bars import add_bar, barring, forgive
from tidewise.core import ChangeStatus, Configuration, Decided, JobStatus, Ticked

from .bench import SETTINGS, Bench
from .fakes import config


def rolled_back(bench: Bench) -> None:
    """From 6 to 3 at 1000/s, and back."""
    bench.reduced(config(6), config(3), rate_per_s=1000.0)
    for time_s in (50.0, 60.0, 70.0):
        bench.report(time_s, config(3), latency_s=9.0, rate_per_s=1000.0)
    bench.end(bench.commands[-1], 80.0, runs=config(6))


def wants(
    bench: Bench, executors: int, *, runs: int = 6, rate_per_s: float = 1000.0, at_s: float = 150.0
) -> str | None:
    """The guard that stands in the way; None: the change was asked for."""
    bench.wanted = config(executors)
    bench.report(at_s, config(runs), rate_per_s=rate_per_s)
    decided = next(each for each in bench.tell(Ticked(at_s=at_s)).events if isinstance(each, Decided))
    return decided.verdicts[-1].guard if decided.vetoed else None


def test_what_gives_no_more_than_what_was_too_little_is_barred_with_it() -> None:
    for executors, guard in ((3, "barred"), (2, "barred"), (1, "barred"), (4, None), (5, None), (7, None)):
        bench = Bench(config(6))
        rolled_back(bench)
        assert wants(bench, executors) == guard


def test_with_clearly_less_load_it_may_be_tried_again() -> None:
    for rate_per_s, guard in ((890.0, None), (910.0, "barred"), (1500.0, "barred")):
        bench = Bench(config(6))
        rolled_back(bench)
        assert wants(bench, 2, rate_per_s=rate_per_s) == guard
        assert bench.loop.state.bars[config(3)] == Bar(until_s=570.0, times=1, too_little_at_per_s=1000.0)


def test_the_way_up_is_not_barred_by_what_was_too_little() -> None:
    bench = Bench(config(6))
    rolled_back(bench)
    assert wants(bench, 1, rate_per_s=300.0) is None
    bench.end(bench.commands[-1], 160.0, runs=config(1))
    assert wants(bench, 3, runs=1, at_s=220.0) is None


def test_a_change_that_the_engine_could_not_do_says_nothing_about_others() -> None:
    bench = Bench(config(6))
    request = bench.ask(10.0, config(6), config(3))
    bench.end(request, 20.0, status=ChangeStatus.FAILED, runs=config(6))
    assert bench.loop.state.failed_targets(80.0) == (config(3),)
    assert bench.loop.state.failed_targets(1e6) == ()
    assert wants(bench, 3, at_s=80.0) == "barred"
    assert wants(bench, 2, at_s=150.0) is None


def test_a_target_that_was_too_little_was_reached() -> None:
    bench = Bench(config(6))
    rolled_back(bench)
    assert bench.loop.state.bars
    assert bench.loop.state.failed_targets(150.0) == ()


def test_the_next_one_down_is_no_fresh_start_for_the_back_off() -> None:
    bars: dict[Configuration, Bar] = {}
    add_bar(bars, config(3), at_s=0.0, too_little_at_per_s=1000.0, settings=SETTINGS)
    add_bar(bars, config(2), at_s=600.0, too_little_at_per_s=1000.0, settings=SETTINGS)
    assert bars[config(2)].times == 2
    assert bars[config(2)].until_s == 600.0 + 2 * SETTINGS.back_off_s
    add_bar(bars, config(4), at_s=600.0, too_little_at_per_s=1000.0, settings=SETTINGS)
    add_bar(bars, config(1), at_s=600.0, too_little_at_per_s=100.0, settings=SETTINGS)
    assert bars[config(4)].times == bars[config(1)].times == 1
    found = barring(bars, config(2), source=config(6), rate_per_s=None, now_s=700.0)
    assert found == (config(2), bars[config(2)])


def test_a_change_that_settles_refutes_the_bars_of_what_gives_no_less_at_that_rate() -> None:
    bench = Bench(config(6))
    rolled_back(bench)
    bars = dict(bench.loop.state.bars)
    forgive(bars, config(4), rate_per_s=1000.0)
    forgive(bars, config(2), rate_per_s=500.0)
    assert list(bars) == [config(3)]
    forgive(bars, config(2), rate_per_s=1000.0)
    assert bars == {}


def test_how_long_executors_took_to_join_is_learnt_from_a_job_that_ran() -> None:
    bench = Bench(config(2))
    request = bench.ask(10.0, config(2), config(4))
    bench.end(request, 30.0, runs=config(4))
    assert bench.loop.state.joins_after_s == 20.0
    again = bench.ask(400.0, config(4), config(6))
    bench.report(410.0, config(4), status=JobStatus.DOWN)
    bench.end(again, 500.0, runs=config(6))
    assert bench.loop.state.joins_after_s == 20.0
