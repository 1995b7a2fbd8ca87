"""The demo on real Spark: a day of load in a few minutes, on a cluster of this machine, tuned while one looks on."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from tidewise.control import GuardSettings, LoopSettings, SystemClock
from tidewise.core import (
    BadInputError,
    Configuration,
    ConfigurationSpace,
    Mechanism,
    Meter,
    Policy,
    Prices,
    Promises,
    Purpose,
    Usage,
    total,
)
from tidewise.core.checks import require
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import COSTS, SparkEngine
from tidewise.engines.spark.program import SparkProgram
from tidewise.experiments.comparison import BASELINE_POLICY, run_name
from tidewise.experiments.demo_feed import EmbeddedFeed, Feed, KafkaFeed
from tidewise.experiments.live import LiveSetting, Observer, run_live
from tidewise.experiments.record import Run
from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.policies import Ds2, Reactive, Static
from tidewise.workload import Daily, Rates, Steps, Sum

LOAD = "day"
DAY_S = 86_400.0
SHORTEST_S = 30
"""No demo is shorter: nothing could be tuned."""
BEGINS_AT_HOUR = 4.0
PROMISES = Promises(latency_p95_s=5.0, good_share=0.9)
REPORT_EVERY_S = 5.0

SPACE = ConfigurationSpace(
    executors=(1, 2, 3, 4),
    slots_per_executor=(4,),
    # Four of them and the driver share two cores.
    cores_per_executor=(0.35,),
    memory_mib_per_executor=(768,),
    commit_interval_s=(2.0,),
    changes=(COSTS[Mechanism.LIVE],),
)
_DRIVER_CORES = 0.5
_DRIVER_MEMORY_MIB = 1024
_WORK = 600
"""Rounds of SHA-256 per view: enough that records, and not the fixed cost of a batch, decide how many executors are
needed."""
_MEAN_PER_S = 2000.0
_BURST_PER_S = 1500.0
_BURST_HOURS = (14.0, 15.5)
_START_S = 12.0
"""No job starts faster: records that came earlier would only be a backlog to begin with."""
_WARM_SHARE = 0.1
"""How long the job runs before the day begins, as a share of that: a JVM that has just started is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo has to show when it is over."""

    tuned: Run
    static: Run | None
    """The same day on the largest configuration; None: that was not measured."""
    static_cost: float
    """What the largest configuration costs for as long as the tuned run was metered."""
    proof: tuple[str, ...]
    """What the audit of the tuned job's checkpoint found, and what became of the records that were sent."""
    wanted_s: int

    @property
    def whole(self) -> bool:
        """Whether nobody stopped it."""
        return all(run.record.duration_s >= self.wanted_s for run in (self.tuned, self.static) if run is not None)


def check_demo() -> None:
    """BadInputError with what to install, where Java or Spark is missing."""
    if importlib.util.find_spec("pyspark") is None:  # wherever SPARK_HOME leads: the job is a program in Python
        raise BadInputError("PySpark is not installed: pip install 'tidewise[spark]'")
    find_java()
    find_spark()


def demo_rates(seconds: int) -> Rates:
    """Records per second of a day from four in the morning: two peaks, and a burst after lunch that nobody expected."""
    begin, end = (_second_of(hour, seconds) for hour in _BURST_HOURS)
    daily = Daily(
        mean_per_s=_MEAN_PER_S,
        day_s=float(seconds),
        night_share=0.12,
        start_hour=BEGINS_AT_HOUR,
        day_spread=0.0,
        noise_share=0.05,
    )
    burst = Steps(levels=((0.0, 0.0), (begin, _BURST_PER_S), (end, 0.0)))
    return Sum(loads=(daily, burst)).rates_per_s(seconds, 1)


def _second_of(hour: float, seconds: int) -> float:
    return seconds * (hour - BEGINS_AT_HOUR) / 24.0


