"""The cheapest configuration that keeps the promises; where none does, which promise fails and what comes nearest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidewise.core import Configuration, Promises, Reason, format_duration
from tidewise.core.checks import require
from tidewise.qos import Candidates, Floats
from tidewise.qos.model import Outlook
from tidewise.search.promises import Keeping, Promise, in_words, keeping, promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to run."""

    row: int
    configuration: Configuration
    cost_per_hour: float
    probability: float
    """That it keeps every promise."""
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """No configuration keeps every promise with the probability asked."""

    promise: Promise
    """The one that fails."""
    row: int
    nearest: Configuration
    """The one most likely to keep all; among equals the one that misses by least, then the cheapest."""
    probability: float
    """That the nearest keeps every promise."""
    reason: Reason


def cheapest(
    candidates: Candidates, outlook: Outlook, promises: Promises, *, confidence: float = 0.9
) -> Choice | Infeasible:
    """The cheapest that keeps all promises with this probability; between equally cheap ones the more certain."""
    require(0.0 < confidence < 1.0, f"the confidence must lie between 0 and 1, not {confidence:g}")
    kept = keeping(outlook, promises)
    cost = outlook.cost_per_hour
    sure = np.flatnonzero(kept.together >= confidence)
    if len(sure) == 0:
        return _infeasible(candidates, outlook, promises, kept, confidence)
    row = int(sure[np.lexsort((-kept.together[sure], cost[sure]))[0]])
    probability = float(kept.together[row])
    return Choice(
        row=row,
        configuration=candidates[row],
        cost_per_hour=float(cost[row]),
        probability=probability,
        reason=Reason(
            code="cheapest-that-keeps",
            sentence=f"{candidates[row]} is the cheapest of {len(candidates)} configurations that keep every promise "
            f"with at least {confidence:.0%}: it does with {probability:.0%}",
            evidence={"probability": probability, "cost_per_hour": float(cost[row]), "sure": len(sure)},
        ),
    )


def _infeasible(
    candidates: Candidates, outlook: Outlook, promises: Promises, kept: Keeping, confidence: float
) -> Infeasible:
    row = int(np.lexsort((outlook.cost_per_hour, _excess(outlook, promises), -kept.log_together))[0])
    # The promise that nothing keeps; where each is kept by something, the one that the nearest is least likely to keep.
    hardest = min(kept.each, key=lambda promise: float(kept.each[promise].max()))
    if kept.each[hardest].max() >= confidence:
        hardest = min(kept.each, key=lambda promise: float(kept.each[promise][row]))
        opening = f"no configuration keeps all promises at once with {confidence:.0%}, and what fails is to keep"
    else:
        opening = f"with {confidence:.0%} no configuration keeps"
    beliefs = promised(outlook, promises)
    expected = f", about {format_duration(float(beliefs[hardest][0].median[row]))}" if hardest in beliefs else ""
    probability = float(kept.each[hardest][row])
    return Infeasible(
        promise=hardest,
        row=row,
        nearest=candidates[row],
        probability=float(kept.together[row]),
        reason=Reason(
            code="no-configuration-keeps",
            sentence=f"{opening} {in_words(hardest, promises)}: the nearest, {candidates[row]}, does with "
            f"{probability:.0%}{expected}",
            evidence={"promise": hardest.value, "probability": float(kept.together[row]), "confidence": confidence},
        ),
    )


def _excess(outlook: Outlook, promises: Promises) -> Floats:
    """By how many e-folds each candidate is expected to miss its limits, all together."""
    total = np.zeros(len(outlook.cost_per_hour))
    for belief, limit in promised(outlook, promises).values():
        total += np.maximum(0.0, belief.log_mean - np.log(limit))
    return total
