"""TidalScale as a service: from topics alone it decides as the policy does in the loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.plans import write_plan
from tests.experiments.telemetry_of import report_row, told
from tidewise.control import SqliteJournal
from tidewise.core import BadInputError, Decided, Decision, JournalEvent, Origin, Reconfigure, Reported
from tidewise.experiments import Experiment, run_experiment
from tidewise.experiments.forecast_service import FORECAST_TOPIC, ForecastSettings, JobForecasts
from tidewise.experiments.tidalscale_changes import PERFORMING
from tidewise.experiments.tidalscale_service import DecisionSettings, JobDecisions, decisions_of, loads_of
from tidewise.pipeline.per_job import JobRow
from tidewise.pipeline.telemetry_partials import PERFORMANCE

ZERO_UNIX_S = 1_790_000_000.37
PLAN = """\
name = "tidal"
profile = "paper-cluster"
duration = "2h"
seeds = [1]

[space]
executors = "1..20"
memory_per_executor = "4GiB"
commit_interval = "10s"

[promises]
latency_p95 = "10s"
good_share = 0.9

[control]
decide_every = "10s"

[[loads]]
name = "waves"
shape = "sine"
mean_per_s = 40000.0
amplitude_share = 0.6
period = "30min"
noise = 0.05

[[policies]]
policy = "tidalscale"
lag = "30s"
"""
Answer = dict[str, Any]
USUAL = DecisionSettings(lag_s=30.0)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> list[JournalEvent]:
    """What the loop was told and has decided in two hours with TidalScale, on a simulated cluster."""
    folder = tmp_path_factory.mktemp("tidal")
    run_experiment(Experiment(write_plan(folder, PLAN)), folder / "runs", created="2026-11-15")
    (path,) = Path(folder / "runs").rglob("journal.sqlite")
    opened = SqliteJournal.open_readonly(path)
    events = list(opened.read())
    opened.close()
    return events


def says(decision: Decision) -> tuple[str, int | None, str]:
    target = decision.target.executors if isinstance(decision, Reconfigure) else None
    return decision.kind, target, decision.reason.code


def forecast_row(answer: Answer) -> JobRow:
    return {**answer, "at_unix_s": answer["made_at_unix_s"] - 0.001}


def forecasts_after(forecasts: JobForecasts, row: JobRow) -> list[JobRow]:
    return [forecast_row(answer) for answer in forecasts.take([row]) if answer["topic"] == FORECAST_TOPIC]


def test_it_decides_from_topics_as_the_policy_does_in_the_loop(journal: list[JournalEvent]) -> None:
    forecasts, decisions = JobForecasts(ForecastSettings()), JobDecisions(USUAL)
    pairs: list[tuple[Decision, Decision]] = []
    latest: Decision | None = None
    for line, event in enumerate(journal, start=1):
        if isinstance(event, Reported):
            row = told(event.observation, line=line, zero_unix_s=ZERO_UNIX_S)
            decisions.take(forecasts_after(forecasts, row))
            latest = decisions.decide(row)
        elif isinstance(event, Decided) and event.origin is Origin.POLICY and latest is not None:
            pairs.append((event.decision, latest))
    assert [says(ours) for _, ours in pairs] == [says(theirs) for theirs, _ in pairs]
    moves = [(theirs, ours) for theirs, ours in pairs if isinstance(theirs, Reconfigure)]
    assert len(moves) > 10
    assert [ours.reason.sentence for _, ours in moves] == [theirs.reason.sentence for theirs, _ in moves]


def test_a_restart_after_any_batch_changes_nothing(journal: list[JournalEvent]) -> None:
    reports = [event.observation for event in journal if isinstance(event, Reported)]
    rows: list[JobRow] = []
    forecasts = JobForecasts(ForecastSettings())
    for line, observation in enumerate(reports, start=1):
        row = told(observation, line=line, zero_unix_s=ZERO_UNIX_S)
        rows += [*forecasts_after(forecasts, row), row]
    whole = JobDecisions(USUAL).take(rows)
    answers: list[Answer] = []
    saved: str | None = None
    for first in range(0, len(rows), 7):
        decisions = decisions_of(USUAL)()
        if saved is not None:
            decisions.load(saved)
        answers += decisions.take(rows[first : first + 7])
        saved = decisions.save()
    assert answers == whole
    assert [answer["line"] for answer in answers] == list(range(1, len(answers) + 1))


def at(second: float, **others: object) -> JobRow:
    return report_row(line=round(second), at_unix_s=ZERO_UNIX_S + second, **others)  # type: ignore[arg-type]  # whatever it takes


def test_only_what_is_new_is_told() -> None:
    decisions = JobDecisions(DecisionSettings())
    answers = decisions.take([at(10.0 * number) for number in range(1, 20)])
    assert [(answer["kind"], answer["code"]) for answer in answers] == [("keep", "well-utilised")]
    (answer,) = decisions.take([at(200.0, backlog_records=180_000.0)])
    # 1,000/s go on and 180,000 wait: 2,000/s, for which four that bear 1,000/s become eight.
    assert (answer["kind"], answer["target_executors"], answer["executors"]) == ("reconfigure", 8, 4)
    assert "records wait" in str(answer["sentence"])


def test_what_was_decided_is_waited_for_and_then_rested_after() -> None:
    decisions = JobDecisions(DecisionSettings())
    waits = {"backlog_records": 180_000.0}
    decisions.take([at(10.0), at(20.0, **waits)])
    assert [answer["code"] for answer in decisions.take([at(30.0, **waits), at(40.0, **waits)])] == ["change-is-on"]
    # It is there, but not yet at work; then it is.
    assert decisions.take([at(50.0, executors=8, status="changing", **waits)]) == []
    assert [answer["code"] for answer in decisions.take([at(60.0, executors=8, **waits)])] == ["cooling-down"]
    assert decisions.take([at(230.0, executors=8, **waits)]) == []
    assert [answer["kind"] for answer in decisions.take([at(240.0, executors=8, backlog_records=1e6)])] == [
        "reconfigure"
    ]


def test_what_nobody_has_done_is_asked_for_again() -> None:
    decisions = JobDecisions(DecisionSettings(cooldown_s=60.0, change_within_s=100.0))
    answers: list[Answer] = decisions.take([at(10.0 * number, backlog_records=180_000.0) for number in range(1, 40)])
    asked = [answer["at_unix_s"] - ZERO_UNIX_S for answer in answers if answer["kind"] == "reconfigure"]
    assert asked == pytest.approx([10.0, 180.0, 350.0])


def test_what_somebody_else_has_changed_is_counted_from() -> None:
    decisions = JobDecisions(DecisionSettings(cooldown_s=0.0))
    decisions.take([at(10.0), at(20.0, executors=6)])
    (answer,) = decisions.take([at(30.0, executors=6, backlog_records=360_000.0)])[-1:]
    assert "instead of 6" in str(answer["sentence"])


def test_executors_that_are_being_replaced_are_not_asked_for_twice() -> None:
    decisions = JobDecisions(DecisionSettings(cooldown_s=0.0))
    decisions.take([at(10.0), at(20.0, executors=3)])
    (answer,) = decisions.take([at(30.0, executors=3, backlog_records=180_000.0)])[-1:]
    assert "instead of 4" in str(answer["sentence"])
    gone = JobDecisions(DecisionSettings(cooldown_s=0.0))
    gone.take([at(10.0), *(at(20.0 + 10.0 * number, executors=3) for number in range(20))])
    (answer,) = gone.take([at(300.0, executors=3, backlog_records=180_000.0)])[-1:]
    assert "instead of 3" in str(answer["sentence"])


def test_a_forecast_counts_until_the_time_it_was_made_for() -> None:
    def target(second: float) -> object:
        decisions = JobDecisions(DecisionSettings())
        answer = {"kind": "forecast", "per_s": 3000.0, "error": None, "weight": 0.5}
        known = {"made_at_unix_s": ZERO_UNIX_S + 10.0, "for_unix_s": ZERO_UNIX_S + 190.0}
        decisions.take([at(10.0), forecast_row({**answer, **known}), at(second, cpu_share=0.85)])
        return json.loads(decisions.save())["said"]

    # Half of 3,000/s that are forecast and half of 1,000/s that come.
    assert target(190.0) == ["reconfigure", 8, "scale-up"]
    assert target(191.0) == ["keep", None, "other-direction"]


def test_a_clock_that_is_set_back_does_not_rest_for_ever() -> None:
    decisions = JobDecisions(DecisionSettings())
    decisions.take([at(10.0), at(5000.0, executors=6)])
    waits = [at(100.0 + 10.0 * number, executors=6, backlog_records=360_000.0) for number in range(20)]
    kinds = [answer["kind"] for answer in decisions.take(waits)]
    assert "reconfigure" in kinds


def test_it_begins_with_what_the_table_of_all_jobs_knows() -> None:
    first = at(
        10.0, cpu_share=0.1, backlog_records=180_000.0, state_partitions=8
    )  # a report that tells nothing of what is coped with
    like = {name: first[name] for name in first if name.endswith("executor") or name == "commit_interval_s"}
    seen = {**like, "job": "job", "executors": 10, "cpu_share": 0.6, "load_per_s": 5000.0}
    known = loads_of([seen, {**seen, "job": "another", "load_per_s": 1.0}, {**seen, "slots_per_executor": 9}])

    def target(decisions: JobDecisions) -> object:
        return decisions.take([first])[0]["target_executors"]

    # 2,000/s are to be borne, and ten bore 5,000/s: four are enough. Without the table, the report at hand says
    # that four bear 6,000/s at a CPU of 0.6.
    assert target(JobDecisions(DecisionSettings(), known)) is None
    assert "asks for 4 executors" in str(JobDecisions(DecisionSettings(), known).take([first])[0]["sentence"])
    assert "asks for 2 executors" in str(JobDecisions(DecisionSettings()).take([first])[0]["sentence"])


@pytest.mark.parametrize("name", [name for name in PERFORMING if name != "commit_interval_s"])
def test_a_configuration_that_no_job_can_have_is_passed_over(name: str) -> None:
    row = {**{one: at(10.0)[one] for one in PERFORMING}, "job": "job", "cpu_share": 0.5, "load_per_s": 9.0}
    known = loads_of([{**row, name: 0}, row, {**row, "job": "other", name: 0}])
    assert [(job, [one.load_per_s for one in seen]) for job, seen in known.items()] == [("job", [9.0])]


def test_the_table_of_all_jobs_has_what_is_read_of_it() -> None:
    columns = {*(key.name for key in PERFORMANCE.keys), *(name for name, _ in PERFORMANCE.shown)}
    read = {
        "job",
        *PERFORMING,
        "cpu_share",
        "load_per_s",
        "last_unix_s",
        "healthy_s",
        "window_s",
    }
    assert read <= columns


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInputError, match="nothing to decide between 5 and 5 executors"):
        DecisionSettings(least_executors=5, most_executors=5)
    with pytest.raises(BadInputError, match="cooldown"):
        DecisionSettings(cooldown_s=-1.0)


def test_what_are_no_saved_decisions_is_refused() -> None:
    decisions = JobDecisions(DecisionSettings())
    decisions.take([at(10.0), at(20.0, backlog_records=180_000.0)])
    saved = json.loads(decisions.save())
    with pytest.raises(BadInputError, match="damaged"):
        JobDecisions(DecisionSettings()).load(json.dumps({**saved, "told": []}))
    with pytest.raises(BadInputError, match="the saved policy tidalscale has format"):
        JobDecisions(DecisionSettings()).load(json.dumps({**saved, "policy": {}}))
