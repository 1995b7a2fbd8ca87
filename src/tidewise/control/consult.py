"""Asks the policy and the forecaster, neither of which may take the job down with it, whatever it raises."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Integral, Real

from tidewise.core import (
    Decision,
    Forecast,
    Forecaster,
    Keep,
    NotReadyError,
    Observation,
    Policy,
    Profile,
    Reason,
    Reconfigure,
    Situation,
)

_MESSAGE_CHARACTERS = 500
_FORECAST_DIGITS = 4
"""More than any forecast knows; all digits would make forecasts most of a journal."""


class Consultant:
    """A policy and its forecaster behind a wall: what they raise becomes a decision to keep, with the reason."""

    def __init__(
        self,
        *,
        policy: Policy,
        forecaster: Forecaster | None,
        horizon_s: float,
        step_s: float,
        every_s: float,
    ) -> None:
        self.policy = policy
        self._forecaster = forecaster
        self._horizon_s = horizon_s
        self._step_s = step_s
        self._every_s = every_s
        self._learning_failed: Keep | None = None
        self._last: Forecast | None = None

    def learn(self, observation: Observation) -> None:
        """Hand an observation to both; a failure is told with the next decision."""
        try:
            self.policy.learn(observation)
        except Exception as error:  # noqa: BLE001 - an outside policy may raise anything; told by the next decision
            self._learning_failed = _failed("policy", self.policy.name, error)
        if self._forecaster is None:
            return
        try:
            self._forecaster.learn(observation)
        except Exception as error:  # noqa: BLE001 - an outside forecaster may raise anything; told as above
            self._learning_failed = _failed("forecaster", self._forecaster.name, error)

    def told(self) -> None:
        """A decision was made: a failure in learning before it is in the journal."""
        self._learning_failed = None

    def decide(self, situation: Situation) -> tuple[Decision, Forecast | None]:
        """The policy's decision in this situation, to which the forecast is added, and that forecast."""
        failed, self._learning_failed = self._learning_failed, None
        if failed is not None:
            return failed, None
        try:
            forecast = self._forecast(situation.now_s)
        except Exception as error:  # noqa: BLE001 - an outside forecaster may raise anything; the journal tells
            name = "the forecaster" if self._forecaster is None else self._forecaster.name
            return _failed("forecaster", name, error), None
        try:
            decision = self.policy.decide(replace(situation, forecast=forecast))
            if not isinstance(decision, Keep | Reconfigure | Profile):
                raise TypeError(f"a policy must decide, not answer {type(decision).__name__}")  # noqa: TRY301 - told as any other failure of the policy
        except NotReadyError as error:
            sentence = f"The policy {self.policy.name} needs more data before it can decide: {_message(error)}."
            return Keep(reason=Reason(code="policy-not-ready", sentence=sentence)), forecast
        except Exception as error:  # noqa: BLE001 - an outside policy may raise anything; the journal tells
            return _failed("policy", self.policy.name, error), forecast
        return replace(decision, reason=plain(decision.reason)), forecast

    def _forecast(self, now_s: float) -> Forecast | None:
        """A new one where the last is as old as it may be."""
        if self._forecaster is None:
            return None
        if self._last is not None and self._last.made_at_s <= now_s < self._last.made_at_s + self._every_s:
            return self._last
        try:
            forecast = self._forecaster.forecast(horizon_s=self._horizon_s, step_s=self._step_s)
        except NotReadyError:
            return None
        # Rounded here, not in the journal: the policy decides on what is written down.
        paths_per_s = tuple(tuple(map(_rounded, path)) for path in forecast.paths_per_s)
        self._last = replace(forecast, paths_per_s=paths_per_s)
        return self._last


def _rounded(rate_per_s: float) -> float:
    return float(f"{rate_per_s:.{_FORECAST_DIGITS}g}")


def _message(error: Exception) -> str:
    return plain_text(str(error))[:_MESSAGE_CHARACTERS] or "no message"


def _failed(who: str, name: str, error: Exception) -> Keep:
    kind, message = type(error).__name__, _message(error)
    sentence = f"The {who} {plain_text(name)} failed with {kind}: {message}. The job stays as it is."
    evidence = {"exception": kind, "message": message}
    return Keep(reason=Reason(code=f"{who}-failed", sentence=sentence, evidence=evidence))


def plain_text(text: str) -> str:
    """The text as it will be read back from the journal."""
    # Half a surrogate pair has no UTF-8, and would keep the whole decision out of the journal.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain_value(value: object) -> float | int | str | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else None
    return plain_text(str(value))


def plain(reason: Reason) -> Reason:
    """The reason as it will be read back from the journal: numbers of the standard library; unknown is None."""
    evidence = {plain_text(str(name)): _plain_value(value) for name, value in reason.evidence.items()}
    return replace(reason, sentence=plain_text(reason.sentence), evidence=evidence)
