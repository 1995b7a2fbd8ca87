from __future__ import annotations

import numpy as np
import pytest

from tests.search.problems import PRICES, outlook_of, table, truth
from tidewise.core import Promises
from tidewise.qos import Belief
from tidewise.qos.model import Outlook
from tidewise.search import Choice, Terms, ask, cheapest
from tidewise.search.ask import _trusted_after

TABLE = table()
LATENCY_S, RECOVERY_S = truth(TABLE, 20_000.0)
PROMISES = Promises(latency_p95_s=2.0, recovery_s=90.0)
DAY = Terms(horizon_s=86_400.0)


def outlook(log_sd: float) -> Outlook:
    return outlook_of(TABLE, latency_s=LATENCY_S, recovery_s=RECOVERY_S, log_sd=log_sd)


def test_a_profile_that_may_show_a_cheaper_configuration_is_worth_its_price() -> None:
    asked = ask(TABLE, outlook(0.3), PROMISES, PRICES, terms=DAY)
    now = cheapest(TABLE, outlook(0.3), PROMISES)
    assert isinstance(now, Choice)
    assert len(asked.rows) == 1
    assert asked.configurations == (TABLE[asked.rows[0]],)
    assert outlook(0.3).cost_per_hour[asked.rows[0]] < now.cost_per_hour
    assert asked.expected_saving > asked.price > 0.0
    assert "a profile of" in asked.reason.sentence


def test_where_everything_is_known_no_profile_pays() -> None:
    asked = ask(TABLE, outlook(0.0), PROMISES, PRICES, terms=DAY)
    assert asked.rows == ()
    assert asked.expected_saving == asked.price == 0.0
    assert asked.reason.code == "no-profile-pays"


def test_where_nothing_would_run_long_enough_no_profile_pays() -> None:
    assert ask(TABLE, outlook(0.3), PROMISES, PRICES, terms=Terms(horizon_s=60.0)).rows == ()


def test_more_profiles_save_more_but_less_each() -> None:
    savings = [
        ask(TABLE, outlook(0.3), PROMISES, PRICES, terms=DAY, count=count).expected_saving for count in (1, 2, 3)
    ]
    assert savings[0] < savings[1] < savings[2]
    assert savings[2] - savings[1] <= savings[1] - savings[0]


def test_a_batch_saves_what_sampling_says() -> None:
    asked = ask(TABLE, outlook(0.3), PROMISES, PRICES, terms=DAY, count=3)
    now = cheapest(TABLE, outlook(0.3), PROMISES)
    assert isinstance(now, Choice)
    cost = outlook(0.3).cost_per_hour
    level = 0.9 ** (1 / 3)
    chance = np.ones(len(TABLE))
    for belief, limit in ((outlook(0.3).latency_p95, 2.0), (outlook(0.3).recovery, 90.0)):
        chance = chance * _trusted_after(belief, limit, level=level, noise=0.1, stays=np.zeros(len(TABLE)))
    rng = np.random.default_rng(0)
    trusted = rng.random((100_000, 3)) < chance[list(asked.rows)]
    run = np.where(trusted, cost[list(asked.rows)], now.cost_per_hour).min(axis=1)
    assert asked.expected_saving == pytest.approx(
        24.0 * (now.cost_per_hour - np.minimum(run, now.cost_per_hour)).mean(), rel=0.02
    )


@pytest.mark.parametrize("stays", [0.0, 0.1, 0.25])
@pytest.mark.parametrize("median", [1.3, 1.8])
def test_the_belief_after_a_profile_is_foreseen_as_sampling_foresees_it(median: float, stays: float) -> None:
    mean, doubt, noise = np.log(median), 0.3, 0.2
    rng = np.random.default_rng(0)
    measured = mean + doubt * rng.standard_normal(200_000) + noise * rng.standard_normal(200_000)
    share = doubt**2 / (doubt**2 + noise**2)
    after = mean + share * (measured - mean)
    left = np.sqrt(doubt**2 * (1.0 - share) + stays**2)
    believed = Belief(after, np.full(len(after), left)).probability_at_most(2.0) >= 0.9
    before = Belief(np.array([mean]), np.array([np.hypot(doubt, stays)]))
    told = _trusted_after(before, 2.0, level=0.9, noise=noise, stays=np.array([stays]))
    assert told[0] == pytest.approx(believed.mean(), abs=0.01)


def test_a_spread_that_no_measurement_takes_away_is_not_worth_measuring() -> None:
    doubtful, restless = (
        outlook_of(TABLE, latency_s=LATENCY_S, recovery_s=RECOVERY_S, log_sd=0.3, noise=noise) for noise in (0.0, 0.3)
    )
    assert ask(TABLE, doubtful, PROMISES, PRICES, terms=DAY).rows
    assert ask(TABLE, restless, PROMISES, PRICES, terms=DAY, count=5).rows == ()


def test_the_more_of_a_spread_stays_the_less_a_profile_saves() -> None:
    savings = []
    for noise in (0.0, 0.1, 0.2):
        believed = outlook_of(TABLE, latency_s=LATENCY_S, recovery_s=RECOVERY_S, log_sd=0.3, noise=noise)
        savings.append(ask(TABLE, believed, PROMISES, PRICES, terms=DAY).expected_saving)
    assert savings[0] > savings[1] > savings[2]


def test_without_a_failure_a_doubtful_recovery_stays_doubtful() -> None:
    terms = Terms(horizon_s=86_400.0, measures_recovery=False)
    asked = ask(TABLE, outlook(0.3), PROMISES, PRICES, terms=terms, count=5)
    sure = outlook(0.3).recovery.probability_at_most(90.0) >= 0.9 ** (1 / 3)
    assert all(sure[row] for row in asked.rows)


def test_where_nothing_is_trusted_the_dearest_is_what_a_profile_saves() -> None:
    asked = ask(TABLE, outlook(2.0), PROMISES, PRICES, terms=DAY)
    assert len(asked.rows) == 1
