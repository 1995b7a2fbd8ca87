"""What Tidewise's policy must never do, whatever happens: each promise on a small simulated job beside a static one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewise.control import GuardSettings, Loop, LoopSettings, Runner, RunnerSettings
from tidewise.core import (
    ChangeCost,
    ChangeOutcome,
    ChangeRequest,
    Configuration,
    ConfigurationSpace,
    Forecast,
    JournalEvent,
    Mechanism,
    Meter,
    Observation,
    Prices,
    ProfileOutcome,
    ProfileRequest,
    Promises,
    total,
)
from tidewise.engines.simulator import Simulator, SimulatorProfile, load_profile
from tidewise.engines.simulator import job as simulated_job
from tidewise.engines.simulator.job import SimulatedJob
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.engines.simulator.profile import CapacityProfile
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.ledger import Ledger
from tidewise.experiments.measures import bad_seconds
from tidewise.experiments.record import ChangeRecord
from tidewise.experiments.series import Series
from tidewise.forecast import make_forecaster
from tidewise.policies import Tidewise
from tidewise.qos import Candidates
from tidewise.search.horizon import Horizon
from tidewise.search.odds import _LOADS, Odds
from tidewise.search.plan import Behind, Planner, Terms, Ways

Rates = npt.NDArray[np.float64]
Mangle = Callable[[Sequence[Observation], float], Sequence[Observation]]

EVERY_S = 5.0
MOST = 120_000.0
"""About what the four executors can do."""
START = Configuration(executors=4, commit_interval_s=2.0)
SPARK = load_profile("spark-local")
FLINK = load_profile("paper-cluster")
PROMISES = Promises(latency_p95_s=8.0, good_share=0.9, recovery_s=120.0)
LIVE = ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=5.0)
HANDOVER = ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=1.6, preparation_s=27.0, runs_double=True)
REDEPLOY = ChangeCost(mechanism=Mechanism.REDEPLOY, gap_s=23.0)


class Kept:
    """A journal in memory."""

    def __init__(self) -> None:
        self._events: list[JournalEvent] = []

    def append(self, events: Iterable[JournalEvent]) -> None:
        self._events.extend(events)

    def read(self) -> Iterable[JournalEvent]:
        return tuple(self._events)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Misreporting:
    """A job whose reports come otherwise than they were made."""

    job: SimulatedJob
    now_s: Callable[[], float]
    mangle: Mangle

    def observed(self) -> Configuration:
        return self.job.observed()

    def reports(self) -> Sequence[Observation]:
        return self.mangle(self.job.reports(), self.now_s())

    def change(self, request: ChangeRequest) -> None:
        self.job.change(request)

    def change_outcome(self, request_id: str) -> ChangeOutcome | None:
        return self.job.change_outcome(request_id)

    def profile(self, request: ProfileRequest) -> None:
        self.job.profile(request)

    def profile_outcome(self, request_id: str) -> ProfileOutcome | None:
        return self.job.profile_outcome(request_id)

    def inject(self, fault: str) -> None:
        self.job.inject(fault)

    def meter(self) -> Meter:
        return self.job.meter()

    def stop(self) -> None:
        self.job.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job, where it starts, and where it may be brought."""

    profile: SimulatorProfile = SPARK
    start: Configuration = START
    most_executors: int = 4
    cores_per_executor: tuple[float, ...] = (1.0,)
    mechanisms: frozenset[Mechanism] = frozenset({Mechanism.LIVE, Mechanism.HANDOVER})
    promises: Promises = PROMISES
    every_s: float = EVERY_S
    sample_s: float = 10.0

    @property
    def space(self) -> ConfigurationSpace:
        return ConfigurationSpace(
            executors=tuple(range(1, self.most_executors + 1)),
            cores_per_executor=self.cores_per_executor,
            commit_interval_s=(self.start.commit_interval_s,),
            changes=tuple(change for change in self.profile.changes if change.mechanism in self.mechanisms),
        )

    def launched(self, rates: Rates, *, controlled: bool) -> tuple[Simulator, SimulatedJob]:
        simulator = Simulator(
            profile=self.profile, rates_per_s=rates, seed=3, report_every_s=int(self.every_s), controlled=controlled
        )
        return simulator, simulator.launch(self.start)

    def late(self, series: Series) -> npt.NDArray[np.bool_]:
        return bad_seconds(series, series.latency_p95_s, self.promises.latency_p95_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What came of a run, by Tidewise and by who leaves the job as it is."""

    series: Series
    late: npt.NDArray[np.bool_]
    static_late: npt.NDArray[np.bool_]
    core_share: float
    changes: tuple[ChangeRecord, ...]
    failed_decisions: int
    late_share: float
    """What was promised away."""

    def late_s(self, begin_s: int = 0, end_s: int | None = None) -> int:
        return int(self.late[begin_s:end_s].sum())

    def most_changes(self, within_s: float = 600.0) -> int:
        times = [change.requested_at_s for change in self.changes]
        return max((sum(first <= time < first + within_s for time in times) for first in times), default=0)

    def keeps_what_static_keeps(self, *, but_s: int = 0) -> bool:
        """Whether no more was late than was promised away, or than would have been; but for some seconds of a step."""
        allowed = max(self.late_share * len(self.late), int(self.static_late.sum()))
        return self.late_s() <= allowed + but_s


def noisy(rates_per_s: Rates, share: float = 0.05) -> Rates:
    random = np.random.default_rng(7)
    return np.asarray(np.maximum(0.0, rates_per_s * (1.0 + share * random.standard_normal(len(rates_per_s)))))


def seconds(minutes: float) -> Rates:
    return np.arange(60.0 * minutes)


def steady(share: float, minutes: float = 30.0) -> Rates:
    return np.full(int(60 * minutes), share * MOST)


def stepped(low: float, high: float, *, begin_s: int, end_s: int, minutes: float = 30.0) -> Rates:
    rates = steady(low, minutes)
    rates[begin_s:end_s] = high * MOST
    return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Tells the story of a load."""

    monkeypatch: pytest.MonkeyPatch

    def tell(
        self,
        load: Rates,
        job: Job | None = None,
        *,
        mangle: Mangle | None = None,
        speed: Callable[[int], float] | None = None,
        sink_per_s: float = math.inf,
    ) -> Story:
        """`speed`: what is left of the job's capacity, second by second; `sink_per_s`: of its sink, from 900 s on."""
        rates, job = noisy(load), job or Job()
        simulator, untouched = job.launched(rates, controlled=False)
        self._slow_down(untouched, speed, sink_per_s)
        simulator.clock.wait_until(float(len(rates)))
        simulator, running = job.launched(rates, controlled=True)
        self._slow_down(running, speed, sink_per_s)
        policy = Tidewise(forecaster="level", sample_s=job.sample_s, continuous=job.profile.mode == "continuous")
        ledger = Ledger(Kept())
        loop = Loop(
            run="robust",
            policy=policy,
            space=job.space,
            promises=job.promises,
            prices=Prices(),
            forecaster=make_forecaster(policy.forecaster, sample_s=policy.sample_s),
            settings=LoopSettings(
                decide_every_s=job.every_s,
                forecast_horizon_s=60.0 * job.sample_s / 10.0,
                forecast_step_s=job.sample_s / 2.0,
                broken_reports=None,
            ),
            guard_settings=GuardSettings(cooldown_s=dict.fromkeys(Mechanism, 0.0)),
        )
        runner = Runner(
            job=running if mangle is None else Misreporting(job=running, now_s=simulator.clock.now_s, mangle=mangle),
            loop=loop,
            journal=ledger,
            clock=simulator.clock,
            settings=RunnerSettings(poll_every_s=job.every_s),
        )
        runner.run(float(len(rates)))
        runner.finish("the load has ended")
        ledger.settle(running.change_outcome)
        series = series_of(running.series())
        return Story(
            series=series,
            late=job.late(series),
            static_late=job.late(series_of(untouched.series())),
            core_share=total(running.meter()).core_s / total(untouched.meter()).core_s,
            changes=tuple(ledger.changes()),
            failed_decisions=ledger.failed_decisions,
            late_share=1.0 - job.promises.good_share,
        )

    def _slow_down(self, job: SimulatedJob, speed: Callable[[int], float] | None, sink_per_s: float) -> None:
        if speed is None:
            return

        def slower(profile: CapacityProfile, configuration: Configuration, executors: float) -> float:
            most_per_s = sink_per_s if job._now >= 900 else math.inf
            return min(most_per_s, capacity_per_s(profile, configuration, executors) * speed(job._now))

        self.monkeypatch.setattr(simulated_job, "capacity_per_s", slower)


@pytest.fixture
def teller(monkeypatch: pytest.MonkeyPatch) -> Teller:
    return Teller(monkeypatch=monkeypatch)


# Promises that hold.


def test_a_constant_load_is_left_alone_after_a_while(teller: Teller) -> None:
    story = teller.tell(steady(0.3, minutes=45.0))
    assert story.keeps_what_static_keeps()
    assert story.core_share < 0.9
    assert not [change for change in story.changes if change.requested_at_s > 1800.0]


@pytest.mark.parametrize("end", [0.65, 0.8])
def test_slow_growth_to_what_all_executors_can_do_is_followed(teller: Teller, end: float) -> None:
    growth = np.linspace(0.2, end, 2700) * MOST
    story = teller.tell(np.asarray(growth))
    assert story.keeps_what_static_keeps()
    assert story.series.executors[-60:].min() == 4


def without(*, busy: bool = False, cpu: bool = False, memory: bool = False) -> Mangle:
    return lambda reports, _now_s: [
        replace(
            report,
            busy_share=None if busy else report.busy_share,
            cpu_share=None if cpu else report.cpu_share,
            memory_share=None if memory else report.memory_share,
            state_mib=None if memory else report.state_mib,
        )
        for report in reports
    ]


def late_by(delay_s: float) -> Mangle:
    waiting: list[Observation] = []

    def mangle(reports: Sequence[Observation], now_s: float) -> Sequence[Observation]:
        waiting.extend(reports)
        due = [report for report in waiting if report.time_s <= now_s - delay_s]
        del waiting[: len(due)]
        return due

    return mangle


def every_third_missing() -> Mangle:
    return lambda reports, _now_s: [report for report in reports if report.time_s % (3.0 * EVERY_S)]


def wrong_for_a_minute(factor: float) -> Mangle:
    return lambda reports, _now_s: [
        replace(report, input_rate_per_s=factor * report.input_rate_per_s) if 900.0 < report.time_s <= 960.0 else report
        for report in reports
    ]


@pytest.mark.parametrize(
    "mangle",
    [
        pytest.param(without(busy=True), id="busy share unknown"),
        pytest.param(without(cpu=True), id="cpu unknown"),
        pytest.param(without(memory=True), id="memory unknown"),
        pytest.param(without(busy=True, cpu=True, memory=True), id="all unknown"),
        pytest.param(late_by(60.0), id="a minute late"),
        pytest.param(every_third_missing(), id="every third missing"),
        pytest.param(wrong_for_a_minute(2.0), id="twice the rate for a minute"),
        pytest.param(wrong_for_a_minute(0.5), id="half the rate for a minute"),
    ],
)
def test_bad_reports_break_no_promise(teller: Teller, mangle: Mangle) -> None:
    waves = (0.35 + 0.15 * np.sin(2.0 * np.pi * seconds(30.0) / 900.0)) * MOST
    story = teller.tell(np.asarray(waves), mangle=mangle)
    assert story.failed_decisions == 0
    assert story.keeps_what_static_keeps()
    assert story.most_changes() <= 12


def test_capacity_that_is_never_the_same_breaks_no_promise(teller: Teller) -> None:
    restless = SPARK.model_copy(update={"capacity": SPARK.capacity.model_copy(update={"noise_share": 0.3})})
    story = teller.tell(steady(0.3), Job(profile=restless))
    assert story.keeps_what_static_keeps()
    assert story.most_changes() <= 6


def failing(share: float) -> SimulatorProfile:
    costs = {name: cost.model_copy(update={"failure_share": share}) for name, cost in SPARK.mechanisms.items()}
    return SPARK.model_copy(update={"mechanisms": costs})


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_changes_that_fail_break_no_promise_and_are_not_tried_all_the_time(teller: Teller, share: float) -> None:
    story = teller.tell(steady(0.3), Job(profile=failing(share)))
    assert story.keeps_what_static_keeps()
    assert story.most_changes() <= 6


def test_nothing_is_taken_away_from_a_job_that_is_overloaded(teller: Teller) -> None:
    story = teller.tell(stepped(0.2, 0.65, begin_s=900, end_s=1200))
    down = [change.target.executors for change in story.changes if 905.0 < change.requested_at_s <= 1200.0]
    assert down == sorted(down)
    assert story.keeps_what_static_keeps(but_s=60)


def test_after_a_silence_the_job_is_soon_as_large_as_it_has_to_be(teller: Teller) -> None:
    load = steady(0.5)
    load[600:1200] = 0.0
    story = teller.tell(load)
    first = min(change.requested_at_s for change in story.changes if change.requested_at_s > 1200.0)
    assert first <= 1200.0 + 3 * EVERY_S
    assert story.late_s(1200) <= 60


def test_a_load_that_comes_and_goes_every_minute_is_not_followed(teller: Teller) -> None:
    saw = (0.15 + 0.6 * (seconds(30.0) % 60.0) / 60.0) * MOST
    story = teller.tell(np.asarray(saw))
    assert story.keeps_what_static_keeps()
    assert story.most_changes() <= 6


loads = st.lists(st.sampled_from([0.0, 0.02, 0.1, 0.25, 0.4, 0.55, 0.65]), min_size=3, max_size=6)
"""Of what all executors can do, for five minutes each."""
slow_spells = st.one_of(st.none(), st.tuples(st.integers(300, 1200), st.integers(60, 600), st.sampled_from([0.5, 0.7])))
"""When a job becomes slower, for how long, and what is left of its speed."""
report_faults = st.sampled_from(
    [lambda: None, lambda: late_by(20.0), every_third_missing, lambda: without(cpu=True, memory=True)]
)
"""How what goes wrong with reports is made; what delays them holds some back."""


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shares=loads, spell=slow_spells, make_mangle=report_faults)
def test_loads_and_troubles_drawn_at_random_break_no_promise_for_long(
    teller: Teller,
    shares: list[float],
    spell: tuple[int, int, float] | None,
    make_mangle: Callable[[], Mangle | None],
) -> None:
    load = np.repeat(np.array(shares), 300) * MOST
    begin_s, lasts_s, left = spell or (0, 0, 1.0)

    def speed(second: int) -> float:
        return left if begin_s <= second < begin_s + lasts_s else 1.0

    story = teller.tell(load, mangle=make_mangle(), speed=speed)
    assert story.failed_decisions == 0
    assert story.most_changes() <= 8
    # Nobody could foresee the steps, nor the spell; they are answered within a minute each.
    surprises = sum(later > earlier for earlier, later in itertools.pairwise(shares)) + (spell is not None)
    assert story.late_s() <= max(story.late_share * len(load), int(story.static_late.sum())) + 60 * surprises


