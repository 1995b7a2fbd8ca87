"""`tidewise forecast backtest` as a user meets it: a table, a page, one JSON document, or one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.backtests import here, wave, write_trace
from tidewise.experiments import backtest as backtests
from tidewise.experiments.backtest_origins import Judged, Stretch


@pytest.fixture
def cli(tidewise: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tidewise:
    """The command in a folder of its own, computed in this process."""
    monkeypatch.chdir(tmp_path)

    def sweep(
        work: Callable[[Stretch], Judged], tasks: Sequence[Stretch], *, master: str, progress: Callable[[int], None]
    ) -> list[Judged]:
        assert master == "local[*]"
        return here(work, tasks, progress=progress)

    monkeypatch.setattr(backtests, "sweep", sweep)
    return lambda *arguments: tidewise("forecast", "backtest", *arguments)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write_trace(tmp_path / "load.csv", wave(300).tolist()))


def test_a_table_and_a_page(cli: Tidewise, trace: str, tmp_path: Path) -> None:
    code, out, err = cli(trace, "constant rate_per_s=10", "--models", "naive,line", "--hours", "2")
    assert code == 0
    assert err.endswith(" parts on Spark\n")
    assert len(err.splitlines()) == 1
    assert "load.csv (300 samples of 60 s · 10 origins, one every 10 min · seed 0)" in out
    assert "constant: naive has the least error over the next ten minutes, 0.00 %." in out
    assert out.splitlines()[-1] == "* the best of its column. The page: runs/backtest/backtest.html"
    page = tmp_path / "runs" / "backtest" / "backtest.html"
    assert "Ten minutes ahead" in page.read_text(encoding="utf-8")


def test_json_is_one_document_that_is_kept_as_well(cli: Tidewise, trace: str, tmp_path: Path) -> None:
    asked = (
        "--models",
        "naive,line",
        "--hours",
        "2",
        "--noise",
        "0.1",
        "--seed",
        "3",
        "--seed",
        "4",
        "--every",
        "20min",
    )
    code, out, err = cli(trace, *asked, "--out", "mine", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told == json.loads((tmp_path / "mine" / "backtest.json").read_text(encoding="utf-8"))
    (load,) = told["loads"]
    assert (load["load"], load["seeds"], load["origins"]) == ("load.csv", [3, 4], 5)
    assert load["models"]["line"]["origins"] == 10
    assert 0.0 < load["models"]["line"]["wape"][0] < 1.0
    assert told["settings"]["every_s"] == 1200


def test_coarse_rows_are_compressed_where_asked_for_and_that_is_said(cli: Tidewise, tmp_path: Path) -> None:
    coarse = str(write_trace(tmp_path / "coarse.csv", wave(300).tolist(), step_s=300.0))
    code, _, err = cli(coarse, "--models", "naive")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "coarse.csv has a row every 5 min" in err
    code, out, _ = cli(coarse, "--models", "naive", "--compress")
    assert code == 0
    assert "every row is one sample: its time runs 5 times as fast" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("gone.csv",), "gone.csv does not exist"),
        (("sin mean_per_s=10",), "there is no load shape 'sin'; did you mean 'sine'?"),
        (("load.csv", "--models", "nave"), "there is no forecaster 'nave'; did you mean 'naive'?"),
        (("load.csv", "--sample", "60"), "--sample: '60' has no unit"),
        (("load.csv", "--every", "0.5s"), "--every must be a whole number of seconds"),
        (("load.csv", "--hours", "0.1"), "are too short to be judged"),
        (("load.csv", "--noise", "2"), "the noise must be a share from 0 to 1"),
        (("zeros.csv",), "zeros.csv is 0 wherever it would be judged"),
        (("short.csv",), "short.csv lasts 1 h: a backtest needs"),
        (("nan.csv",), "nan.csv, row 3: the value 'nan' is no rate"),
        ((), "Missing parameter: loads"),
    ],
)
def test_bad_input_is_one_sentence(
    cli: Tidewise, trace: str, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert trace
    write_trace(tmp_path / "zeros.csv", [0.0] * 300)
    write_trace(tmp_path / "short.csv", [1.0] * 60)
    write_trace(tmp_path / "nan.csv", [1.0, float("nan")] * 150)
    code, out, err = cli(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert sentence in err
    assert not (tmp_path / "runs").exists()


def test_without_pyspark_the_command_that_installs_it_is_told(
    tidewise: Tidewise, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    code, out, err = tidewise("forecast", "backtest", trace, "--json")
    assert (code, out) == (2, "")
    assert err == "tidewise: PySpark is not installed: pip install 'tidewise[spark]'\n"


@pytest.mark.soak
@pytest.mark.xdist_group("spark")
def test_spark_computes_it_and_says_nothing(trace: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidewise.cli", "forecast", "backtest", trace, "--models", "naive,line", "--hours", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "judging 2 parts on Spark\n")
    assert "load.csv: " in done.stdout
