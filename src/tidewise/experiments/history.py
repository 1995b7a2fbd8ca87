"""What the history of many jobs says: questions in SQL, and ready reports with sentences first and tables second."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewise.core import format_duration
from tidewise.experiments.fleet_tables import open_fleet
from tidewise.experiments.history_sql import MONEY_BY_DAY, MONEY_BY_JOB, OVERSIZED, PROMISES, RECOVERIES
from tidewise.pipeline.table_sql import Answered, ask

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Session

MOST_ROWS = 10_000
"""No answer is longer, whatever is asked for: it is read by a person, or goes through the memory of one process."""
_WORTH_IT = 0.05
"""A job that could save less than this share is not called oversized."""
_IDLE_AT_PEAK = 0.4
"""A job that is less busy than this at its peak could do with less, though nothing less was tried."""
_HOURS_A_MONTH = 730.0
_PROMISE_TERMS = {"busy": 0.95, "behind": 0.9, "near_s": 600}
"""Busy or behind like this a job is overloaded; for so long an event explains what comes after it."""


class ReportName(StrEnum):
    """The ready reports."""

    MONEY = "money"
    OVERSIZED = "oversized"
    PROMISES = "promises"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What is said, and the tables behind it, each with its title."""

    sentences: tuple[str, ...]
    tables: tuple[tuple[str, Answered], ...]


def ask_history(session: Session, tables: Path, sql: str, *, at_most: int) -> Answered:
    """The answer to a query over the views of these tables."""
    open_fleet(session, tables)
    return ask(session, sql, at_most=min(at_most, MOST_ROWS))


def report_history(session: Session, tables: Path, name: ReportName, *, at_most: int) -> History:
    """A ready report over these tables; its tables have at most so many rows."""
    open_fleet(session, tables)
    return _REPORTS[name](session, at_most)


def _money(session: Session, at_most: int) -> History:
    jobs = ask(session, MONEY_BY_JOB, at_most=MOST_ROWS)
    days = ask(session, MONEY_BY_DAY, at_most=at_most)
    return History(
        sentences=money_sentences(jobs.dicts(), days.dicts(), is_cut=jobs.is_cut),
        tables=(("Cost by job", _first(jobs, at_most)), ("Cost by day", days)),
    )


def money_sentences(
    jobs: Sequence[Mapping[str, Any]], days: Sequence[Mapping[str, Any]], *, is_cut: bool = False
) -> tuple[str, ...]:
    """Where the money goes; `jobs`: the dearest first."""
    if not jobs:
        return (
            "No report tells of a cost: give prices to the jobs (tidewise run, [prices]), or wait for their reports.",
        )
    currency = jobs[0]["currency"]
    total = jobs[0]["cost"] / jobs[0]["share"] if jobs[0]["share"] else 0.0
    first = f"{_number(len(jobs), 'job')} cost {_money_text(total, currency)} in {_number(len(days), 'day')}"
    said = [f"{'More than ' if is_cut else ''}{first}; {_dearest(jobs)}."]
    currencies = {job["currency"] for job in jobs}
    if len(currencies) > 1:
        named = ", ".join(sorted(str(each) for each in currencies))
        said.append(
            f"Their costs are in different currencies ({named}): sums over jobs mean nothing until they are not."
        )
    idle = [job for job in jobs if job["busy_share"] is not None and job["busy_share"] < 0.2 and job["cost"] > 0]
    if idle:
        spent = sum(job["cost"] for job in idle)
        said.append(
            f"{_money_text(spent, currency)} of it went to {_number(len(idle), 'job')} that worked less than 20 % of "
            "the time."
        )
    return tuple(said)


def _dearest(jobs: Sequence[Mapping[str, Any]]) -> str:
    shares = []
    reached = 0.0
    for job in jobs:
        reached += job["share"] or 0.0
        shares.append(job["job"])
        if reached >= 0.5:
            break
    if len(shares) == 1:
        return f"{shares[0]} alone makes {reached:.0%} of it"
    return (
        f"the dearest {len(shares)} make {reached:.0%} of it, {jobs[0]['job']} first with {jobs[0]['share'] or 0.0:.0%}"
    )


def _oversized(session: Session, at_most: int) -> History:
    found = ask(session, OVERSIZED, at_most=MOST_ROWS)
    return History(
        sentences=oversized_sentences(found.dicts()),
        tables=(("What each job needs at its peak", _first(found, at_most)),),
    )