def cramped(profile: SimulatorProfile, cores: float) -> SimulatorProfile:
    return profile.model_copy(update={"cluster_cores": cores})


def test_a_cluster_that_gives_no_more_is_not_asked_all_the_time(teller: Teller) -> None:
    story = teller.tell(steady(0.65), Job(profile=cramped(SPARK, 4.0), most_executors=8))
    assert story.keeps_what_static_keeps()
    assert story.most_changes() <= 6


def test_a_load_that_comes_and_goes_with_the_samples_of_the_forecast_is_not_followed(teller: Teller) -> None:
    saw = (0.375 + 1.875 * (seconds(60.0) % 60.0) / 60.0) * MOST
    story = teller.tell(
        np.asarray(saw), Job(start=START.with_executors(24), most_executors=24, every_s=15.0, sample_s=60.0)
    )
    assert story.most_changes() <= 6


def test_a_job_that_starts_too_small_gets_executors_within_three_minutes(teller: Teller) -> None:
    story = teller.tell(steady(0.6, minutes=4.0), Job(start=START.with_executors(1)))
    assert story.changes[0].requested_at_s <= 180.0


def test_a_job_that_becomes_half_as_fast_is_late_for_two_minutes_at_most(teller: Teller) -> None:
    story = teller.tell(steady(0.2, minutes=40.0), speed=lambda second: 0.4 if 900 <= second < 1800 else 1.0)
    assert story.late_s(900, 1800) <= int(story.static_late[900:1800].sum()) + 120
    assert story.most_changes() <= 6


