"""Money: what a configuration costs while it runs, and what it costs to get there."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core import ChangeCost, Configuration, Prices
from tidewise.core.checks import require_finite
from tidewise.qos.candidates import Candidates, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is paid for in every configuration: the driver and the controller."""

    cores: float = 0.0
    memory_mib: float = 0.0

    def __post_init__(self) -> None:
        require_finite("cores", self.cores, least=0.0)
        require_finite("memory_mib", self.memory_mib, least=0.0)


def cost_per_hour(candidates: Candidates, prices: Prices, standing: Standing) -> Floats:
    """What an hour of each row costs, driver and controller included."""
    always = prices.cost(core_s=3600.0 * standing.cores, memory_mib_s=3600.0 * standing.memory_mib)
    return candidates.cost_per_hour(prices) + always


def cost_of_change(source: Configuration, target: Configuration, change: ChangeCost, prices: Prices) -> float:
    """What a change costs beyond the running of the job: the double running, and what is paid for during its gap."""
    hour_s = 3600.0
    double = prices.per_hour(target) * change.preparation_s / hour_s if change.runs_double else 0.0
    return double + max(prices.per_hour(source), prices.per_hour(target)) * change.gap_s / hour_s
