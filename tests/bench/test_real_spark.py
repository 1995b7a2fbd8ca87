"""The table of the runs on real Spark: from what is there, and never from what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import real_spark
from tests.report.samples import a_run
from tidewise.core import BadInputError
from tidewise.experiments import by_scenario, compare


def test_without_runs_it_says_how_to_make_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"no runs of tsw .* tidewise experiment real-spark"):
        real_spark.benches()["real-spark-tsw"](None)


def test_every_policy_is_set_beside_static_and_ranked(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / policy, policy=policy, executors=count) for policy, count in (("static", 8), ("ds2", 4))]
    told = "\n".join(real_spark._job(rows) for rows in by_scenario(compare(runs)))
    ds2 = next(line for line in told.splitlines() if line.startswith("| ds2 |"))
    assert "(0.50)" in ds2
    assert "the cheapest first: ds2, static" in told


def test_goals_are_called_reached_or_not_by_everything_that_was_paid_for(tmp_path: Path) -> None:
    pair = (("static", 8), ("tidewise", 4))
    runs = [a_run(tmp_path / policy, policy=policy, executors=count) for policy, count in pair]
    (rows,) = by_scenario(compare(runs))
    told = {line.split("|")[1].strip(): line.split("|")[3].strip() for line in real_spark._goals(rows).splitlines()}
    shares = {one.policy: one.summaries[0].all_in.core_h for one in rows}
    reached = shares["tidewise"] / shares["static"] <= 0.6
    assert told["core-seconds of static at most 0.6"] == ("yes" if reached else "NO")
    assert told["points of good seconds below static at most 1"] == "yes"


def test_without_a_pair_of_runs_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="no runs of both static and tidewise"):
        real_spark.benches()["real-spark-tidewise"](None)


def test_every_bad_second_belongs_to_the_failure_before_it(tmp_path: Path) -> None:
    pair = (("static", 8), ("tidewise", 4))
    runs = [a_run(tmp_path / policy, policy=policy, executors=count) for policy, count in pair]
    (rows,) = by_scenario(compare(runs))
    lines = [line.split("|")[1:-1] for line in real_spark._bad_seconds(rows, runs).splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0]] == ["", "static", "tidewise"]
    faults = runs[0].record.faults
    assert len(lines) == 3 + len(faults)
    for column, one in enumerate(rows, start=1):
        summary = one.summaries[0]
        told = sum(int(line[column]) for line in lines[2:])
        decided = summary.seconds - summary.undecided_s
        assert told == round((1.0 - summary.good_share) * decided)