@pytest.mark.parametrize("speed", [0.4, 0.5, 0.65])
def test_executors_of_a_job_that_stays_slow_do_not_come_and_go(teller: Teller, speed: float) -> None:
    story = teller.tell(steady(0.2, minutes=60.0), speed=lambda second: speed if second >= 900 else 1.0)
    assert story.most_changes() <= 4
    assert story.late_s(1200) <= 30


def test_executors_do_not_run_away_from_a_sink_that_takes_no_more(teller: Teller) -> None:
    """More executors are of no use, which takes some to find out."""
    story = teller.tell(steady(0.2, minutes=60.0), Job(most_executors=16), speed=lambda _: 1.0, sink_per_s=0.23 * MOST)
    assert story.most_changes() <= 10
    assert len([change for change in story.changes if change.requested_at_s > 1800.0]) <= 4
    assert story.series.executors[-300:].max() <= 6
    assert story.late_s() <= int(story.static_late.sum())


def test_a_job_that_cannot_become_larger_goes_back_to_what_it_had(teller: Teller) -> None:
    job = Job(
        profile=cramped(FLINK, 8.0),
        start=Configuration(executors=8, commit_interval_s=10.0),
        most_executors=24,
        cores_per_executor=(1.0, 2.0),
        mechanisms=frozenset({Mechanism.REDEPLOY}),
        promises=Promises(latency_p95_s=3.0, good_share=0.95, recovery_s=180.0),
    )
    load = np.full(3600, 20_000.0)
    load[1800:] = 57_000.0
    # It has become smaller, and eight executors take minutes to work off what came while they were started again.
    assert teller.tell(load, job).keeps_what_static_keeps(but_s=240)