def time_of_day(now_s: float, seconds: int) -> str:
    """The hour and minute of the day that is shown, after so many seconds of the run."""
    minutes = int((BEGINS_AT_HOUR + 24.0 * now_s / seconds) * 60) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def demo_prices(seconds: int) -> Prices:
    """Usual prices, multiplied as time is compressed: the run costs what the day that it shows would cost."""
    usual, faster = Prices(), DAY_S / seconds
    return replace(usual, core_hour=usual.core_hour * faster, gib_hour=usual.gib_hour * faster)


def demo_policy(*, cpu_is_measured: bool) -> Policy:
    """A policy with times fit for a day of minutes: by CPU, or where nobody measures that, by how busy the job is."""
    if cpu_is_measured:
        return Reactive(
            target_cpu=0.7,
            metric_window_s=5.0,
            sync_period_s=5.0,
            scale_down_stabilisation_s=20.0,
            scale_up_period_s=5.0,
            scale_down_max_percent=None,
            scale_down_max_executors=1,
            scale_down_period_s=5.0,
        )
    return Ds2(
        target_utilisation=0.4,
        utilisation_boundary=0.1,
        metric_window_s=10.0,
        stabilisation_s=5.0,
        catch_up_s=15.0,
        restart_s=0.0,
        scale_down_interval_s=10.0,
        max_scale_down_share=0.5,
        evaluation_period_s=5.0,
        ineffective_memory_s=30.0,
    )


def static_usage(metered_s: float) -> Usage:
    """What the largest configuration uses in so much time, its driver included; it needs no controller."""
    largest = SPACE.largest
    return Usage(
        core_s=(largest.total_cores + _DRIVER_CORES) * metered_s,
        memory_mib_s=(largest.total_memory_mib + _DRIVER_MEMORY_MIB) * metered_s,
    )


def driver_s(meter: Meter) -> float:
    """For how long the job was paid for, its stop included."""
    return meter.get(Purpose.DRIVER, Usage()).core_s / _DRIVER_CORES


def cost_of(usage: Usage, prices: Prices) -> float:
    """In the currency of the prices."""
    return prices.cost(core_s=usage.core_s, memory_mib_s=usage.memory_mib_s)


def run_demo(
    home: Path,
    *,
    seconds: int,
    measure_static: bool,
    kafka: bool = False,
    created: str,
    say: Callable[[str], None],
    watch: Callable[[], AbstractContextManager[Observer]],
) -> Demo:
    """Start a cluster (and a broker), run the day on it and stop everything again, whatever happens.

    `say` is told each step of the set-up; whoever watches is told each second of a day. Ctrl-C ends the
    day early: what was measured until then is in the runs.
    """
    require(seconds >= SHORTEST_S, f"a demo lasts at least {SHORTEST_S} s, not {seconds} s")
    with ExitStack() as stack:
        broker = None
        if kafka:
            resolve(spark_connector(), tell=say)
            broker = LocalBroker.up(home / "kafka", tell=say)
            stack.callback(_stop, broker)
        say("Starting a Spark master and a worker on 127.0.0.1 ...")
        cluster = LocalCluster.up(home / "cluster", workers=1, slots_per_worker=SPACE.largest.total_slots)
        stack.callback(_stop, cluster)
        say(cluster.cpu_reason or "Each executor is limited to its share of the CPU by a control group.")
        tuned = _Day(
            home=home,
            cluster=cluster,
            policy=demo_policy(cpu_is_measured=cluster.cpu_limits is not None),
            seconds=seconds,
            created=created,
            broker=broker,
        )
        run, told = tuned.run(say, watch)
        static = None
        if measure_static and run.record.duration_s >= seconds:
            say("The same day again, on the largest configuration.")
            policy = Static(executors=SPACE.largest.executors)
            day = replace(tuned, policy=policy)
            static, told_of_static = day.run(say, watch)
            told += told_of_static
    prices = demo_prices(seconds)
    static_cost = cost_of(static_usage(driver_s(run.record.meter)), prices)
    if static is not None:
        static_cost = cost_of(total(static.record.meter), prices)
    return Demo(
        tuned=run,
        static=static,
        static_cost=static_cost,
        proof=(*audit(tuned.checkpoint).sentences(), *told),
        wanted_s=seconds,
    )


