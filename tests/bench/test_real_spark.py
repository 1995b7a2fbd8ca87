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