# The plan itself.


def odds_of(rows: Sequence[Configuration], *, each_per_s: float) -> Odds:
    """Capacities in proportion to the executors, late and not recovered in time from nine tenths of them on."""
    count, columns = len(rows), len(_LOADS)
    executors = np.array([row.executors for row in rows], dtype=np.float64)
    tables = np.ones((count, columns))
    scores = (_LOADS - np.log(0.9)) / 0.1 * tables
    return Odds(
        candidates=Candidates.listing(rows),
        cost_per_s=executors * 1e-5,
        log_capacity=np.log(executors * each_per_s),
        boosted_log_capacity=np.full(count, np.log(executors.max() * each_per_s)),
        late_scores=scores,
        log_latency=np.log(3.0) * tables,
        latency_log_sd=0.1 * np.ones((len(rows), len(_LOADS))),
        unrecovered_scores=scores,
        log_recovery=np.log(30.0) * tables,
        out_of_memory=np.zeros(count),
        unproven=np.zeros(count, dtype=np.bool_),
    )


def horizon_of(*levels: float, later: float = 1.0) -> Horizon:
    """Levels that stay, or that are so many times as high after a minute."""
    growth = np.where(np.arange(30) < 1, 1.0, later)
    paths = tuple(tuple(level * growth) for level in levels)
    places = {1: (0.5,), 3: (0.1, 0.5, 0.9)}[len(levels)]
    forecast = Forecast(made_at_s=0.0, step_s=60.0, levels=places, paths_per_s=paths, model="by hand")
    return Horizon.of(forecast, tail_s=5400.0, ceiling_per_s=1e9)


