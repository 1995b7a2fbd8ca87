"""The plan by which a run is run again: what it takes from the run, and what may be asked instead."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.experiments.recorded import known_profile, record
from tidewise.core import BadInputError
from tidewise.experiments.whatif_plan import (
    Question,
    ReplayedExperiment,
    policies_of,
    space_of,
    write_plan,
)
from tidewise.experiments.whatif_recording import Recording, read_recording


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return read_recording(record(tmp_path_factory.mktemp("recorded"), duration="20min").folder)


def question(recording: Recording, *policies: str) -> Question:
    assert recording.promises is not None
    assert recording.prices is not None
    space = space_of(recording, {})
    return Question(
        policies=policies_of(recording, policies, space),
        space=space,
        promises=recording.promises,
        prices=recording.prices,
    )


def test_the_space_is_the_recorded_one(recording: Recording) -> None:
    space = space_of(recording, {})
    assert space["executors"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert space["memory_per_executor"] == ["2048MiB"]
    assert space["commit_interval"] == ["5s"]


def test_without_a_recorded_space_it_is_what_was_seen(recording: Recording) -> None:
    seen = max(one.executors for one in recording.configurations)
    space = space_of(replace(recording, plan={}), {})
    assert space["executors"] == list(range(1, seen + 1))


def test_what_is_asked_goes_before_and_the_start_stays_possible(recording: Recording) -> None:
    space = space_of(recording, {"executors": "6..7", "commit_interval": "10s"})
    assert space["executors"] == [4, 6, 7]
    assert space["commit_interval"] == ["5s", "10s"]


def test_the_usual_policies_hold_the_peak_and_keep_their_recorded_settings(recording: Recording) -> None:
    plan: dict[str, JsonValue] = {
        **recording.plan,
        "policies": [{"policy": "ds2", "name": None, "target_utilisation": 0.4}],
    }
    tables = policies_of(replace(recording, plan=plan), [], space_of(recording, {}))
    by_name = {table.policy: table for table in tables}
    assert by_name["static"].settings == {"executors": 8}
    assert by_name["ds2"].settings == {"target_utilisation": 0.4}


def test_a_policy_that_is_asked_for_twice_has_two_names(recording: Recording) -> None:
    tables = policies_of(recording, ["static:executors=2", "static:executors=3"], space_of(recording, {}))
    assert [table.label for table in tables] == ["static", "static-2"]
    assert [table.settings for table in tables] == [{"executors": 2}, {"executors": 3}]


def test_a_policy_that_cannot_be_is_refused_at_once(recording: Recording) -> None:
    with pytest.raises(BadInputError, match="there is no policy 'ds3'"):
        policies_of(recording, ["ds3"], space_of(recording, {}))


def test_the_plan_has_the_load_and_the_failures_of_the_run(recording: Recording, tmp_path: Path) -> None:
    profile = known_profile().model_copy(update={"name": "fitted-1"})
    path = write_plan(tmp_path / "home", recording, [profile], question(recording, "static"))
    experiment = ReplayedExperiment(path, faults=recording.faults)
    trial = experiment.trial("fitted-1", 1)
    assert trial.rates_per_s == pytest.approx(recording.rates_per_s, rel=1e-6)
    assert trial.faults == recording.faults
    assert experiment.start == recording.start
    assert experiment.plan.control.decide_every == 20.0


def test_it_can_be_sent_to_another_machine(recording: Recording, tmp_path: Path) -> None:
    profile = known_profile().model_copy(update={"name": "fitted-1"})
    path = write_plan(tmp_path / "home", recording, [profile], question(recording, "static"))
    sent = pickle.loads(pickle.dumps(ReplayedExperiment(path, faults=recording.faults)))  # noqa: S301 - our own
    assert sent.trial("fitted-1", 1).faults == recording.faults
