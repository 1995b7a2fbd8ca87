"""A new job begins like those it is like: nearer to the truth than with the usual values, no surer than they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tidewise.core import Configuration
from tidewise.experiments.fleet_warm_start import JobTraits, most_alike, warm_physics
from tidewise.qos import Candidates, JobModel, Physics

_KINDS = {
    "orders": (4000.0, 0.6, 700.0, 9e3),
    "clicks": (24e3, 0.3, 550.0, 5e4),
    "alerts": (1200.0, 1.0, 900.0, 1500.0),
}
_ONE = Configuration(executors=1)


def _fleet(seed: int = 0, per_kind: int = 10) -> list[JobTraits]:
    rng = np.random.default_rng(seed)
    return [
        JobTraits(
            job=f"{kind}-{number}",
            program=f"{kind} 1.0",
            load_mean_per_s=load * float(np.exp(0.3 * rng.standard_normal())),
            load_spread=0.4,
            records_per_core_s=per_core * float(np.exp(0.1 * rng.standard_normal())),
            batch_fixed_s=fixed_s,
            executor_mib=mib,
        )
        for kind, (per_core, fixed_s, mib, load) in _KINDS.items()
        for number in range(per_kind)
    ]


def _estimate(physics: Physics) -> float:
    """What is believed of one core before anything was seen."""
    return float(JobModel(physics=physics, changes=()).capacity.predict(Candidates.listing([_ONE])).median[0])


@pytest.mark.parametrize("kind", list(_KINDS))
def test_a_first_estimate_is_nearer_to_the_truth(kind: str) -> None:
    fleet = _fleet()
    hidden = next(job for job in fleet if job.prefix == kind)
    new = JobTraits(job=f"{kind}-new", program=f"{kind} 1.0", load_mean_per_s=hidden.load_mean_per_s)
    known = [job for job in fleet if job is not hidden]
    truth = hidden.records_per_core_s
    assert truth is not None
    warm, cold = (abs(math.log(_estimate(physics) / truth)) for physics in (warm_physics(new, known), Physics()))
    assert warm < 0.3
    assert warm < cold


def test_a_new_program_of_a_known_name_is_still_like_its_older_selves() -> None:
    new = JobTraits(job="orders-new", program="orders 2.0")
    assert {job.prefix for job in most_alike(new, _fleet())} == {"orders"}


def test_by_load_alone_jobs_are_found_where_names_say_nothing() -> None:
    new = JobTraits(job="x17", load_mean_per_s=5e4, records_per_core_s=23e3)
    assert not most_alike(JobTraits(job="x17", load_mean_per_s=1e9), _fleet())
    assert {job.prefix for job in most_alike(new, _fleet())} == {"clicks"}


def test_the_fewer_are_alike_the_less_sure_it_is() -> None:
    fleet = [job for job in _fleet() if job.prefix == "orders"]
    new = JobTraits(job="orders-new", program="orders 1.0")
    spreads = [warm_physics(new, fleet[:count]).records_per_core_s.log_sd for count in (0, 1, 3, 8)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] == Physics().records_per_core_s.log_sd
    assert spreads[-1] >= 0.15


def test_without_any_that_is_alike_all_stays_usual() -> None:
    assert warm_physics(JobTraits(job="zebra"), []) == Physics()
    assert warm_physics(JobTraits(job="zebra-1"), _fleet()) == Physics()


def test_the_job_itself_is_not_its_own_example() -> None:
    fleet = _fleet()
    assert fleet[0] not in most_alike(fleet[0], fleet)


def test_what_was_seen_outweighs_where_it_began() -> None:
    new = JobTraits(job="orders-new", program="orders 1.0")
    model = JobModel(physics=warm_physics(new, _fleet()), changes=())
    for _ in range(20):
        model.capacity.learn(_ONE, 9000.0)
    assert float(model.capacity.predict(Candidates.listing([_ONE])).median[0]) == pytest.approx(9000.0, rel=0.1)
