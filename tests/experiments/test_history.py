"""Reports in sentences: what is said fits what is in the tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tidewise.experiments.history import (
    money_sentences,
    oversized_sentences,
    promise_sentences,
    recovery_sentences,
)


def _cost(job: str, cost: float, share: float, **other: object) -> dict[str, Any]:
    return {"job": job, "cost": cost, "share": share, "currency": "EUR", "busy_share": 0.5, **other}


def _size(job: str, paid: float, enough: float | None, **other: object) -> dict[str, Any]:
    return {
        "job": job,
        "peak_per_s": 12_345.6,
        "busy_at_peak": 0.31,
        "paid_per_hour": paid,
        "currency": "EUR",
        "enough_per_hour": enough,
        "executors": 2,
        "cores_per_executor": 1.0,
        "saved_per_hour": None if enough is None else paid - enough,
        **other,
    }


def _broken(job: str, **seconds: float) -> dict[str, Any]:
    causes = {"failure_s": 0.0, "change_s": 0.0, "overload_s": 0.0, "unexplained_s": 0.0, **seconds}
    return {"job": job, "bad_s": sum(causes.values()), "good_share": 0.9, "mostly": "a failure (driver-kill)", **causes}


def test_the_job_that_costs_most_is_named() -> None:
    said = money_sentences([_cost("a", 60.0, 0.6), _cost("b", 40.0, 0.4)], [{}, {}, {}])
    assert said == ("2 jobs cost 100.00 EUR in 3 days; a alone makes 60% of it.",)


def test_jobs_that_mostly_wait_are_told() -> None:
    said = money_sentences([_cost("a", 40.0, 0.4), _cost("b", 30.0, 0.3, busy_share=0.05), _cost("c", 30.0, 0.3)], [{}])
    assert said[0] == "3 jobs cost 100.00 EUR in 1 day; the dearest 2 make 70% of it, a first with 40%."
    assert said[1] == "30.00 EUR of it went to 1 job that worked less than 20 % of the time."


def test_currencies_are_not_added_up_in_silence() -> None:
    said = money_sentences([_cost("a", 60.0, 0.6), _cost("b", 40.0, 0.4, currency="USD")], [{}])
    assert "different currencies (EUR, USD)" in said[1]


def test_without_costs_nothing_is_made_up() -> None:
    assert "No report tells of a cost" in money_sentences([], [])[0]
    assert "No report tells of a cost" in oversized_sentences([])[0]


def test_what_could_be_saved_is_told_with_what_would_be_enough() -> None:
    said = oversized_sentences(
        [_size("a", 0.5, 0.2), _size("b", 0.2, 0.2), _size("c", 0.4, None, busy_at_peak=0.9), _size("d", 0.4, None)]
    )
    assert said[0] == "1 of 4 jobs are oversized: 0.30 EUR an hour could be saved, 219.00 EUR a month."
    assert said[1] == (
        "a was 31% busy at its peak of 12,346 records/s: 2 executors x 1 cores carried that while healthy, for "
        "0.20 EUR an hour in place of 0.50 EUR."
    )
    assert said[2].startswith("Less than 40% busy at the peak")
    assert "1 job, d at 0.40 EUR an hour" in said[2]
    assert "c for example" in said[3]


def test_a_job_that_pays_less_than_its_peak_needs_is_not_oversized() -> None:
    assert "None of 1 job" in oversized_sentences([_size("a", 0.2, 0.5)])[0]


def test_broken_promises_are_told_with_their_causes_the_largest_first() -> None:
    said = promise_sentences([_broken("a", failure_s=180.0, change_s=60.0), _broken("b", change_s=60.0)], jobs=5)
    assert said[0] == "2 of 5 jobs were late for 5 min in all: 60% after failures, 40% during or after changes."
    assert said[1].startswith("a: 4 min late, 90.0% of its time was good; the most frequent cause was a failure")


def test_kept_promises_are_told_as_well() -> None:
    assert promise_sentences([], jobs=2) == ("No promise was broken: 2 jobs kept theirs in every window.",)
    assert "No job has a promise" in promise_sentences([], jobs=0)[0]


def test_recoveries_that_took_too_long_are_told_with_what_may_have_been_why() -> None:
    late = {
        "job": "a",
        "failed_at": datetime(2026, 1, 2, 3, 4),  # noqa: DTZ001 - as Spark gives it: the time here
        "failure": "driver-kill",
        "took_s": 150.0,
        "is_bound": False,
        "promised_recovery_s": 60.0,
        "reason": "a change was on (redeploy, applied)",
    }
    when = "after driver-kill, 2026-01-02 03:04"
    said = recovery_sentences([late, {**late, "job": "b", "is_bound": True, "reason": None}], failures=7)
    assert said == (
        "2 of 7 failures took longer to get over than was promised, in 2 jobs.",
        f"a: 2 min 30 s in place of 60 s {when}; a change was on (redeploy, applied).",
        f"b: at least 2 min 30 s in place of 60 s {when}; nothing that was reported says why.",
    )
    assert recovery_sentences([], failures=3) == ("No promise of recovery was broken in 3 failures.",)
