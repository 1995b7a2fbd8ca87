"""A profile that is fitted to a run comes near the one that it was made with, and foretells what was not fitted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.experiments.recorded import known_profile, record
from tidewise.core import BadInputError, Mechanism
from tidewise.engines.simulator import load_profile
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments.whatif_fit import Explained, RunFit, explain, fit_run, interval, usual_profile
from tidewise.experiments.whatif_recording import Recording, read_recording
from tidewise.experiments.whatif_replay import Figure, Misfit, Trust, misfit, replay, windows_of

pytestmark = pytest.mark.xdist_group("whatif")  # to fit a run takes seconds: once, and not once for each worker


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return read_recording(record(tmp_path_factory.mktemp("recorded")).folder)


@pytest.fixture(scope="module")
def fitted(recording: Recording) -> RunFit:
    return fit_run(recording, load_profile("spark-local"), draws=5)


@pytest.fixture(scope="module")
def explained(recording: Recording, fitted: RunFit) -> Explained:
    return explain(recording, fitted, load_profile("spark-local"))


def test_the_run_shows_something_to_fit(recording: Recording) -> None:
    assert len(recording.changes) >= 3
    assert len(recording.faults) == 3
    assert recording.outages


def test_what_decides_latency_is_found(fitted: RunFit) -> None:
    true, found = known_profile(), fitted.profile
    assert found.capacity.records_per_core_s == pytest.approx(true.capacity.records_per_core_s, rel=0.1)
    assert found.batch is not None
    assert found.batch.fixed_s == pytest.approx(0.6, abs=0.15)


def test_what_shows_directly_is_read_off(fitted: RunFit) -> None:
    true, found = known_profile(), fitted.profile
    assert found.driver.cores == pytest.approx(0.8, rel=0.01)
    assert found.controller.cores == pytest.approx(true.controller.cores, rel=0.01)
    assert found.live.start_s == pytest.approx(9.0, rel=0.3)
    assert found.live.leave_s == pytest.approx(2.0, rel=0.3)
    assert found.capacity.cpu_s_per_record == pytest.approx(true.capacity.cpu_s_per_record, rel=0.1)
    assert found.failures["driver-kill"].downtime_s == pytest.approx(true.failures["driver-kill"].downtime_s, rel=0.3)


def test_the_second_half_is_foretold_by_the_first(explained: Explained) -> None:
    for figure in (Figure.LATENCY_P95, Figure.BACKLOG, Figure.BUSY_SHARE):
        error = explained.second_half.errors[figure]
        assert error is not None
        assert error < 0.15, figure
    assert explained.second_half.trust is Trust.WELL
    assert explained.second_half.windows < explained.whole.windows
    assert explained.left_out == 0


def test_calm_windows_and_foretold_outages_are_told_apart(explained: Explained) -> None:
    assert 0 < explained.calm.windows < explained.second_half.windows
    assert explained.foretold.windows == explained.second_half.windows
    assert explained.foretold.errors != explained.second_half.errors
    calm, all_of_it = explained.calm.errors[Figure.BACKLOG], explained.second_half.errors[Figure.BACKLOG]
    assert calm is not None
    assert all_of_it is not None
    assert calm < 0.15


def test_draws_lie_around_the_fit_and_differ(fitted: RunFit) -> None:
    assert len({(draw.capacity, draw.batch) for draw in fitted.draws}) == 5
    (value,) = [one for one in fitted.values if one.path == ("capacity", "records_per_core_s")]
    low, high = interval(value)
    assert low < fitted.profile.capacity.records_per_core_s < high


def test_what_slots_bring_is_drawn_without_making_what_ran_slower_or_faster(
    recording: Recording, fitted: RunFit
) -> None:
    """A draw in which a slot keeps fewer cores busy is no job that was too slow for its own run."""
    ran = Counter(one.configuration for one in recording.observations).most_common(1)[0][0]
    fast = capacity_per_s(fitted.profile.capacity, ran, ran.executors)
    assert len({draw.capacity.slot_contention for draw in fitted.draws}) == 5
    for draw in fitted.draws:
        assert capacity_per_s(draw.capacity, ran, ran.executors) == pytest.approx(fast, rel=0.08)


def test_what_the_run_does_not_show_is_listed(fitted: RunFit) -> None:
    assert "what further slots on an executor bring" in fitted.assumed
    assert any("handover" in one for one in fitted.assumed)
    assert not any("driver-kill" in one for one in fitted.assumed)
    assert fitted.usual == "spark-local"


def test_the_same_run_gives_the_same_fit(recording: Recording, fitted: RunFit) -> None:
    again = fit_run(recording, load_profile("spark-local"), draws=5)
    assert again.profile == fitted.profile
    assert again.draws == fitted.draws


def test_a_fitted_profile_can_be_written_and_read(fitted: RunFit, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(fitted.profile, preface="fitted"), encoding="utf-8")
    assert load_profile(str(path)) == fitted.profile


def test_a_run_replayed_with_its_own_profile_looks_like_it(recording: Recording) -> None:
    made = replay(known_profile(), recording, seed=2)
    recorded, simulated = (
        windows_of(reports, width_s=60.0, seconds=recording.duration_s)
        for reports in (recording.observations, made.observations)
    )
    error = misfit(recorded, simulated).errors[Figure.LATENCY_P95]
    assert error is not None
    assert error < 0.1


def test_another_profile_is_told_from_the_run(recording: Recording) -> None:
    made = replay(load_profile("spark-local"), recording, seed=2)
    recorded, simulated = (
        windows_of(reports, width_s=60.0, seconds=recording.duration_s)
        for reports in (recording.observations, made.observations)
    )
    error = misfit(recorded, simulated).errors[Figure.BUSY_SHARE]
    assert error is not None
    assert error > 0.3


def test_a_job_that_was_never_changed_leaves_more_open(tmp_path: Path) -> None:
    run = record(tmp_path, policy="static", executors=6, duration="30min")
    recording = read_recording(run.folder)
    found = fit_run(recording, load_profile("spark-local"), draws=1)
    assert found.profile.batch is not None
    assert any("only one number of them" in one for one in found.assumed)
    assert "how long an executor takes to come up" in found.assumed
    assert found.profile.live == load_profile("spark-local").live
    assert Mechanism.LIVE in found.profile.mechanisms


def test_a_profile_that_is_not_shipped_has_to_be_named(recording: Recording) -> None:
    with pytest.raises(BadInputError, match=r"name one like it: --profile FILE.toml"):
        usual_profile(recording, None)
    assert usual_profile(recording, "spark-local").name == "spark-local"


@pytest.mark.parametrize(
    ("latency", "backlog", "busy", "trust"),
    [
        (0.1, 0.1, 0.1, Trust.WELL),
        (0.1, 0.1, 0.9, Trust.ROUGHLY),
        (0.2, 0.1, 0.1, Trust.ROUGHLY),
        (0.1, 0.4, 0.1, Trust.NOT),
        (None, None, 0.1, Trust.NOT),
        (None, 0.1, 0.1, Trust.NOT),
    ],
)
def test_trust_goes_by_what_was_promised(
    latency: float | None, backlog: float | None, busy: float, trust: Trust
) -> None:
    errors = {
        Figure.LATENCY_P50: None,
        Figure.LATENCY_P95: latency,
        Figure.BACKLOG: backlog,
        Figure.BUSY_SHARE: busy,
    }
    assert Misfit(errors=errors, windows=9).trust is trust