def oversized_sentences(jobs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Which jobs are too large for their peak; the most that can be saved first."""
    if not jobs:
        return ("No report tells of a cost, so that no job can be called oversized.",)
    currency = jobs[0]["currency"]
    large = [
        job
        for job in jobs
        if job["saved_per_hour"] is not None and job["saved_per_hour"] > _WORTH_IT * job["paid_per_hour"]
    ]
    said = []
    if large:
        saved = sum(job["saved_per_hour"] for job in large)
        said.append(
            f"{len(large)} of {_number(len(jobs), 'job')} are oversized: {_money_text(saved, currency)} an hour could "
            f"be saved, {_money_text(_HOURS_A_MONTH * saved, currency)} a month."
        )
        said += [_oversized_sentence(job) for job in large[:3]]
    else:
        said.append(f"None of {_number(len(jobs), 'job')} has run healthily at its peak load with something cheaper.")
    untried = [job for job in jobs if job["saved_per_hour"] is None]
    idle = [job for job in untried if job["busy_at_peak"] is not None and job["busy_at_peak"] < _IDLE_AT_PEAK]
    if idle:
        dearest = f"{idle[0]['job']} at {_money_text(idle[0]['paid_per_hour'], currency)} an hour"
        said.append(
            f"Less than {_IDLE_AT_PEAK:.0%} busy at the peak, without anything known to be enough: "
            f"{_number(len(idle), 'job')}, {dearest} for example; try less."
        )
    unknown = [job for job in untried if job not in idle]
    if unknown:
        said.append(
            f"Of {_number(len(unknown), 'job')} nothing can be said, {unknown[0]['job']} for example: no configuration "
            "has carried the peak while it was healthy."
        )
    return tuple(said)


def _oversized_sentence(job: Mapping[str, Any]) -> str:
    busy = "" if job["busy_at_peak"] is None else f" was {job['busy_at_peak']:.0%} busy at its peak of"
    peak = f"{busy or ' had a peak of'} {job['peak_per_s']:,.0f} records/s"
    executors = _number(job["executors"], "executor")
    enough = f"{executors} x {job['cores_per_executor']:g} cores carried that while healthy"
    currency = job["currency"]
    return (
        f"{job['job']}{peak}: {enough}, for {_money_text(job['enough_per_hour'], currency)} an hour in place of "
        f"{_money_text(job['paid_per_hour'], currency)}."
    )


def _promises(session: Session, at_most: int) -> History:
    found = ask(session, PROMISES.format(**_PROMISE_TERMS), at_most=MOST_ROWS)
    given = ask(session, "SELECT count(DISTINCT job) FROM observations_60s WHERE promised_s > 0", at_most=1)
    jobs = int(str(given.rows[0][0]))
    late = ask(session, RECOVERIES.format(**_PROMISE_TERMS), at_most=MOST_ROWS)
    promised = ask(session, "SELECT count(*) FROM recoveries WHERE promised_recovery_s IS NOT NULL", at_most=1)
    failures = int(str(promised.rows[0][0]))
    # Only what was promised is told of; where nothing was, one sentence says enough.
    said = promise_sentences(found.dicts(), jobs=jobs) if jobs or not failures else ()
    return History(
        sentences=said + (recovery_sentences(late.dicts(), failures=failures) if failures else ()),
        tables=(("Late", _first(found, at_most)), ("Recovered too late", _first(late, at_most))),
    )


def promise_sentences(broken: Sequence[Mapping[str, Any]], *, jobs: int) -> tuple[str, ...]:
    """Which promises were broken and why, of so many jobs that had one; the worst first."""
    if not jobs:
        return ("No job has a promise of latency: give it one (tidewise run, [promises]).",)
    if not broken:
        return (f"No promise was broken: {_number(jobs, 'job')} kept theirs in every window.",)
    bad_s = sum(job["bad_s"] for job in broken)
    causes = {
        "after failures": sum(job["failure_s"] for job in broken),
        "during or after changes": sum(job["change_s"] for job in broken),
        "under too much load": sum(job["overload_s"] for job in broken),
        "for no reason that was reported": sum(job["unexplained_s"] for job in broken),
    }
    parts = [
        f"{seconds / bad_s:.0%} {words}"
        for words, seconds in sorted(causes.items(), key=lambda cause: -cause[1])
        if seconds > 0
    ]
    said = [
        f"{len(broken)} of {_number(jobs, 'job')} were late for {_time_text(bad_s)} in all: {', '.join(parts)}.",
    ]
    said += [
        f"{job['job']}: {_time_text(job['bad_s'])} late, {job['good_share']:.1%} of its time was good; the most "
        f"frequent cause was {job['mostly']}."
        for job in broken[:3]
    ]
    return tuple(said)


def recovery_sentences(late: Sequence[Mapping[str, Any]], *, failures: int) -> tuple[str, ...]:
    """Which promises of recovery were broken and why, of so many failures of jobs that had one; the worst first."""
    if not late:
        return (f"No promise of recovery was broken in {_number(failures, 'failure')}.",)
    jobs = _number(len({one["job"] for one in late}), "job")
    first = f"{len(late)} of {_number(failures, 'failure')} took longer to get over than was promised, in {jobs}."
    return (first, *(_recovery_sentence(one) for one in late[:3]))


def _recovery_sentence(one: Mapping[str, Any]) -> str:
    took = f"{'at least ' if one['is_bound'] else ''}{_time_text(one['took_s'])}"
    promised = f"in place of {_time_text(one['promised_recovery_s'])}"
    why = one["reason"] or "nothing that was reported says why"
    return f"{one['job']}: {took} {promised} after {one['failure']}, {one['failed_at']:%Y-%m-%d %H:%M}; {why}."


def _first(answer: Answered, at_most: int) -> Answered:
    """The first rows."""
    is_cut = answer.is_cut or len(answer.rows) > at_most
    return Answered(columns=answer.columns, rows=answer.rows[:at_most], is_cut=is_cut)


def _number(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _money_text(amount: float, currency: str | None) -> str:
    """With as many digits as matter."""
    digits = 0 if abs(amount) >= 1000 else 2 if abs(amount) >= 0.0995 or amount == 0.0 else 4
    return f"{amount:,.{digits}f}{'' if currency is None else f' {currency}'}"


def _time_text(seconds: float) -> str:
    return format_duration(round(seconds))


_REPORTS: dict[ReportName, Callable[[Session, int], History]] = {
    ReportName.MONEY: _money,
    ReportName.OVERSIZED: _oversized,
    ReportName.PROMISES: _promises,
}
