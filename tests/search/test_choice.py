from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.search.problems import outlook_of, table, truth
from tidewise.core import InvalidValueError, Promises
from tidewise.qos import Candidates
from tidewise.qos.model import Outlook
from tidewise.search import Choice, Infeasible, Promise, cheapest, keeping

TABLE = table()
LATENCY_S, RECOVERY_S = truth(TABLE, 20_000.0)
PROMISES = Promises(latency_p95_s=2.0, recovery_s=90.0)


def outlook(log_sd: float = 0.1, *, out_of_memory: float = 0.0, candidates: Candidates = TABLE) -> Outlook:
    return outlook_of(
        candidates, latency_s=LATENCY_S, recovery_s=RECOVERY_S, log_sd=log_sd, out_of_memory=out_of_memory
    )


def test_the_probability_of_keeping_all_is_the_product() -> None:
    kept = keeping(outlook(out_of_memory=0.2), PROMISES)
    each = kept.each[Promise.LATENCY] * kept.each[Promise.RECOVERY] * 0.8
    assert kept.together == pytest.approx(each)
    assert set(keeping(outlook(), Promises(recovery_s=10.0)).each) == {Promise.RECOVERY, Promise.MEMORY}


def test_what_is_chosen_keeps_the_promises_and_nothing_cheaper_does() -> None:
    chosen = cheapest(TABLE, outlook(0.0), PROMISES)
    assert isinstance(chosen, Choice)
    good = (LATENCY_S <= 2.0) & (RECOVERY_S <= 90.0)
    assert good[chosen.row]
    assert chosen.cost_per_hour == outlook().cost_per_hour[good].min()
    assert str(TABLE[chosen.row]) in chosen.reason.sentence


@settings(max_examples=40)
@given(st.one_of(st.just(0.0), st.floats(0.001, 0.5)), st.floats(0.5, 0.99))
def test_more_confidence_is_never_cheaper(log_sd: float, confidence: float) -> None:
    some = cheapest(TABLE, outlook(log_sd), PROMISES, confidence=0.5)
    more = cheapest(TABLE, outlook(log_sd), PROMISES, confidence=confidence)
    assert isinstance(some, Choice)
    if isinstance(more, Choice):
        assert more.cost_per_hour >= some.cost_per_hour
        assert more.probability >= confidence


@pytest.mark.parametrize("log_sd", [0.0, 0.1])
@pytest.mark.parametrize(
    ("promises", "named", "told"),
    [
        (Promises(latency_p95_s=2.0, recovery_s=10.0), Promise.RECOVERY, "recovery from a failure within 10 s"),
        (Promises(latency_p95_s=0.1, recovery_s=500.0), Promise.LATENCY, r"latency \(p95\) within 100 ms"),
        (Promises(latency_p95_s=1e-30), Promise.LATENCY, "latency"),
    ],
)
def test_where_nothing_keeps_them_the_promise_and_the_nearest_are_named(
    log_sd: float, promises: Promises, named: Promise, told: str
) -> None:
    chosen = cheapest(TABLE, outlook(log_sd), promises)
    assert isinstance(chosen, Infeasible)
    assert chosen.promise is named
    values = RECOVERY_S if named is Promise.RECOVERY else LATENCY_S
    assert values[chosen.row] == pytest.approx(values.min())
    with pytest.raises(ValueError, match=told):
        raise ValueError(chosen.reason.sentence)
    assert str(chosen.nearest) in chosen.reason.sentence


def test_promises_that_only_fail_together_name_the_one_the_nearest_misses() -> None:
    rows = np.array([0, 1])
    two = Candidates.listing([TABLE[0], TABLE[1]])
    split = outlook_of(two, latency_s=np.array([1.0, 3.0])[rows], recovery_s=np.array([200.0, 50.0]), log_sd=0.01)
    chosen = cheapest(two, split, PROMISES)
    assert isinstance(chosen, Infeasible)
    assert "at once" in chosen.reason.sentence
    assert chosen.promise is (Promise.RECOVERY if chosen.row == 0 else Promise.LATENCY)


def test_a_job_that_runs_out_of_memory_everywhere_is_told() -> None:
    chosen = cheapest(TABLE, outlook(0.0, out_of_memory=1.0), PROMISES)
    assert isinstance(chosen, Infeasible)
    assert chosen.promise is Promise.MEMORY
    assert "memory" in chosen.reason.sentence


def test_what_never_recovers_keeps_no_promise_however_long() -> None:
    known = outlook()
    never = replace(known, recovery=replace(known.recovery, never=np.full(len(TABLE), 0.5)))
    found = cheapest(TABLE, never, Promises(recovery_s=1e9))
    assert isinstance(found, Infeasible)
    assert found.promise is Promise.RECOVERY
    assert found.probability <= 0.5


def test_a_confidence_of_one_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="confidence"):
        cheapest(TABLE, outlook(), PROMISES, confidence=1.0)
