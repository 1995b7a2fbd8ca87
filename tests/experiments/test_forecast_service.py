"""Forecasts as a service: the policy's own, told once for each sample, and the same after any restart."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.experiments.telemetry_of import report_row
from tidewise.core import BadInputError
from tidewise.core.telemetry import Envelope, ReportRow, field_names
from tidewise.experiments.forecast_service import (
    FORECAST_TOPIC,
    LONG_TOPIC,
    SHORT_TOPIC,
    ForecastSettings,
    JobForecasts,
    forecast_service,
    forecasts_of,
)
from tidewise.pipeline.per_job import JobRow
from tidewise.policies.tidalscale import TidalScale
from tidewise.testing.situations import report, situation_of

SMALL = ForecastSettings(season_s=2880.0, short_window_s=90.0, horizon_s=30.0)
"""A day in miniature: samples of ten seconds for both."""
ZERO_UNIX_S = 1_790_000_000.37
Answer = dict[str, Any]


def load_at(number: int) -> float:
    return 1000.0 + 400.0 * math.sin(2 * math.pi * number / 288) + 7.0 * (number % 5)


def rows(first: int, end: int) -> list[JobRow]:
    return [
        report_row(line=number + 1, at_unix_s=ZERO_UNIX_S + 10.0 * (number + 1), load_per_s=load_at(number))
        for number in range(first, end)
    ]


def by_topic(answers: list[Answer]) -> dict[str, Answer]:
    return {answer["topic"]: answer for answer in answers}


@pytest.mark.parametrize("count", [9, 40, 700])
def test_the_forecasts_are_those_of_the_policy(count: int) -> None:
    told = by_topic(JobForecasts(SMALL).take(rows(0, count)))
    policy = TidalScale(season_s=2880.0, short_window_s=90.0, horizon_s=30.0)
    for number in range(count):
        # Overutilised, so that it says what it predicts.
        seen = report(time_s=10.0 * (number + 1), window_s=10.0, rate_per_s=load_at(number), cpu_share=0.9)
        policy.learn(seen)
    evidence = policy.decide(situation_of([seen])).reason.evidence
    assert told[SHORT_TOPIC]["per_s"] == pytest.approx(evidence["predicted_short_per_s"], rel=1e-9)
    assert told[LONG_TOPIC]["per_s"] == pytest.approx(evidence["predicted_long_per_s"], rel=1e-9)
    assert told[FORECAST_TOPIC]["weight"] == pytest.approx(evidence["weight_short"], rel=1e-6)
    # The policy's target rate is half of the prediction and half of the present, as nothing waits.
    target = evidence["target_per_s"]
    assert (told[FORECAST_TOPIC]["per_s"] + load_at(count - 1)) / 2 == pytest.approx(target, rel=1e-9)


def test_both_are_weighed_by_the_error_of_the_other() -> None:
    told = by_topic(JobForecasts(SMALL).take(rows(0, 700)))
    short, long, both = told[SHORT_TOPIC], told[LONG_TOPIC], told[FORECAST_TOPIC]
    assert short["weight"] == pytest.approx(long["error"] / (short["error"] + long["error"]))
    assert short["weight"] + long["weight"] == pytest.approx(1.0)
    assert both["per_s"] == pytest.approx(short["weight"] * short["per_s"] + long["weight"] * long["per_s"])
    assert (short["model"], long["model"], both["model"]) == ("line", "holt-winters", "short+long")


def test_a_forecast_says_when_it_was_made_and_for_when() -> None:
    told = JobForecasts(SMALL).take(rows(0, 20))
    assert {answer["made_at_unix_s"] for answer in told} == {ZERO_UNIX_S + 200.0}
    assert {answer["for_unix_s"] for answer in told} == {ZERO_UNIX_S + 200.0 + 30.0}


def test_forecasts_are_told_once_for_each_sample() -> None:
    forecasts = JobForecasts(ForecastSettings())  # samples of a minute, from reports every ten seconds
    told = [len(forecasts.take([row])) > 0 for row in rows(0, 36)]
    assert [number for number, new in enumerate(told, start=1) if new] == [18, 24, 30, 36]  # a line needs three
    assert forecasts.take([]) == []


def test_with_too_few_samples_nothing_is_told() -> None:
    assert JobForecasts(SMALL).take(rows(0, 2)) == []


@pytest.mark.parametrize("cut", [1, 5, 300, 601])
def test_it_goes_on_where_it_was_saved(cut: int) -> None:
    whole, saved = JobForecasts(SMALL), JobForecasts(SMALL)
    whole.take(rows(0, cut))
    saved.take(rows(0, cut))
    for first in range(cut, cut + 30, 3):
        again = forecasts_of(SMALL)()
        again.load(saved.save())
        expected = whole.take(rows(first, first + 3))
        assert again.take(rows(first, first + 3)) == expected
        saved = again  # type: ignore[assignment]  # what it makes


def test_how_rows_are_cut_into_batches_does_not_matter() -> None:
    one, many = JobForecasts(SMALL), JobForecasts(SMALL)
    at_once = by_topic(one.take(rows(0, 640)))
    last: list[Answer] = []
    for first in range(0, 640, 7):
        last = many.take(rows(first, min(640, first + 7))) or last
    for topic, answer in by_topic(last).items():
        assert {**answer, "line": 0} == {**at_once[topic], "line": 0}


def test_what_is_saved_is_small() -> None:
    forecasts = JobForecasts(ForecastSettings())
    forecasts.take([{**row, "window_s": 60.0, "at_unix_s": 60.0 * row["line"]} for row in rows(0, 12_000)])
    assert len(forecasts.save()) < 16_000


def test_what_is_no_saved_forecast_is_refused() -> None:
    saved = json.loads(JobForecasts(SMALL).save())
    with pytest.raises(BadInputError, match="the saved forecasts have format 0"):
        JobForecasts(SMALL).load(json.dumps({**saved, "format": 0}))
    with pytest.raises(BadInputError, match="damaged"):
        JobForecasts(SMALL).load(json.dumps({**saved, "predictions": {**saved["predictions"], "short": {}}}))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInputError, match="horizon must be at most 1800 s"):
        ForecastSettings(horizon_s=3600.0)


def test_the_service_reads_what_reports_are_told_with() -> None:
    service = forecast_service(SMALL)
    envelope = Envelope(
        job="a",
        run="r",
        line=1,
        program=None,
        row=ReportRow(**{**dict.fromkeys(field_names(ReportRow)), "at_unix_s": 1.0}),  # type: ignore[arg-type]  # only its names matter
    )
    fields = {field.split()[0] for field in service.fields.split(", ")}
    assert fields <= set(json.loads(envelope.to_json()))
    assert set(service.columns) <= fields
