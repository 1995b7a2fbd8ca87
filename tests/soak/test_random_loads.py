"""Every policy on loads drawn at random: nothing lost, everything counted, the journal tells the same story."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tidewise.control import GuardSettings, Loop, Runner, SqliteJournal
from tidewise.core import Configuration, ConfigurationSpace, Policy, Prices, Promises, Purpose
from tidewise.engines.simulator import Simulator, load_profile
from tidewise.forecast import Naive
from tidewise.policies import Ds2, Reactive, Static
from tidewise.workload import random_load

_DURATION_S = 4 * 3600
_POLICIES: tuple[Policy, ...] = (Static(), Reactive(target_cpu=0.5, metric_window_s=60.0), Ds2.as_in_demeter())


@pytest.mark.soak
@pytest.mark.parametrize("policy", _POLICIES, ids=lambda policy: str(policy.name))
@pytest.mark.parametrize("profile_name", ["paper-cluster", "spark-local"])
@pytest.mark.parametrize("seed", range(12))
def test_a_random_day_is_told_rightly(policy: Policy, profile_name: str, seed: int, tmp_path: Path) -> None:
    profile = load_profile(profile_name)
    mean_per_s = 5.0 * profile.capacity.records_per_core_s
    rates = random_load(seed, mean_per_s=mean_per_s).rates_per_s(_DURATION_S, seed)
    simulator = Simulator(profile=profile, rates_per_s=rates, seed=seed)
    start = Configuration(executors=24, memory_mib_per_executor=2048, commit_interval_s=5.0)
    space = ConfigurationSpace(
        executors=tuple(range(1, 25)),
        memory_mib_per_executor=(2048,),
        commit_interval_s=(5.0,),
        changes=simulator.changes,
    )

    def loop() -> Loop:
        return Loop(
            run="soak",
            policy=policy,
            space=space,
            promises=Promises(latency_p95_s=20.0, recovery_s=180.0),
            prices=Prices(),
            forecaster=Naive(),
            guard_settings=GuardSettings(largest_step_executors=8),
        )

    job = simulator.launch(start)
    random = np.random.default_rng(seed)
    faults = [fault for fault in simulator.faults if fault != "out-of-memory"]
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        live = loop()
        runner = Runner(job=job, loop=live, journal=journal, clock=simulator.clock)
        for at_s in sorted(random.uniform(300.0, _DURATION_S - 900.0, 5)):
            runner.run(float(at_s))
            job.inject(str(random.choice(faults)))
        runner.run(float(_DURATION_S))
        replayed = loop()
        replayed.replay(journal.read())
        assert replayed.state == live.state
        assert replayed.unfinished() == live.unfinished()
    series = job.series()
    processed, waiting = series["processed_rate_per_s"].sum(), series["backlog_records"][-1]
    assert processed + waiting >= rates.sum() * (1 - 1e-9)
    assert series["cores"].sum() == pytest.approx(job.meter()[Purpose.EXECUTORS].core_s)
    assert series["memory_mib"].sum() == pytest.approx(job.meter()[Purpose.EXECUTORS].memory_mib_s)
    assert series["cores"].max() <= 24
