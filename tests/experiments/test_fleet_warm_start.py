"""A new job begins like those it is like: nearer to the truth than with the usual values, no surer than they are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.experiments.jobs import GOOD, write_job
from tidewise.core import BadInputError, Configuration
from tidewise.experiments.controller import Home
from tidewise.experiments.fleet_warm_start import JobTraits, known_traits, most_alike, warm_physics
from tidewise.experiments.job_file import JobFile
from tidewise.policies import Tidewise
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


def test_what_the_same_job_showed_before_comes_first() -> None:
    fleet = _fleet()
    again = JobTraits(job="orders-7", program="orders 1.0")
    assert most_alike(again, fleet)[0].job == "orders-7"


# From a job file ---------------------------------------------------------------------------------------------------

_WARM = f"""\
{GOOD.partition("[policy]")[0].replace('name = "small"', 'name = "orders-new"')}
[policy]
policy = "tidewise"

[telemetry]
program = "orders 1.0"
models = "tables"
"""


def _write_models(tables: Path, jobs: Iterable[JobTraits]) -> None:
    """As a fit of the fleet does: in a partition of its own, one job with an error and without models."""
    rows = [{**asdict(job), "error": None, "job_model": "{}"} for job in jobs]
    rows.append({**rows[0], "job": "orders-broken", "records_per_core_s": None, "error": "ValueError: no"})
    (tables / "models" / "version=1").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tables / "models" / "version=1" / "part-0.parquet")
    (tables / "models" / "_SUCCESS").touch()


def test_a_job_file_lets_the_policy_begin_with_what_similar_jobs_showed(tmp_path: Path) -> None:
    fleet = _fleet()
    _write_models(tmp_path / "tables", fleet)
    assert known_traits(tmp_path / "tables") == fleet
    job = JobFile(write_job(tmp_path, _WARM))
    similar = job.similar()
    assert {each.prefix for each in similar} == {"orders"}
    policy = job.policy(similar)
    assert isinstance(policy, Tidewise)
    assert policy.prior == warm_physics(JobTraits(job="orders-new", program="orders 1.0"), fleet)
    one = Candidates.listing([_ONE])
    assert float(policy._model.capacity.predict(one).median[0]) == pytest.approx(4000.0, rel=0.3)
    assert job.begins_with(similar) == (
        "It begins with what jobs like it have shown: " + ", ".join(f"orders-{number}" for number in range(8)) + "."
    )


def test_who_does_not_name_models_begins_as_usual(tmp_path: Path) -> None:
    job = JobFile(write_job(tmp_path, _WARM.partition("[telemetry]")[0]))
    assert (job.similar(), job.begins_with([])) == ([], None)
    policy = job.policy(job.similar())
    assert isinstance(policy, Tidewise)
    assert policy.prior is None


def test_models_that_are_of_no_use_are_told(tmp_path: Path) -> None:
    _write_models(tmp_path / "tables", _fleet())
    other = JobFile(write_job(tmp_path, _WARM.replace("orders", "zebra")))
    assert other.begins_with(other.similar()) == "No job in tables is like zebra-new: it begins with what is usual."
    reactive = JobFile(other.path, policy="reactive")
    assert reactive.begins_with(reactive.similar()) == "The models in tables are of no use to the policy reactive."
    assert reactive.policy(reactive.similar()).name == "reactive"


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("elsewhere/x", "there is no folder"),
        ("tables/reports", "has no models yet; make them with: tidewise fleet fit --tables"),
        ("tables/models/_SUCCESS", "has no models yet"),
        ("tables/models/version=1/x.parquet", "cannot be read: .*; make them anew with: tidewise fleet fit --tables"),
    ],
)
def test_models_that_are_not_there_are_told_with_their_line(tmp_path: Path, file: str, sentence: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("no Parquet", encoding="utf-8")
    path = write_job(tmp_path, _WARM)
    with pytest.raises(BadInputError, match=rf"job.toml, line 40: .*{sentence}"):
        JobFile(path)


def test_a_table_of_telemetry_that_asks_for_nothing_is_told(tmp_path: Path) -> None:
    path = write_job(tmp_path, GOOD + '\n[telemetry]\nprogram = "1"\n')
    with pytest.raises(BadInputError, match=r'write to = "FOLDER" or models = "FOLDER", or both'):
        JobFile(path)


def test_every_controller_of_a_run_begins_with_the_same_jobs(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    _write_models(tables, _fleet())
    job = JobFile(write_job(tmp_path, _WARM))
    home = Home.of(job, tmp_path / "home")
    home.folder.mkdir()
    home.keep(job)
    similar = home.similar(job)
    assert similar == job.similar()
    # The job has begun, its controller has died, and the fleet is fitted anew meanwhile.
    (home.folder / "job").mkdir()
    (home.folder / "job" / "job.json").touch()
    tables.rename(tmp_path / "away")
    again = JobFile(job.path, kept=home.job_file)
    assert home.similar(again) == similar
