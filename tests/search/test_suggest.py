from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.search.problems import PRICES, table, truth
from tidewise.core import BadInputError, Censored, InvalidValueError, Promises
from tidewise.qos import Candidates, Floats
from tidewise.search import Profiler, hypervolume
from tidewise.search.suggest import Method
from tidewise.search.surrogate import places_of

TABLE = table()
TARGET = 17_500.0
PROMISES = Promises(latency_p95_s=2.0, recovery_s=90.0)
COST = np.log(TABLE.cost_per_hour(PRICES))


def observe(profiler: Profiler, rate: float, row: int, rng: np.random.Generator) -> None:
    latency_s, recovery_s = truth(TABLE, rate)
    noise = np.exp(0.03 * rng.standard_normal(2))
    recovery = float(recovery_s[row] * noise[1])
    profiler.observe(
        TABLE[row],
        rate_per_s=rate,
        latency_s=float(latency_s[row] * noise[0]),
        recovery_s=Censored(at_least=300.0) if recovery > 300.0 else recovery,
    )


def informed(
    *, promises: Promises = PROMISES, method: Method = "contextual", seed: int = 0, loads: int = 4
) -> Profiler:
    profiler = Profiler(promises=promises, prices=PRICES, method=method, seed=seed)
    rng = np.random.default_rng(seed)
    for rate in np.geomspace(9_000.0, 30_000.0, loads).tolist():
        for row in rng.integers(len(TABLE), size=10).tolist():
            observe(profiler, rate, row, rng)
    return profiler


def regret(rows: list[int]) -> float:
    latency_s, recovery_s = truth(TABLE, TARGET)
    kept = (latency_s <= 2.0) & (recovery_s <= 90.0)

    def found(of: list[int]) -> float:
        good = np.array([row for row in of if kept[row]], dtype=np.int64)
        return hypervolume(
            COST[good], np.log(latency_s[good]), cost_limit=float(COST.max()), value_limit=float(np.log(2.0))
        )

    return 1.0 - found(rows) / found(list(range(len(TABLE))))


def searched(suggest: Callable[[Profiler], int], profiler: Profiler, *, seed: int, steps: int) -> float:
    rng = np.random.default_rng([seed, 1])
    rows: list[int] = []
    for _ in range(steps):
        rows.append(suggest(profiler))
        observe(profiler, TARGET, rows[-1], rng)
    return regret(rows)


@pytest.mark.parametrize("method", ["contextual", "ensemble"])
def test_the_front_is_found_faster_than_by_chance(method: Method) -> None:
    ours, chance = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        ours.append(
            searched(
                lambda profiler: int(profiler.suggest(TABLE, rate_per_s=TARGET)[0]),
                informed(method=method, seed=seed),
                seed=seed,
                steps=8,
            )
        )
        chance += [regret(rng.integers(len(TABLE), size=8).tolist()) for _ in range(20)]
    assert np.mean(ours) < 0.4 * np.mean(chance)


def test_a_batch_has_no_repeats_and_covers_more_than_its_first() -> None:
    rows = informed().suggest(TABLE, rate_per_s=TARGET, count=6)
    assert len(set(rows.tolist())) == 6
    assert regret(rows.tolist()) < regret(rows[:1].tolist())
    assert len({round(float(COST[row]), 6) for row in rows}) > 1


def test_the_same_profiles_give_the_same_suggestions() -> None:
    first, second = (informed().suggest(TABLE, rate_per_s=TARGET, count=3) for _ in range(2))
    assert first.tolist() == second.tolist()


def test_asking_twice_changes_nothing() -> None:
    profiler = informed()
    first = profiler.suggest(TABLE, rate_per_s=TARGET, count=2)
    assert profiler.suggest(TABLE, rate_per_s=TARGET, count=2).tolist() == first.tolist()


def test_what_was_just_profiled_is_not_suggested_again() -> None:
    profiler = informed()
    rng = np.random.default_rng(0)
    seen: list[int] = []
    for _ in range(6):
        row = int(profiler.suggest(TABLE, rate_per_s=TARGET)[0])
        assert row not in seen
        seen.append(row)
        observe(profiler, TARGET, row, rng)