TERMS = Terms(
    late_cost_per_s=2e-4, failures_per_s=1e-5, unrecovered_s=1200.0, friction_s=1.0, payback=1.25, latency_limit_s=8.0
)
ROWS = [START.with_executors(count) for count in (1, 2, 3, 4)]


def planner_of(horizon: Horizon, changes: Sequence[ChangeCost], terms: Terms = TERMS) -> Planner:
    ways = Ways(Candidates.listing(ROWS), changes)
    return Planner(odds_of(ROWS, each_per_s=10_000.0), horizon, ways, [change.gap_s for change in changes], terms)


def behind(executors: int, backlog: float) -> Behind:
    return Behind(row=executors - 1, backlog_records=backlog, down_s=0.0, warmth=1.0)


def test_where_the_load_may_be_too_much_for_all_the_largest_is_kept() -> None:
    planner = planner_of(horizon_of(15_000.0, 25_000.0, 60_000.0), [LIVE])
    assert ROWS[planner.best(behind(4, 60_000.0)).row].executors == 4


def test_where_nothing_is_enough_the_largest_is_best() -> None:
    planner = planner_of(horizon_of(60_000.0, 90_000.0, 150_000.0), [LIVE])
    assert ROWS[planner.best(behind(4, 60_000.0)).row].executors == 4
    assert ROWS[planner.best(behind(1, 60_000.0)).row].executors == 4


def test_one_executor_with_twice_its_load_is_given_more() -> None:
    planner = planner_of(horizon_of(15_000.0, 20_000.0, 60_000.0), [LIVE])
    assert ROWS[planner.best(behind(1, 0.0)).row].executors > 2


