"""The demo on real Spark: a morning of load in a few minutes, on a cluster of this machine, tuned meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tidewise.control import GuardSettings, LoopSettings
from tidewise.core import (
    ConfigurationSpace,
    Mechanism,
    Meter,
    Policy,
    Prices,
    Promises,
    Usage,
    total,
)
from tidewise.core.checks import require
from tidewise.engines.spark.audit import audit
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import COSTS
from tidewise.experiments.comparison import run_name
from tidewise.experiments.compressed import compressed_prices
from tidewise.experiments.live import LiveSetting, Observer
from tidewise.experiments.record import Run
from tidewise.experiments.spark_run import JobProgram, SparkRun, stop
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.policies import Static, Tidewise
from tidewise.workload import Daily, Rates, Steps, Sum

LOAD = "morning"
HOURS = 8.0
"""How long the morning is that the demo shows."""
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
_WORK = 600
"""Rounds of SHA-256 per view: enough that records, and not the fixed cost of a batch, decide how many executors are
needed."""
_PROGRAM = JobProgram(
    job="clicks",
    options={"--state-partitions": 1, "--state-provider": "hdfs", "--work": _WORK},
    driver_cores=0.5,
    driver_memory_mib=1024,
)
_MEAN_PER_S = 2000.0
_BURST_PER_S = 700.0
_BURST_HOURS = (10.0, 10.7)
_WARM_SHARE = 0.1
"""How long the job runs before the morning begins, as a share of that: a JVM that has just started is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo has to show when it is over."""

    tuned: Run
    static: Run | None
    """The same morning on the largest configuration; None: that was not measured."""
    static_cost: float
    """What the largest configuration costs for as long as the tuned run was metered."""
    proof: tuple[str, ...]
    """What the audit of the tuned job's checkpoint found, and what became of the records that were sent."""
    wanted_s: int

    @property
    def whole(self) -> bool:
        """Whether nobody stopped it, and all its records came."""
        runs = (run for run in (self.tuned, self.static) if run is not None)
        return all(run.record.complete and run.record.duration_s >= self.wanted_s for run in runs)


def demo_rates(seconds: int) -> Rates:
    """Records per second from four in the morning to noon: a night, a peak, and a burst that nobody expected."""
    begin, end = (_second_of(hour, seconds) for hour in _BURST_HOURS)
    daily = Daily(
        mean_per_s=_MEAN_PER_S,
        day_s=24.0 / HOURS * seconds,
        night_share=0.12,
        start_hour=BEGINS_AT_HOUR,
        day_spread=0.0,
        noise_share=0.05,
    )
    burst = Steps(levels=((0.0, 0.0), (begin, _BURST_PER_S), (end, 0.0)))
    return Sum(loads=(daily, burst)).rates_per_s(seconds, 1)


def _second_of(hour: float, seconds: int) -> float:
    return seconds * (hour - BEGINS_AT_HOUR) / HOURS


def time_of_day(now_s: float, seconds: int) -> str:
    """The hour and minute of the morning that is shown, after so many seconds of the run."""
    minutes = int((BEGINS_AT_HOUR + HOURS * now_s / seconds) * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def demo_prices(seconds: int) -> Prices:
    """Usual prices, multiplied as time is compressed: the run costs what the morning that it shows would cost."""
    return compressed_prices(Prices(), HOURS * 3600.0 / seconds)


def demo_policy() -> Policy:
    """Tidewise's own, with times fit for a morning of minutes."""
    return Tidewise(settle_s=10.0, sample_s=10.0, tail_s=60.0, memory_s=120.0, unseen_s=REPORT_EVERY_S)


def static_usage(metered_s: float) -> Usage:
    """What the largest configuration uses in so much time, its driver included; it needs no controller."""
    return _PROGRAM.usage(SPACE.largest, metered_s)


def driver_s(meter: Meter) -> float:
    """For how long the job was paid for, its stop included."""
    return _PROGRAM.paid_s(meter)


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
    """Start a cluster (and a broker), run the morning on it and stop everything again, whatever happens.

    `say` is told each step of the set-up; whoever watches is told each second of a morning. Ctrl-C ends
    the morning early: what was measured until then is in the runs.
    """
    require(seconds >= SHORTEST_S, f"a demo lasts at least {SHORTEST_S} s, not {seconds} s")
    with ExitStack() as stack:
        broker = None
        if kafka:
            resolve(spark_connector(), tell=say)
            broker = LocalBroker.up(home / "kafka", tell=say)
            stack.callback(stop, broker)
        say("Starting a Spark master and a worker on 127.0.0.1 ...")
        cluster = LocalCluster.up(home / "cluster", workers=1, slots_per_worker=SPACE.largest.total_slots)
        stack.callback(stop, cluster)
        say(cluster.cpu_reason or "Each executor is limited to its share of the CPU by a control group.")
        tuned = _morning(
            home,
            cluster=cluster,
            broker=broker,
            policy=demo_policy(),
            seconds=seconds,
            created=created,
        )
        measured = tuned.run(say, watch)
        run, told = measured.run, measured.told
        static = None
        if measure_static and run.record.complete and run.record.duration_s >= seconds:
            say("The same morning again, on the largest configuration.")
            policy = Static(executors=SPACE.largest.executors)
            morning = _morning(home, cluster=cluster, broker=broker, policy=policy, seconds=seconds, created=created)
            again = morning.run(say, watch)
            static, told = again.run, told + again.told
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


def _morning(
    home: Path, *, cluster: LocalCluster, broker: LocalBroker | None, policy: Policy, seconds: int, created: str
) -> SparkRun:
    """One morning under one policy."""
    rates = demo_rates(seconds)
    return SparkRun(
        folder=home / f"job-{policy.name}",
        cluster=cluster,
        broker=broker,
        program=_PROGRAM,
        setting=LiveSetting(
            folder=home / run_name(LOAD, policy.name, 1),
            load=LOAD,
            label=policy.name,
            policy=policy,
            space=SPACE,
            start=SPACE.largest,
            promises=PROMISES,
            prices=demo_prices(seconds),
            created=created,
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
            duration_s=float(seconds),
            versions={"pyspark": version("pyspark"), "load": hashlib.sha256(rates.tobytes()).hexdigest()[:12]},
            plan={"name": "demo", "morning": f"{seconds}s"},
        ),
        rates_per_s=rates,
        warm_up_s=_WARM_SHARE * seconds,
        report_every_s=REPORT_EVERY_S,
    )