@pytest.mark.parametrize("promises", [Promises(latency_p95_s=2.0), Promises(recovery_s=90.0)])
def test_one_promise_is_enough(promises: Promises) -> None:
    row = int(informed(promises=promises).suggest(TABLE, rate_per_s=TARGET)[0])
    latency_s, recovery_s = truth(TABLE, TARGET)
    assert (latency_s[row] <= 2.4) if promises.recovery_s is None else (recovery_s[row] <= 110.0)


def test_recoveries_that_were_never_measured_do_not_stop_the_search() -> None:
    profiler = Profiler(promises=PROMISES, prices=PRICES)
    latency_s, _ = truth(TABLE, TARGET)
    for row in np.random.default_rng(0).integers(len(TABLE), size=15).tolist():
        profiler.observe(TABLE[row], rate_per_s=TARGET, latency_s=float(latency_s[row]), recovery_s=None)
    assert latency_s[int(profiler.suggest(TABLE, rate_per_s=TARGET)[0])] < 2.4


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_load_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(InvalidValueError, match="rate_per_s"):
        informed(loads=1).suggest(TABLE, rate_per_s=rate)


def test_where_nothing_is_known_the_suggestions_are_spread_out() -> None:
    rows = Profiler(promises=PROMISES, prices=PRICES).suggest(TABLE, rate_per_s=TARGET, count=5)
    assert len(set(rows.tolist())) == 5
    assert np.ptp(COST[rows]) > 0.5 * np.ptp(COST)


def test_where_no_promise_can_be_kept_the_most_likely_are_suggested() -> None:
    impossible = Promises(latency_p95_s=1e-9, recovery_s=1e-9)
    row = int(informed(promises=impossible).suggest(TABLE, rate_per_s=TARGET)[0])
    latency_s, _ = truth(TABLE, TARGET)
    assert latency_s[row] < np.quantile(latency_s, 0.3)


Surface = Callable[[Floats], Floats]
SURFACES: dict[str, Surface] = {
    "many executors": lambda axes: axes @ np.array([3.0, 1.0, 0.2, 0.2]),
    "few executors": lambda axes: -axes @ np.array([3.0, 1.0, 0.2, 0.2]),
    "large executors": lambda axes: axes @ np.array([0.5, 2.0, 2.0, 0.0]),
    "seldom commits": lambda axes: axes @ np.array([1.0, 0.5, 0.0, 2.0]),
    "often commits": lambda axes: axes @ np.array([1.0, 0.5, 0.0, -2.0]),
}


def plateau(surface: Surface, share: float) -> Floats:
    """Latencies of 1 s for this share of the rows, and equally bad ones for all the others."""
    axes = np.column_stack([np.log2(TABLE.executors) / 3.6, TABLE.cores_per_executor - 1.0,
                            TABLE.memory_mib_per_executor / 1024.0 - 1.0,
                            np.log(TABLE.commit_interval_s) / 3.0])  # fmt: skip
    height = surface(axes)
    return np.where(height >= np.quantile(height, 1.0 - share), 1.0, 32.8)


def steps_to_keep(profiler: Profiler, latency_s: Floats, *, limit_s: float, cut_at_s: float | None = None) -> int:
    seen: list[int] = []
    while len(seen) < len(TABLE):
        row = int(profiler.suggest(TABLE, rate_per_s=38_000.0)[0])
        assert row not in seen
        seen.append(row)
        value = float(latency_s[row])
        if value <= limit_s:
            return len(seen)
        is_cut = cut_at_s is not None and value > cut_at_s
        measured = Censored(at_least=cut_at_s or 0.0) if is_cut else value
        profiler.observe(TABLE[row], rate_per_s=38_000.0, latency_s=measured, recovery_s=None)
    raise AssertionError("nothing keeps the limit")


@pytest.mark.parametrize("method", ["contextual", "ensemble"])
@pytest.mark.parametrize("cut_at_s", [None, 20.0])
@pytest.mark.parametrize("limit_s", [4.0, 5.0, 8.0])
def test_where_all_that_was_seen_is_overloaded_the_search_goes_on(
    limit_s: float, cut_at_s: float | None, method: Method
) -> None:
    profiler = Profiler(promises=Promises(latency_p95_s=limit_s), prices=PRICES, method=method)
    assert steps_to_keep(profiler, truth(TABLE, 38_000.0)[0], limit_s=limit_s, cut_at_s=cut_at_s) <= 10


