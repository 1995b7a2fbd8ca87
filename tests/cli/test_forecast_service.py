"""`tidewise service`: what is asked for reaches the service, and what is wrong is said in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.cli.conftest import Invoke
from tidewise.cli import forecast_service as commands
from tidewise.core import BadInputError
from tidewise.experiments.telemetry_target import Target
from tidewise.experiments.tidalscale_service import DecisionSettings, JobDecisions
from tidewise.pipeline.per_job_query import BatchTold, PerJobService


class Ran:
    """Stands for Spark: keeps what it was asked for, and tells of one batch."""

    service: PerJobService
    asked: dict[str, Any]

    def __call__(self, service: PerJobService, *, batch: Callable[[BatchTold], None], **asked: object) -> int:
        self.service, self.asked = service, asked
        batch(BatchTold(batch=0, lines=1200, took_s=2.0))
        return 1200


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    made = Ran()
    monkeypatch.setattr(commands, "run_service", made)
    return made


@pytest.fixture
def service(invoke: Callable[[typer.Typer], Invoke]) -> Invoke:
    return invoke(commands.service_commands)


def test_forecasts_go_from_a_folder_to_a_folder(service: Invoke, ran: Ran, tmp_path: Path) -> None:
    out = service("forecast", "--from", "rows", "--to", "forecasts", "--once", "--horizon", "2min")
    assert out.splitlines()[-1] == f"1,200 lines were read in 1 batch. What came of them: {tmp_path / 'forecasts'}"
    assert ran.service.tells == ("forecast-short", "forecast-long", "forecast")
    assert ran.asked["reads"] == [Target.parse(str(tmp_path / "rows"))]
    assert (ran.asked["every_s"], ran.asked["state"]) == (None, Path("runs/services/forecast"))


def test_decisions_come_from_the_topics_of_one_broker(service: Invoke, ran: Ran) -> None:
    broker = "kafka://127.0.0.1:9092"
    out = service("tidalscale", "--from", broker, "--to", broker, "--executors", "2..8", "--lag", "30s", "--json")
    assert json.loads(out) == {"service": "tidalscale", "lines": 1200, "batches": 1}
    assert [place.topic for place in ran.asked["reads"]] == ["metrics", "forecast"]
    assert ran.asked["every_s"] == 10.0
    made = ran.service.make()
    assert isinstance(made, JobDecisions)
    assert made._settings == DecisionSettings(least_executors=2, most_executors=8, lag_s=30.0)


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("forecast", "--from", "rows", "--to", "out", "--every", "often"), "--every: 'often'"),
        (("forecast", "--from", "rows", "--to", "out", "--horizon", "2h"), "horizon must be at most"),
        (("forecast", "--from", "kafka://nowhere", "--to", "out"), "names no broker"),
        (("forecast", "--from", "rows", "--to", "kafka://127.0.0.1:9092/mine"), "write kafka://127.0.0.1:9092"),
        (("tidalscale", "--from", "rows", "--to", "out"), "--forecasts: name the folder"),
        (("tidalscale", "--from", "rows", "--forecasts", "f", "--to", "out", "--executors", "8"), "--executors: '8'"),
        (
            ("tidalscale", "--from", "rows", "--forecasts", "f", "--to", "out", "--executors", "8..2"),
            "nothing to decide",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(service: Invoke, words: tuple[str, ...], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        service(*words)
