"""Advice: told once, paid for by what would run, and never anything but read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.control.fakes import ScriptedPolicy
from tests.engines.spark.event_log_lines import a_steady_job
from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import BEGAN_S, config, report, write_journal
from tidewise.control import GuardSettings, LoopSettings, SqliteJournal
from tidewise.core import (
    BadInputError,
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    ControllerStarted,
    ControllerStopped,
    Decision,
    JournalEvent,
    Keep,
    Mechanism,
    Prices,
    Profile,
    Promises,
    Reason,
    Reconfigure,
    Situation,
)
from tidewise.experiments.advise import Advice, Adviser
from tidewise.experiments.advise_follow import Watch, follow_log, follow_run
from tidewise.experiments.advise_terms import Terms, terms_of_options, terms_of_run
from tidewise.experiments.explain_run import find_recorded

SPACE = ConfigurationSpace(
    executors=tuple(range(1, 9)),
    changes=(
        ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0, preparation_s=5.0),
        ChangeCost(mechanism=Mechanism.HANDOVER, gap_s=2.0, preparation_s=36.0, runs_double=True),
    ),
    memory_mib_per_executor=(1024, 2048),
)
PRICES = Prices(core_hour=1.0, gib_hour=1.0, currency="EUR")
"""An executor of a core and a GiB costs 2 EUR an hour."""


def terms(decide: Callable[[Situation], Decision]) -> Terms:
    return Terms(
        label="scripted",
        policy=lambda: ScriptedPolicy(decide),
        space=SPACE,
        promises=Promises(latency_p95_s=5.0),
        prices=PRICES,
        settings=LoopSettings(decide_every_s=60.0),
        guard_settings=GuardSettings(),
        report_every_s=10.0,
    )


def want(executors: int | None, *, memory_mib: int = 1024, **evidence: float) -> Decision:
    reason = Reason(code="scripted", sentence="As the test says.", evidence=evidence)
    if executors is None:
        return Keep(reason=reason)
    target = Configuration(executors=executors, memory_mib_per_executor=memory_mib)
    return Reconfigure(target=target, reason=reason)


def advised(script: dict[int, Decision], *, minutes: int) -> tuple[Adviser, list[Advice]]:
    """Four executors run; from each minute of the script on, the policy decides so."""

    def decide(situation: Situation) -> Decision:
        minute = int(situation.now_s - BEGAN_S) // 60
        return script[max(begin for begin in script if begin <= minute)]

    adviser = Adviser(terms(decide), name="test")
    adviser.begin(config(4), BEGAN_S)
    told = []
    for at_s in range(10, 60 * minutes + 10, 10):
        seen = report(float(at_s))
        told += adviser.report(seen.observation, seen.at_s)
    return adviser, told


def test_an_advice_is_told_once_with_what_it_would_save() -> None:
    adviser, told = advised({0: want(2)}, minutes=30)
    (advice,) = told
    assert advice.source == config(4)
    assert advice.target == config(2)
    assert advice.mechanism is Mechanism.LIVE
    assert advice.saving_per_hour == pytest.approx(4.0)
    assert advice.currency == "EUR"
    bill = adviser.book.bill
    assert bill.changes == 1
    assert bill.per_hour(bill.cost) == pytest.approx(8.0)
    # The first report came before there was any advice.
    assert bill.saving_per_hour == pytest.approx(4.0, rel=0.01)
    assert bill.saving_per_month == pytest.approx(4.0 * 730, rel=0.01)
    assert bill.good_windows == bill.windows == 180


def test_what_the_policy_reckons_goes_before_the_prices() -> None:
    _, (advice,) = advised({0: want(2, saving_per_hour=1.5, change_cost=0.25)}, minutes=5)
    assert advice.saving_per_hour == 1.5
    assert advice.change_cost == 0.25


def test_a_handover_costs_running_twice() -> None:
    adviser, (advice,) = advised({0: want(2, memory_mib=2048)}, minutes=5)
    assert advice.mechanism is Mechanism.HANDOVER
    assert advice.gap_s == 2.0
    # Two executors of a core and two GiB, 36 s long.
    assert adviser.book.bill.change_cost == pytest.approx(6.0 * 36 / 3600)


def test_more_is_advised_at_once_and_less_when_it_lasts() -> None:
    _, told = advised({0: want(3), 5: want(6), 6: want(2), 7: want(6), 20: want(3), 25: want(2)}, minutes=60)
    assert [(round(advice.at_s / 60), advice.target) for advice in told] == [
        (0, config(3)),
        (5, config(6)),
        # Wanted from the 20th minute on, and the dearest of what was wanted since.
        (30, config(3)),
        (41, config(2)),
    ]


def test_what_is_advised_has_the_reason_and_the_expectations_of_the_decision_that_wanted_it() -> None:
    dear, cheap = (want(executors, expected_latency_p95_s=float(executors)) for executors in (3, 2))
    _, told = advised({0: want(6), 10: cheap, 15: dear, 16: cheap}, minutes=25)
    assert [advice.target for advice in told] == [config(6), config(3)]
    assert told[-1].at_s == pytest.approx(20 * 60, abs=60)
    assert told[-1].decided.decision == dear
    assert told[-1].expected.expected_latency_p95_s == 3.0


def test_a_policy_that_waits_does_not_withdraw_its_advice_and_one_that_keeps_does() -> None:
    adviser, told = advised({0: want(2), 5: want(None), 10: want(2), 20: want(None)}, minutes=40)
    assert [advice.target for advice in told] == [config(2), None]
    assert told[1].is_withdrawn
    assert told[1].at_s == pytest.approx(30 * 60, abs=60)
    # From the moment on at which it wanted to keep what runs, nothing was saved.
    saved = adviser.book.bill.cost - adviser.book.bill.advised_cost
    assert saved == pytest.approx(4.0 * 20 / 60, rel=0.06)


def test_a_profile_is_told_once() -> None:
    profile = Profile(candidates=(config(3),), reason=Reason(code="measure", sentence="To know more."))
    adviser, (advice,) = advised({0: profile}, minutes=10)
    assert advice.candidates == (config(3),)
    assert adviser.book.bill.saving_per_hour == 0.0


def test_a_target_outside_the_space_is_advised_as_the_guards_make_it() -> None:
    _, (advice,) = advised({0: want(50)}, minutes=5)
    assert advice.target == config(8)


# Runs.


class Told:
    """Whom a watch tells."""

    def __init__(self) -> None:
        self.advice: list[Advice] = []
        self.sentences: list[str] = []

    def watch(self, *, once: bool = True, duration_s: float | None = None) -> Watch:
        return Watch(advise=self.advice.append, tell=self.sentences.append, once=once, duration_s=duration_s)


def begun(minutes: int) -> list[JournalEvent]:
    started = ControllerStarted(at_s=BEGAN_S, version="1", policy="static", configuration=config(4))
    return [started, *(report(float(at_s)) for at_s in range(10, 60 * minutes, 10))]


def test_a_run_that_is_on_is_replayed_followed_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "job-static-1.partial"
    folder.mkdir()
    told = Told()
    with SqliteJournal(folder / "journal.sqlite") as journal:
        journal.append(begun(2))

        def go_on() -> None:
            time.sleep(0.5)
            journal.append([report(120.0), report(130.0), report(180.0)])
            journal.append([ControllerStopped(at_s=BEGAN_S + 190.0, reason="the end")])

        writer = threading.Thread(target=go_on)
        writer.start()
        adviser = follow_run(find_recorded(folder), terms(lambda _: want(2)), told.watch(once=False, duration_s=60.0))
        writer.join()
        # The writer still may write: nothing holds it.
        journal.append([report(200.0)])
    assert [advice.target for advice in told.advice] == [config(2)]
    assert told.advice[0].at_s == 10.0
    assert adviser.book.decisions == 3


def test_a_run_that_ends_while_it_is_followed_is_read_to_its_end(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "job-static-1.partial", begun(2))
    run = find_recorded(folder)
    (folder / "journal.sqlite.lock").unlink()
    folder.rename(tmp_path / "job-static-1")
    # As it is found again under its name, though it has no record yet.
    began_s = time.monotonic()
    adviser = follow_run(run, terms(lambda _: want(2)), Told().watch(once=False, duration_s=60.0))
    assert adviser.book.bill.windows == 11
    assert time.monotonic() - began_s < 30.0


def test_following_ends_when_its_time_is_over(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "job-static-1.partial", begun(2))
    began_s = time.monotonic()
    follow_run(find_recorded(folder), terms(lambda _: want(2)), Told().watch(once=False, duration_s=0.5))
    assert time.monotonic() - began_s < 30.0


def test_a_home_says_on_what_terms(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "home" / "small-reactive-1.partial", begun(2))
    write_job(folder.parent, GOOD + '\n[prices]\ncurrency = "EUR"\n')
    found = terms_of_run(find_recorded(folder), policy=None)
    assert found.label == "tidewise"
    assert found.space.executors == (1, 2, 3, 4)
    assert found.space.memory_mib_per_executor == (1024, 2048)
    assert found.space.commit_interval_s == (1.0,)
    assert found.prices.currency == "EUR"
    assert found.settings.decide_every_s == 5.0
    assert {cost.mechanism for cost in found.space.changes} >= {Mechanism.LIVE, Mechanism.HANDOVER}
    own = terms_of_run(find_recorded(folder), policy="reactive")
    assert own.policy().target_cpu == 0.5  # type: ignore[attr-defined]  # as the job file has set it


def test_a_run_without_terms_is_told(tmp_path: Path) -> None:
    folder = write_journal(tmp_path / "job-static-1.partial", begun(2))
    with pytest.raises(BadInputError, match="what the job may become"):
        terms_of_run(find_recorded(folder), policy=None)


# Event logs.


def options(runs: Configuration, *, policy: str | None = "ds2") -> Terms:
    return terms_of_options(
        runs=runs, executors="1..8", promises=Promises(latency_p95_s=5.0), prices=PRICES, policy=policy
    )


def test_a_program_that_has_too_much_is_advised_to_take_less(tmp_path: Path) -> None:
    # A fifth of the time is worked in, by eight executors.
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=1200, executors=8)), encoding="utf-8")
    told = Told()
    adviser = follow_log(path, lambda runs: options(runs, policy="reactive"), told.watch())
    assert told.advice
    first = told.advice[0]
    assert first.source.executors == 8
    assert first.target is not None
    assert first.target.executors < 8
    # Eight executors of two cores and two GiB, with the overhead of the latter.
    bill = adviser.book.bill
    assert bill.per_hour(bill.cost) == pytest.approx(8 * (2 + (2048 + 384) / 1024), rel=0.01)
    assert bill.saving_per_hour is not None
    assert bill.saving_per_hour > 0.0
    assert told.sentences == []


def test_a_log_is_followed_while_it_grows(tmp_path: Path) -> None:
    text = a_steady_job(seconds=900, executors=8)
    path = tmp_path / "app-1.inprogress"
    path.write_text("".join(text[: len(text) // 2]), encoding="utf-8")

    def go_on() -> None:
        time.sleep(0.5)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(text[len(text) // 2 :]))
        path.rename(tmp_path / "app-1")

    writer = threading.Thread(target=go_on)
    writer.start()
    adviser = follow_log(path, options, Told().watch(once=False, duration_s=120.0))
    writer.join()
    assert adviser.book.bill.seconds == pytest.approx(890.0, abs=12.0)


def test_executors_beyond_the_space_are_told(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=120, executors=12)), encoding="utf-8")
    told = Told()
    follow_log(path, options, told.watch())
    assert "12 executors run" in told.sentences[0]


def test_executors_that_run_otherwise_than_they_may_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=120, executors=4)), encoding="utf-8")
    told = Told()
    follow_log(path, lambda _runs: terms(lambda _: want(None)), told.watch())
    (sentence,) = [one for one in told.sentences if "is not what the job file allows" in one]
    assert "x 2 cores" in sentence.partition(" is not ")[0]
    assert "x 1 core," in sentence.partition(" is not ")[2]


def test_a_log_without_batches_is_told(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=12)), encoding="utf-8")
    with pytest.raises(BadInputError, match="fewer than four batches"):
        follow_log(path, options, Told().watch())


@pytest.mark.parametrize("executors", ["none", "8..1", "0", "1.5", ""])
def test_executors_that_make_no_space_are_told(executors: str) -> None:
    with pytest.raises(BadInputError, match="--executors"):
        terms_of_options(
            runs=config(1),
            executors=executors,
            promises=Promises(latency_p95_s=5.0),
            prices=PRICES,
            policy="ds2",
        )
