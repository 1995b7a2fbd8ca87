"""Which profile is worth its price: what it is expected to save over the horizon, less the cost of running it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from tidewise.core import Configuration, Prices, Promises, Reason, format_duration
from tidewise.core.checks import require, require_finite
from tidewise.qos import Belief, Candidates, Floats
from tidewise.qos.belief import LEAST_SD
from tidewise.qos.model import Outlook
from tidewise.search.choice import Choice, cheapest
from tidewise.search.promises import Promise, promised


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The profiles to run, the most valuable first; none where nothing is worth its price."""

    rows: tuple[int, ...]
    configurations: tuple[Configuration, ...]
    expected_saving: float
    """Over the horizon, in the currency of the prices, before the price of the profiles."""
    price: float
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a profile costs, and what it can tell."""

    horizon_s: float
    """For how long a cheaper configuration would be run."""
    profile_s: float = 240.0
    """How long a copy runs: coming up, settling, being measured, recovering."""
    measures_recovery: bool = True
    """Whether the copies are broken on purpose."""
    noise: float = 0.1
    """Spread of the logarithm of what a profile measures around what is usual; that of one failure comes on top."""
    confidence: float = 0.9
    """With what probability a configuration has to keep all promises to be run."""

    def __post_init__(self) -> None:
        require_finite("horizon_s", self.horizon_s, above=0.0)
        require_finite("profile_s", self.profile_s, above=0.0)
        require_finite("noise", self.noise, above=0.0)
        require(0.0 < self.confidence < 1.0, f"the confidence must lie between 0 and 1, not {self.confidence:g}")


def ask(
    candidates: Candidates, outlook: Outlook, promises: Promises, prices: Prices, *, terms: Terms, count: int = 1
) -> Ask:
    """At most `count` profiles whose expected saving is more than their price.

    Without a profile the cheapest that is trusted now is run, or the dearest where none is. A profile may show that a
    cheaper one can be trusted. The outcomes of several profiles are taken as independent, and what one tells of its
    neighbours is not counted.
    """
    require(count >= 1, f"at least one profile has to be asked for, not {count}")
    cost = outlook.cost_per_hour
    chosen = cheapest(candidates, outlook, promises, confidence=terms.confidence)
    now = chosen.cost_per_hour if isinstance(chosen, Choice) else float(cost.max())
    hours = terms.horizon_s / 3600.0
    price = cost * terms.profile_s / 3600.0
    success = _success(outlook, promises, terms)
    # What will be run, as far as it is known: its possible costs with their probabilities.
    outcomes, shares = np.array([now]), np.array([1.0])
    rows: list[int] = []
    saving = 0.0
    while len(rows) < count:
        saved = hours * success * (np.maximum(outcomes[:, None] - cost, 0.0) * shares[:, None]).sum(axis=0)
        net = saved - price
        net[rows] = -np.inf
        best = int(np.argmax(net))
        if net[best] <= 0.0:
            break
        rows.append(best)
        saving += float(saved[best])
        beaten = np.where(outcomes > cost[best], shares * success[best], 0.0)
        outcomes = np.append(outcomes, cost[best])
        shares = np.append(shares - beaten, beaten.sum())
    paid = float(price[rows].sum())
    return Ask(
        rows=tuple(rows),
        configurations=tuple(candidates[row] for row in rows),
        expected_saving=saving,
        price=paid,
        reason=_reason(rows, success, saving, paid, candidates, currency=prices.currency, horizon_s=terms.horizon_s),
    )


def _success(outlook: Outlook, promises: Promises, terms: Terms) -> Floats:
    """How likely each candidate is to be trusted after a profile of it."""
    limits = promised(outlook, promises)
    # Each promise gets its share of the confidence, memory too.
    level = terms.confidence ** (1.0 / (len(limits) + 1))
    success = 1.0 - outlook.out_of_memory_probability
    for promise, (belief, limit) in limits.items():
        if promise is Promise.RECOVERY and not terms.measures_recovery:
            success = success * (belief.probability_at_most(limit) >= level)
        elif promise is Promise.RECOVERY:
            stays = outlook.recovery_noise
            noise = np.hypot(terms.noise, stays)  # a copy is broken once, and one failure is not like the next
            success = success * _trusted_after(belief, limit, level=level, noise=noise, stays=stays)
        else:
            stays = outlook.latency_noise
            success = success * _trusted_after(belief, limit, level=level, noise=terms.noise, stays=stays)
    return np.asarray(success)


def _trusted_after(belief: Belief, limit: float, *, level: float, noise: float | Floats, stays: Floats) -> Floats:
    """How likely a measurement is to leave no more doubt than the level allows: the belief before the belief after.

    `noise`: spread of the measurement around what is usual. `stays`: the part of the belief's spread that belongs to
    the quantity itself, which no measurement takes away.
    """
    doubt = np.maximum(belief.log_sd**2 - stays**2, 0.0)
    moves = doubt / np.sqrt(doubt + noise**2)  # how far the mean is expected to move
    left = np.sqrt(doubt * noise**2 / (doubt + noise**2) + stays**2)
    room = np.log(limit) - belief.log_mean - float(ndtri(level)) * left
    certain = moves < LEAST_SD
    trusted: Floats = np.where(certain, room >= 0.0, ndtr(room / np.where(certain, 1.0, moves)))
    # What has no end is not trusted by whatever was measured.
    return trusted if belief.never is None else trusted * (1.0 - belief.never)


def _reason(
    rows: list[int],
    success: Floats,
    saving: float,
    price: float,
    candidates: Candidates,
    *,
    currency: str,
    horizon_s: float,
) -> Reason:
    horizon = format_duration(horizon_s)
    if not rows:
        return Reason(
            code="no-profile-pays",
            sentence=f"no profile is expected to save its own price within {horizon}",
            evidence={"horizon_s": horizon_s},
        )
    probability = float(success[rows[0]])
    worth = f"{price:.3g} {currency} and is expected to save {saving:.3g} {currency} within {horizon}"
    first = candidates[rows[0]]
    sentence = f"a profile of {first} costs {worth}: it turns out to keep every promise with {probability:.0%}"
    if len(rows) > 1:
        sentence = f"profiling {len(rows)} configurations costs {worth}: the first, {first}, turns out to keep every "
        sentence += f"promise with {probability:.0%}"
    evidence = {"expected_saving": saving, "price": price, "horizon_s": horizon_s, "probability": probability}
    return Reason(code="profile-pays", sentence=sentence, evidence=evidence)
