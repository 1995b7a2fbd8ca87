"""The opponent that every autoscaler has to beat: the best constant configuration, found in hindsight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidewise.core import Configuration, Decision, Observation, Situation
from tidewise.policies.static import hold


@dataclass(frozen=True, slots=True, kw_only=True)
class BestFixed:
    """Holds the cheapest constant configuration that keeps the promises over the whole run.

    Which one that is can be known in hindsight only: an experiment tries the constant configurations on the same load
    and faults and passes the winner in. It is the honest opponent because it removes the easiest way to look good:
    against a cluster sized for the worst hour with room to spare, anything saves money. A person who knew the load
    would have chosen this one, without any software; what an autoscaler saves beyond it is earned by moving with the
    load, and an autoscaler that does not save anything beyond it is not worth its risk.
    """

    name: ClassVar[str] = "best-fixed"

    configuration: Configuration
    """What hindsight found."""

    @property
    def history_s(self) -> float:
        return 0.0

    def learn(self, observation: Observation) -> None:
        """Nothing to learn: everything is known already."""

    def decide(self, situation: Situation) -> Decision:
        return hold(situation, self.configuration, mechanism=None)