def _stop(started: LocalCluster | LocalBroker) -> None:
    try:
        started.down()
    except KeyboardInterrupt:
        started.down()  # nobody who is in a hurry wants processes left behind
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Day:
    """One day under one policy."""

    home: Path
    cluster: LocalCluster
    policy: Policy
    seconds: int
    created: str
    broker: LocalBroker | None
    """None: the job's source needs none."""

    @property
    def checkpoint(self) -> Path:
        return self._folder / "checkpoint"

    @property
    def _folder(self) -> Path:
        return self.home.absolute() / f"job-{self.policy.name}"

    def _feed(self) -> Feed:
        if self.broker is None:
            return EmbeddedFeed(self._folder)
        return KafkaFeed(self._folder, self.broker, topic=f"clicks-{self.policy.name}")

    def run(
        self, say: Callable[[str], None], watch: Callable[[], AbstractContextManager[Observer]]
    ) -> tuple[Run, list[str]]:
        """The run, and what its feed has to tell."""
        self._folder.mkdir()
        start = SPACE.largest if self.policy.name == BASELINE_POLICY else SPACE.smallest
        rates = demo_rates(self.seconds)
        feed = self._feed()
        # The first rate of the day holds until the day begins.
        feed.start(float(rates[0]), in_s=_START_S)
        try:
            run = self._run(feed, start, rates, say, watch)
        finally:
            feed.end()
        return run, feed.told()

    def _run(
        self,
        feed: Feed,
        start: Configuration,
        rates: Rates,
        say: Callable[[str], None],
        watch: Callable[[], AbstractContextManager[Observer]],
    ) -> Run:
        clock = SystemClock()
        engine = SparkEngine(
            program=self._program(feed),
            cluster=self.cluster,
            home=self._folder / "engine",
            clock=clock,
            window_s=REPORT_EVERY_S,
        )
        say(f"Starting the job on {start}, and waiting for its first batch ...")
        job = engine.launch(start)
        try:
            say(f"Warming it up for {_WARM_SHARE * self.seconds:.0f} s ...")
            clock.wait_until(clock.now_s() + feed.begin_day(rates, in_s=_WARM_SHARE * self.seconds))
            job.forget_spent()
        except BaseException:
            job.kill()
            raise
        setting = LiveSetting(
            folder=self.home / run_name(LOAD, self.policy.name, 1),
            load=LOAD,
            label=self.policy.name,
            policy=self.policy,
            space=SPACE,
            start=start,
            promises=PROMISES,
            prices=demo_prices(self.seconds),
            created=self.created,
            settings=LoopSettings(
                decide_every_s=REPORT_EVERY_S,
                forecast_horizon_s=60.0,
                forecast_step_s=REPORT_EVERY_S,
                probation_s=30.0,
                grace_s=20.0,
                back_off_s=20.0,
                catch_up_s=30.0,
                # A new JVM takes its time, and its share of the machine: latency rises before it falls.
                broken_reports=None,
            ),
            guard_settings=GuardSettings(cooldown_s={Mechanism.LIVE: 12.0}),
            duration_s=float(self.seconds),
            versions={"pyspark": version("pyspark"), "load": hashlib.sha256(rates.tobytes()).hexdigest()[:12]},
            plan={"name": "demo", "day": f"{self.seconds}s"},
        )
        try:
            with watch() as observer:
                return run_live(job, setting, clock=clock, observer=observer)
        except BaseException:
            job.kill()
            raise

    def _program(self, feed: Feed) -> SparkProgram:
        options = {
            **feed.options(),
            "--checkpoint": self.checkpoint,
            "--trigger": f"{SPACE.largest.commit_interval_s:g} seconds",
            "--state-partitions": 1,
            "--state-provider": "hdfs",
            "--work": _WORK,
        }
        arguments = (str(part) for option in options.items() for part in option)
        return SparkProgram(
            command=(sys.executable, "-m", "tidewise.jobs.clicks", *arguments),
            folder=self._folder,
            most_executors=SPACE.largest.executors,
            driver_cores=_DRIVER_CORES,
            driver_memory_mib=_DRIVER_MEMORY_MIB,
            conf=feed.conf(),
        )