@pytest.mark.parametrize("method", ["contextual", "ensemble"])
@pytest.mark.parametrize("surface", SURFACES)
def test_a_plateau_is_left_wherever_its_edge_is(surface: str, method: Method) -> None:
    latency_s = plateau(SURFACES[surface], 0.08)
    profiler = Profiler(promises=Promises(latency_p95_s=5.0), prices=PRICES, method=method)
    assert steps_to_keep(profiler, latency_s, limit_s=5.0) <= 10


def test_on_a_plateau_a_batch_is_spread_out() -> None:
    profiler = Profiler(promises=Promises(latency_p95_s=5.0), prices=PRICES)
    latency_s, _ = truth(TABLE, 38_000.0)
    profiled = [85, 2]
    for row in profiled:
        profiler.observe(TABLE[row], rate_per_s=38_000.0, latency_s=float(latency_s[row]), recovery_s=None)
    rows = profiler.suggest(TABLE, rate_per_s=38_000.0, count=6).tolist()
    assert len({*rows, *profiled}) == 8
    assert np.ptp(COST[rows]) > 0.8 * np.ptp(COST)
    assert (latency_s[rows] <= 5.0).any()


def test_where_nothing_can_be_kept_everything_is_profiled_once_before_anything_twice() -> None:
    profiler = Profiler(promises=Promises(latency_p95_s=0.1), prices=PRICES)
    few = Candidates.listing([TABLE[row] for row in range(0, len(TABLE), 12)])
    seen = []
    for _ in range(len(few) + 2):
        seen.append(int(profiler.suggest(few, rate_per_s=TARGET)[0]))
        profiler.observe(few[seen[-1]], rate_per_s=TARGET, latency_s=30.0, recovery_s=None)
    assert sorted(seen[: len(few)]) == list(range(len(few)))


@pytest.mark.parametrize("method", ["contextual", "ensemble"])
def test_what_is_loaded_takes_the_place_of_all_that_was_learnt(method: Method) -> None:
    saved = informed(method=method, seed=1).save()
    fresh, used = (Profiler(promises=PROMISES, prices=PRICES, method=method) for _ in range(2))
    used.load(informed(method=method, seed=2).save())
    used.suggest(TABLE, rate_per_s=TARGET)
    means = []
    for profiler in (fresh, used):
        profiler.load(saved)
        profiler.suggest(TABLE, rate_per_s=TARGET)
        view = profiler._models["latency"].at(TARGET)
        assert view is not None
        means.append(view.joint(places_of(TABLE))[0])
    assert (means[0] == means[1]).all()


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(BadInputError, match="no search method 'contextal'; did you mean 'contextual'"):
        Profiler(promises=PROMISES, prices=PRICES, method="contextal")  # type: ignore[arg-type]  # that is the slip


def test_one_profile_is_enough_to_begin_with() -> None:
    profiler = Profiler(promises=PROMISES, prices=PRICES)
    observe(profiler, TARGET, 3, np.random.default_rng(0))
    assert 0 <= int(profiler.suggest(TABLE, rate_per_s=TARGET)[0]) < len(TABLE)


@pytest.mark.parametrize("count", [0, -1, 10_000])
def test_an_impossible_number_of_suggestions_is_refused(count: int) -> None:
    with pytest.raises(BadInputError, match="cannot be suggested"):
        informed(loads=1).suggest(TABLE, rate_per_s=TARGET, count=count)


def test_what_is_saved_suggests_the_same() -> None:
    profiler = informed()
    loaded = Profiler(promises=PROMISES, prices=PRICES)
    loaded.load(json.loads(json.dumps(profiler.save())))
    assert loaded.suggest(TABLE, rate_per_s=TARGET).tolist() == profiler.suggest(TABLE, rate_per_s=TARGET).tolist()


def test_profiles_saved_by_another_version_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"format 99 .* profile anew"):
        Profiler(promises=PROMISES, prices=PRICES).load({"format": 99, "profiles": []})
    with pytest.raises(BadInputError, match="damaged"):
        Profiler(promises=PROMISES, prices=PRICES).load({"format": 1, "profiles": None})


def test_memory_is_bounded() -> None:
    profiler = Profiler(promises=PROMISES, prices=PRICES)
    for number in range(1000):
        profiler.observe(TABLE[number % len(TABLE)], rate_per_s=1000.0 + number, latency_s=1.0, recovery_s=None)
    saved = profiler.save()["profiles"]
    assert isinstance(saved, list)
    assert len(saved) == 400
