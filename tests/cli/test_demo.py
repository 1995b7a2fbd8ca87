"""The demo: its summary, what it says when something is missing, and one short run on real Spark."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.report.samples import a_change, a_run
from tidewise.cli import main
from tidewise.cli.demo import print_summary
from tidewise.core import Purpose, Usage
from tidewise.experiments.demo import (
    PROMISES,
    SPACE,
    Demo,
    cost_of,
    demo_policy,
    demo_prices,
    demo_rates,
    driver_s,
    static_usage,
    time_of_day,
)
from tidewise.experiments.record import Run

SECONDS = 240
_DEADLINE_S = 600.0


def _tuned(folder: Path, policy: str = "reactive", *, executors: float = 2.0, slow_s: int = 13) -> Run:
    latency = np.full(SECONDS, 2.0)
    latency[:slow_s] = 9.0
    meter = {
        Purpose.EXECUTORS: Usage(core_s=executors * 0.35 * SECONDS, memory_mib_s=executors * 768.0 * SECONDS),
        Purpose.DRIVER: Usage(core_s=0.5 * SECONDS, memory_mib_s=1024.0 * SECONDS),
    }
    return a_run(
        folder / policy,
        policy=policy,
        load="morning",
        seconds=SECONDS,
        engine="spark",
        profile=None,
        series={
            "latency_p50_s": latency,
            "latency_p95_s": latency,
            "latency_p99_s": latency,
            "up": np.ones(SECONDS, dtype=np.bool_),
        },
        promises=PROMISES,
        prices=demo_prices(SECONDS),
        faults=(),
        changes=(a_change(20.0), a_change(60.0)),
        meter=meter,
    )


def _demo(tuned: Run, static: Run | None = None) -> Demo:
    cost = cost_of(static_usage(driver_s(tuned.record.meter)), demo_prices(SECONDS))
    return Demo(tuned=tuned, static=static, static_cost=cost, proof=("Proved: all of it.",), wanted_s=SECONDS)


def _printed(demo: Demo) -> str:
    told = io.StringIO()
    print_summary(demo, Console(width=120, file=told))
    return told.getvalue()


def test_the_summary_puts_the_run_beside_static_and_says_what_was_not_measured(tmp_path: Path) -> None:
    told = _printed(_demo(_tuned(tmp_path)))
    static, reactive = (
        next(text for text in told.splitlines() if text.startswith(f" {name} ")).split()
        for name in ("static", "reactive")
    )
    # Eight hours of 1.9 cores and 4 GiB at the usual prices.
    assert static == ["static", "0.77", "USD", "0", "%", "4", "–", "–", "–", "0"]  # noqa: RUF001 - the report's dash
    assert reactive == ["reactive", "0.48", "USD", "37", "%", "2.0", "94.6", "%", "2.00", "s", "9.00", "s", "2"]
    assert "its latency was not measured" in told
    assert "kept by reactive" in told
    assert "Proved: all of it." in told


def test_a_broken_promise_is_not_hidden(tmp_path: Path) -> None:
    assert "NOT kept by reactive" in _printed(_demo(_tuned(tmp_path, slow_s=60)))


def test_a_measured_static_shows_its_latency(tmp_path: Path) -> None:
    told = _printed(_demo(_tuned(tmp_path), _tuned(tmp_path, "static", executors=4.0, slow_s=0)))
    static = next(text for text in told.splitlines() if text.startswith(" static "))
    assert "100.0 %" in static
    assert "not measured" not in told


def test_a_demo_that_was_stopped_is_not_whole(tmp_path: Path) -> None:
    demo = _demo(_tuned(tmp_path))
    assert demo.whole
    assert not Demo(tuned=demo.tuned, static=None, static_cost=demo.static_cost, proof=(), wanted_s=SECONDS + 1).whole


def test_the_morning_has_a_night_a_peak_and_a_burst() -> None:
    rates = demo_rates(SECONDS)
    hour = SECONDS // 8

    def at(clock: float) -> float:
        begin = int((clock - 4.0) * hour)
        return float(rates[begin : begin + hour // 2].mean())

    assert at(10.0) > at(11.5) > 3 * at(4.0)
    assert at(10.0) > 1.2 * at(9.4)
    assert time_of_day(0.0, SECONDS) == "04:00"
    assert time_of_day(120.0, SECONDS) == "08:00"
    assert time_of_day(239.9, SECONDS) == "11:59"


def test_the_policy_of_the_demo_is_ours() -> None:
    assert demo_policy().name == "tidewise"


def test_the_executors_and_the_driver_fit_two_cores() -> None:
    assert static_usage(1.0).core_s <= 2.0
    assert SPACE.smallest.executors == 1


def _run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidewise.cli", "demo", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
    )


def test_without_java_it_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    done = _run(tmp_path, JAVA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"tidewise: JAVA_HOME is {tmp_path}, but there is no program bin/java in it: correct JAVA_HOME or unset it\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_without_pyspark_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(sys, "argv", ["tidewise", "demo"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "tidewise: PySpark is not installed: pip install 'tidewise[spark]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kafka"], "--kafka is for real Spark: leave out --kafka, or --simulated"),
        (
            ["--minutes", "2", "--static"],
            "--minutes and --static are for real Spark: leave out --minutes and --static, or --simulated",
        ),
    ],
)
def test_what_is_for_real_spark_is_refused_in_the_simulator(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidewise", "demo", "--simulated", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"tidewise: {said}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("spark")
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="the extra tidewise[spark] is not installed")
@pytest.mark.parametrize("source", ["embedded", pytest.param("kafka", marks=pytest.mark.soak)])
def test_half_a_minute_on_real_spark_leaves_a_report_and_no_process(tmp_path: Path, source: str) -> None:
    done = _run(tmp_path, "--minutes", "0.5", *(["--kafka"] if source == "kafka" else []))
    assert done.returncode == 0, done.stderr
    assert ("Starting a Kafka broker" in done.stdout) == (source == "kafka")
    assert "Starting a Spark master" in done.stdout
    assert "04:00  " in done.stdout
    assert " static " in done.stdout
    assert "were each committed once and in order" in done.stdout
    assert (tmp_path / "runs" / "demo" / "report.html").stat().st_size > 1_000_000
    # What serves a JVM notices by itself that this has ended, and may take a moment.
    give_up_s = time.monotonic() + 30.0
    while _processes_in(tmp_path) and time.monotonic() < give_up_s:
        time.sleep(0.2)
    assert _processes_in(tmp_path) == []


def _processes_in(folder: Path) -> list[str]:
    """The commands of all processes that name this folder, or run in it."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = (process / "cwd").resolve().is_relative_to(folder)
        except OSError:
            continue  # it has ended, or is somebody else's
        if inside or str(folder) in command:
            found.append(command)
    return found