def test_executors_that_can_join_live_are_not_asked_for_by_a_handover() -> None:
    planner = planner_of(horizon_of(10_000.0), [LIVE, HANDOVER], replace(TERMS, late_cost_per_s=1e-3))
    assert planner.best(behind(2, 265_000.0)).mechanism is Mechanism.LIVE


def test_not_even_where_they_join_slowly() -> None:
    slow = replace(LIVE, preparation_s=120.0)
    planner = planner_of(
        horizon_of(10_000.0, 15_000.0, 60_000.0), [slow, HANDOVER], replace(TERMS, late_cost_per_s=1e-3)
    )
    assert planner.best(behind(2, 265_000.0)).mechanism is not Mechanism.HANDOVER


def test_a_job_that_is_getting_over_a_failure_is_not_stopped_again_if_that_broke_the_promise() -> None:
    terms = replace(TERMS, recovery_limit_s=180.0)
    planner = planner_of(horizon_of(20_000.0, later=1.7), [REDEPLOY], terms)
    calm = planner.best(behind(3, 600_000.0))
    recovering = planner.best(replace(behind(3, 600_000.0), failed_s=100.0))
    assert calm.mechanism is Mechanism.REDEPLOY
    assert recovering.mechanism is None


def test_a_job_that_will_not_get_over_a_failure_in_time_is_stopped_again_only_to_get_over_it_sooner() -> None:
    terms = replace(TERMS, recovery_limit_s=180.0)
    planner = planner_of(horizon_of(20_000.0, later=1.7), [REDEPLOY], terms)
    recovering = replace(behind(3, 600_000.0), failed_s=170.0)
    assert planner.best(recovering).mechanism is None
    # With twice the load of what runs it never would.
    hopeless = planner_of(horizon_of(20_000.0), [REDEPLOY], terms).best(replace(behind(1, 600_000.0), failed_s=170.0))
    assert hopeless.mechanism is Mechanism.REDEPLOY


def test_a_job_whose_latencies_are_not_usual_yet_is_not_stopped_again_though_nothing_is_behind() -> None:
    terms = replace(TERMS, recovery_limit_s=180.0)
    planner = planner_of(horizon_of(20_000.0, later=1.7), [REDEPLOY], terms)
    assert planner.best(behind(2, 0.0)).mechanism is Mechanism.REDEPLOY
    assert planner.best(replace(behind(2, 0.0), failed_s=100.0)).mechanism is None
    assert planner.best(replace(behind(2, 0.0), failed_s=200.0)).mechanism is Mechanism.REDEPLOY


def test_being_slow_to_recover_costs_less_where_a_change_can_bring_more_executors() -> None:
    rows = [START.with_executors(count) for count in (2, 4, 16, 32)]
    terms = replace(TERMS, recovery_limit_s=180.0, shows_s=15.0, rescued_s=90.0, unseen_s=20.0)

    def cost_of_slow(*changes: ChangeCost) -> float:
        ways = Ways(Candidates.listing(rows), changes)
        odds = odds_of(rows, each_per_s=10_000.0)
        odds = replace(odds, boosted_log_capacity=odds.log_capacity)
        planner = Planner(odds, horizon_of(19_000.0), ways, [change.gap_s for change in changes], terms)
        return float(planner._per_s[0, 0, 0])

    restart = ChangeCost(mechanism=Mechanism.QUERY_RESTART, gap_s=2.0)
    assert cost_of_slow(REDEPLOY) < 0.9 * cost_of_slow(restart)
    assert cost_of_slow(restart, REDEPLOY) == pytest.approx(cost_of_slow(REDEPLOY))


def test_a_longer_gap_is_never_the_better_way_to_the_same_place() -> None:
    longer = ChangeCost(mechanism=Mechanism.OPERATOR_UPGRADE, gap_s=120.0)
    planner = planner_of(horizon_of(20_000.0, later=2.5), [REDEPLOY, longer])
    assert planner.best(behind(2, 100_000.0)).mechanism is not Mechanism.OPERATOR_UPGRADE


def test_a_forecast_of_nothing_is_lifted_when_something_arrives() -> None:
    silence = Forecast(made_at_s=0.0, step_s=60.0, levels=(0.1, 0.5, 0.9), paths_per_s=((0.0,) * 30,) * 3, model="none")
    bent = Tidewise()._surprise.bent(silence, 50_000.0, 5.0)
    assert bent.paths_per_s[1][0] == pytest.approx(50_000.0)
