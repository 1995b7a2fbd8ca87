"""Which configurations to profile next: those that promise to move the front of cost and quality the most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from tidewise.core import BadInputError, Configuration, Measured, Prices, Promises
from tidewise.core import saved as saved_state
from tidewise.core.checks import require_finite
from tidewise.core.readers import did_you_mean
from tidewise.host.threads import on_one_thread
from tidewise.qos import Candidates, Floats
from tidewise.search.closer_look import Search
from tidewise.search.pareto import Rows
from tidewise.search.rgpe import EnsembleModel
from tidewise.search.surrogate import LATENCY, RECOVERY, ContextualModel, Profiled, is_same_load, places_of

Method = Literal["contextual", "ensemble"]

_MODELS: Mapping[str, type[ContextualModel | EnsembleModel]] = {
    "contextual": ContextualModel,
    "ensemble": EnsembleModel,
}

FORMAT = 1
"""The version of what a profiler saves."""

_MOST_PROFILES = 400
"""So many of the last profiles are kept: more would teach little and cost time."""
_ANCHORS = 64
"""So many of the last profiles at a load make its front."""


class Profiler:
    """Learns from profiles, and says which to run next at a load.

    The front is that of cost against latency (against recovery time where only that is promised), up to the limit
    promised; what is promised of the other counts by the probability that it is kept, once any was measured.
    """

    def __init__(self, *, promises: Promises, prices: Prices, method: Method = "contextual", seed: int = 0) -> None:
        self._prices = prices
        self._seed = seed
        self._profiles: list[Profiled] = []
        limits = {LATENCY: promises.latency_p95_s, RECOVERY: promises.recovery_s}
        self._limits = {quantity: math.log(limit) for quantity, limit in limits.items() if limit is not None}
        self._objective = LATENCY if LATENCY in self._limits else RECOVERY
        if method not in _MODELS:
            raise BadInputError(f"there is no search method {method!r}{did_you_mean(method, _MODELS)}")
        self._method = method
        self._models = self._new_models()
        self._is_stale = False

    def observe(
        self,
        configuration: Configuration,
        *,
        rate_per_s: float,
        latency_s: Measured | None,
        recovery_s: Measured | None,
    ) -> None:
        """Take one profile in; a value that was not measured is None."""
        self._profiles.append(
            Profiled(configuration=configuration, rate_per_s=rate_per_s, latency_s=latency_s, recovery_s=recovery_s)
        )
        del self._profiles[:-_MOST_PROFILES]
        self._is_stale = True

    def save(self) -> dict[str, object]:
        """What was learnt, as a JSON file can hold it."""
        return {"format": FORMAT, "profiles": [each.to_plain() for each in self._profiles]}

    def load(self, saved: Mapping[str, object]) -> None:
        """Learn what was saved, in place of all that is known; BadInputError for another version's or a damaged one."""
        saved_state.check_format(saved, version=FORMAT, what="the saved profiles have", instead="profile anew")
        profiles = saved.get("profiles")
        if not isinstance(profiles, list):
            raise BadInputError("the saved profiles are damaged (they are not a list): profile anew")
        self._profiles = [Profiled.from_plain(each) for each in profiles][-_MOST_PROFILES:]
        self._models = self._new_models()  # what the old ones learnt is not to colour the new
        self._is_stale = True

    def fit(self) -> None:
        """Seek the hyperparameters of all models anew; `suggest` does so by itself where it is needed."""
        self._learn(anew=True)

    @on_one_thread
    def suggest(self, candidates: Candidates, *, rate_per_s: float, count: int = 1) -> Rows:
        """The rows to profile at this load, the most promising first; each is chosen as if those before were run."""
        require_finite("rate_per_s", rate_per_s, above=0.0)
        if not 1 <= count <= len(candidates):
            raise BadInputError(
                f"{count} of {len(candidates)} candidates cannot be suggested: ask for fewer, at least 1"
            )
        if self._is_stale:
            self._learn(anew=False)
        views = {name: model.at(rate_per_s) for name, model in self._models.items()}
        known = {name: view for name, view in views.items() if view is not None}
        places = places_of(candidates)
        if self._objective not in known:
            return spread_out(places, count)
        here = [each.configuration for each in self._profiles if is_same_load(each.rate_per_s, rate_per_s)]
        anchors = Candidates.listing(list(dict.fromkeys(here[::-1]))[:_ANCHORS]) if here else None
        search = Search(
            known,
            self._limits,
            objective=self._objective,
            places=places,
            log_cost=np.log(candidates.cost_per_hour(self._prices)),
            anchor_places=places[:0] if anchors is None else places_of(anchors),
            anchor_log_cost=np.empty(0) if anchors is None else np.log(anchors.cost_per_hour(self._prices)),
            seed=self._seed,
        )
        return search.best(count)

    def _new_models(self) -> Mapping[str, ContextualModel | EnsembleModel]:
        kind = _MODELS[self._method]
        return {name: kind(name, log_limit=limit, seed=self._seed) for name, limit in self._limits.items()}

    def _learn(self, *, anew: bool) -> None:
        for model in self._models.values():
            model.fit(self._profiles, anew=anew)
        self._is_stale = False


def spread_out(places: Floats, count: int) -> Rows:
    """Where nothing is known: the middle, then each time what lies farthest from all that was taken."""
    distance = ((places - np.median(places, axis=0)) ** 2).sum(axis=1)
    chosen = [int(np.argmin(distance))]
    farthest = np.full(len(places), math.inf)
    while len(chosen) < count:
        farthest = np.minimum(farthest, ((places - places[chosen[-1]]) ** 2).sum(axis=1))
        farthest[chosen[-1]] = -math.inf
        chosen.append(int(np.argmax(farthest)))
    return np.array(chosen, dtype=np.int64)
