"""What was seen of runs becomes figures: medians, percentiles, state at its largest, and stages by name."""

from __future__ import annotations

import pytest

from tests.experiments.query_answers import an_answer
from tidewise.experiments.query_figures import QueryFigures, batch_durations_s, run_figures


def test_a_run_counts_its_warm_batches_its_largest_state_and_its_stages() -> None:
    run = run_figures(an_answer(), an_answer(batches_ms=(700, 210, 190, 200)))
    assert (run.seconds, run.cpu_s) == (10.0, 15.0)
    assert run.batches_s == (0.4, 0.5), "neither the first batch nor the one without events"
    assert run.fixed_s == pytest.approx(0.2)
    assert run.commit_s == pytest.approx(0.04)
    assert [(one.operator, one.rows, one.memory_bytes) for one in run.state] == [("stateStoreSave", 300, 30_000)]
    assert [(one.name, one.rows, one.tasks, one.skew) for one in run.stages] == [
        ("MicroBatchScan", 3_000, 2, 1.5),
        ("StateStoreSave", 300, 2, 1.5),
    ]
    assert [one.seconds for one in run.stages] == pytest.approx([0.45, 0.15]), "of batches with events"
    assert [one.run_s for one in run.stages] == pytest.approx([0.9, 0.3])


def test_a_query_without_state_has_none_and_one_batch_is_better_than_no_figure() -> None:
    run = run_figures(an_answer(batches_ms=(900,), keeps_state=False), None)
    assert run.state == ()
    assert run.batches_s == (0.9,)
    assert run.fixed_s is None
    assert batch_durations_s(an_answer()) == [0.9, 0.4, 0.5]


def test_the_median_of_the_repeats_is_told_and_their_range() -> None:
    runs = tuple(
        run_figures(an_answer(seconds=seconds, cpu_s=cpu_s), an_answer())
        for seconds, cpu_s in ((10.0, 15.0), (30.0, 20.0), (11.0, 10.0))
    )
    query = QueryFigures(name="q5", sentence="What it answers.", events=3_000, runs=runs)
    assert query.seconds == 11.0
    assert query.cpu_s == 15.0
    assert query.per_s == pytest.approx(3_000 / 11.0)
    assert query.per_core_s == pytest.approx(200.0)
    assert query.per_core_range == (150.0, 300.0)
    assert query.cores == pytest.approx(10.0 / 11.0)
    assert query.batch_p50_s == pytest.approx(0.45)
    assert query.batch_p95_s == pytest.approx(0.5)
    assert (query.state_rows, query.state_bytes) == (300, 30_000)
    assert query.stages == runs[2].stages


def test_what_nobody_measured_is_unknown() -> None:
    failed = QueryFigures(name="q5", sentence="What it answers.", events=3_000, runs=(), error="it failed")
    assert (failed.seconds, failed.per_core_s, failed.batch_p95_s, failed.state_rows) == (None, None, None, None)
    assert (failed.per_core_range, failed.stages) == (None, ())
    elsewhere = QueryFigures(
        name="q5", sentence="", events=3_000, runs=(run_figures(an_answer(cpu_s=None), an_answer()),)
    )
    assert elsewhere.per_core_s is None
    assert elsewhere.per_s == 300.0
