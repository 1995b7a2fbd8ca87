"""The policy that never tunes: what most streaming jobs have today, and the first thing to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewise.core import Configuration, Decision, InvalidValueError, Mechanism, Observation, Situation
from tidewise.policies.replies import keep, move, not_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """Holds one configuration, whatever the load.

    With neither setting it leaves the job as it finds it. With one of them it moves the job there once, and back
    again whenever something else is seen to run. Executors that the engine is replacing are not something else.
    """

    name: ClassVar[str] = "static"

    configuration: Configuration | None = None
    """What to hold; the nearest configuration of the space where it lies outside."""
    executors: int | None = None
    """How many executors to hold, everything else as it is; the short way to say `configuration`."""
    mechanism: Mechanism | None = None
    """How to move there; none leaves it to the engine."""

    def __post_init__(self) -> None:
        if self.configuration is not None and self.executors is not None:
            raise InvalidValueError("give configuration or executors, not both")
        if self.executors is not None and self.executors < 1:
            raise InvalidValueError(f"executors must be at least 1, not {self.executors}")

    @property
    def history_s(self) -> float:
        return 0.0

    def learn(self, observation: Observation) -> None:
        """Nothing to learn."""

    def decide(self, situation: Situation) -> Decision:
        if self.executors is not None:
            target = situation.space.with_at_least(situation.intended, self.executors)
            return hold(situation, target, mechanism=self.mechanism)
        if self.configuration is None:
            return keep("static", f"The job is to stay as it was started: {situation.intended}.")
        return hold(situation, self.configuration, mechanism=self.mechanism)


def hold(situation: Situation, wanted: Configuration, *, mechanism: Mechanism | None) -> Decision:
    """Keep where the wanted configuration is in place; otherwise the way to it, or to its neighbour in the space."""
    target = wanted if wanted in situation.space else _inside(situation, wanted)
    if target == situation.intended:
        if situation.observed == situation.intended:
            return keep("static", f"The job is to stay at {target}, and does.")
        return keep("static", f"The job is to stay at {target}; the engine is bringing back what is missing.")
    waiting = not_now(situation)
    if waiting is not None:
        return waiting
    sentence = f"The job is to stay at {wanted}, but {situation.intended} runs."
    if target != wanted:
        sentence += f" The nearest that the space allows is {target}."
    return move(situation, target, mechanism=mechanism, code="return-to-static", sentence=sentence)


def _inside(situation: Situation, wanted: Configuration) -> Configuration:
    # Where only the executors were chosen, the rest is what runs: not this policy's to correct.
    rest_runs = wanted.with_executors(situation.intended.executors) == situation.intended
    return wanted if rest_runs and wanted.executors in situation.space.executors else situation.space.nearest(wanted)
