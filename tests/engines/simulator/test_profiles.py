"""Profile files: the shipped ones, their documentation, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.simulator.parts import batch_profile, continuous_profile
from tidewise.core import BadInputError, Configuration, Mechanism
from tidewise.engines.simulator import load_profile, shipped_profiles
from tidewise.engines.simulator.physics import capacity_per_s, memory_share, speed_under_pressure
from tidewise.engines.simulator.profile_file import profile_to_toml


def test_the_clusters_are_shipped() -> None:
    assert shipped_profiles() == ["paper-cluster", "paper-cluster-tsw", "spark-local"]


@pytest.mark.parametrize("name", ["paper-cluster", "paper-cluster-tsw", "spark-local"])
def test_a_shipped_profile_is_whole(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert "out-of-memory" in profile.failures
    assert profile.driver.cores > 0


@pytest.mark.parametrize("name", ["paper-cluster", "paper-cluster-tsw"])
def test_on_the_paper_cluster_every_change_is_a_restart(name: str) -> None:
    gaps = {cost.mechanism: cost.gap_s for cost in load_profile(name).changes}
    assert Mechanism.LIVE not in gaps
    assert 0 < gaps[Mechanism.IN_PLACE_RESCALE] < gaps[Mechanism.REDEPLOY] < gaps[Mechanism.OPERATOR_UPGRADE]


@pytest.mark.parametrize("profile", [continuous_profile(), batch_profile()])
def test_a_written_profile_reads_back_as_it_was(tmp_path: Path, profile: object) -> None:
    assert isinstance(profile, type(continuous_profile()))
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(profile, preface="For a test."))
    assert load_profile(str(path)) == profile
    assert "# One core that runs one slot, alone." in path.read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gap_s = 40.0", "gap_s = -1.0", "mechanisms.redeploy.gap_s"),
        ("records_per_core_s", "records_per_core", "capacity.records_per_core"),
        ('mode = "continuous"', 'mode = "sometimes"', "mode"),
        ('mode = "continuous"', 'mode = "micro-batch"', r"\[batch\]"),
        ("[driver]", "[driver", "not TOML"),
    ],
)
def test_a_wrong_profile_is_told_where(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(continuous_profile(), preface="x").replace(old, new))
    with pytest.raises(BadInputError, match=said):
        load_profile(str(path))


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(BadInputError, match="did you mean 'paper-cluster'"):
        load_profile("paper-clutser")
    with pytest.raises(BadInputError, match="cannot be read"):
        load_profile("nowhere.toml")


def test_slots_beyond_the_first_cost_speed_and_cores_beyond_the_slots_lie_idle() -> None:
    capacity = continuous_profile().capacity.model_copy(update={"slot_contention": 0.25})
    one = capacity_per_s(capacity, Configuration(executors=1, slots_per_executor=1, cores_per_executor=1), 1)
    assert one == 1000.0
    assert capacity_per_s(capacity, Configuration(executors=1, slots_per_executor=2, cores_per_executor=1), 1) == 800.0
    assert capacity_per_s(capacity, Configuration(executors=1, slots_per_executor=1, cores_per_executor=2), 1) == 1000.0
    assert capacity_per_s(capacity, Configuration(executors=4), 0) == 0.0


def test_contention_bends_the_line() -> None:
    capacity = continuous_profile().capacity.model_copy(update={"contention": 0.1, "coherence": 0.01})
    four = capacity_per_s(capacity, Configuration(executors=4), 4)
    assert four == pytest.approx(4000.0 / (1 + 0.3 + 0.12))


def test_memory_is_felt_beyond_the_knee_only() -> None:
    memory = continuous_profile().memory
    assert memory_share(memory, Configuration(executors=2, memory_mib_per_executor=500), 2, 100.0) == 0.6
    assert speed_under_pressure(memory, 0.79) == 1.0
    assert speed_under_pressure(memory, 0.9) == pytest.approx(0.65)
    assert speed_under_pressure(memory, 1.2) == pytest.approx(0.3)
