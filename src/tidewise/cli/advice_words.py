"""How advice is told: each new one in sentences, and at the end what all of it would have cost and saved."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tidewise.cli.explain import amount_text, expected_sentences
from tidewise.cli.output import print_wrapped
from tidewise.core import Decided, Observation, Reported, format_duration
from tidewise.experiments.advise import HOURS_PER_MONTH, Advice, AdviceBook
from tidewise.experiments.advise_terms import Terms
from tidewise.experiments.explain_run import stamp
from tidewise.experiments.live import LiveView
from tidewise.report.fitted_table import fitted_table
from tidewise.report.wording import MISSING, difference, manner, percent, seconds

CAVEAT = (
    "Careful: nothing was changed. How the job would have done as advised is what models of it predict; nobody has "
    "measured it."
)
_LISTED = 20
_WHEN_WIDTH = 9


class Watched:
    """Tells the advice for a run that is on, from what a watcher is shown of it."""

    def __init__(self, terms: Terms, screen: Console) -> None:
        self._book = AdviceBook(terms)
        self._screen = screen
        self._decided: Decided | None = None
        self._seen: Observation | None = None

    def see(self, view: LiveView) -> None:
        """Take in the run at one moment."""
        if view.observation is not None and view.observation is not self._seen:
            self._seen = view.observation
            self._book.note(Reported(at_s=view.observation.time_s, observation=view.observation))
        if view.decided is None or view.decided is self._decided:
            return
        self._decided = view.decided
        self._book.began_s = view.began_s
        advice = self._book.note(view.decided)
        if advice is not None:
            print_advice(advice, self._screen)


def print_advice(advice: Advice, screen: Console | None = None) -> None:
    """All that is told of one advice, below its time."""
    for sentence in advice_sentences(advice):
        print_wrapped(sentence, screen, indent=_WHEN_WIDTH + 1)


def advice_sentences(advice: Advice) -> Iterator[str]:
    """What would be done now, why, what is expected of it, and what it would save."""
    when = f"{stamp(advice.at_s):>{_WHEN_WIDTH}}"
    indent = " " * _WHEN_WIDTH
    yield f"{when} {_what(advice)}."
    yield f"{indent} Why: {advice.decided.decision.reason.sentence}"
    if advice.target is None:
        return
    for sentence in expected_sentences(advice.expected, currency=advice.currency, verb="expects"):
        # What it saves is told below, for every policy alike.
        if not sentence.startswith("By its reckoning"):
            yield f"{indent} {sentence}"
    yield f"{indent} {_saving(advice.saving_per_hour, advice.currency)}{_once(advice)}."


def _what(advice: Advice) -> str:
    if advice.candidates:
        copies = "a configuration" if len(advice.candidates) == 1 else f"{len(advice.candidates)} configurations"
        return f"It would measure {copies} in copies beside the job"
    if advice.target is None:
        return "It would leave the job as it is again"
    how = "" if advice.mechanism is None else f", {manner(advice.mechanism)}"
    gap = f", with a gap of {format_duration(advice.gap_s)}" if advice.gap_s > 0.0 else ""
    return f"It would change {difference(advice.source, advice.target)}{how}{gap}"


def _saving(per_hour: float, currency: str) -> str:
    month = amount_text(abs(per_hour) * HOURS_PER_MONTH)
    if per_hour == 0.0:
        return "That would cost the same"
    did = "save" if per_hour > 0.0 else "cost"
    more = "" if per_hour > 0.0 else " more"
    return f"That would {did} {amount_text(abs(per_hour))} {currency} an hour{more}, {month} a month"


def _once(advice: Advice) -> str:
    return (
        f"; the change itself, {amount_text(advice.change_cost)} {advice.currency}" if advice.change_cost > 0.0 else ""
    )


def summary_sentences(book: AdviceBook) -> Iterator[str]:
    """What would have been done, and what that would have cost and saved."""
    bill, terms, currency = book.bill, book.terms, book.terms.prices.currency
    yield (
        f"Watched for {format_duration(round(bill.seconds))} of reports; the policy {terms.label} was asked "
        f"{_times(book.decisions)}."
    )
    changes = [advice for advice in book.told if advice.target is not None]
    if not changes:
        yield "It would have left the job as it is all the time."
        if book.latest is not None:
            yield f"At last because: {book.latest.decision.reason.sentence}"
    else:
        first, last = (f"{_short(advice)}, at {stamp(advice.at_s)}" for advice in (changes[0], changes[-1]))
        named = first if len(changes) == 1 else f"first {first}, and at last {last}"
        yield f"It would have changed the job {_times(bill.changes)}: {named}."
    copies = [advice for advice in book.told if advice.candidates]
    if copies:
        yield f"It would have measured copies of the job {_times(len(copies))}, which costs money too."
    yield from _money_sentences(book, currency)
    if bill.windows and terms.promises.latency_p95_s is not None:
        kept = percent(bill.good_windows / bill.windows)
        limit = format_duration(terms.promises.latency_p95_s)
        yield f"As it ran, the job was within its promised {limit} in {kept} of {bill.windows:,} reports."
    yield CAVEAT


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _short(advice: Advice) -> str:
    return difference(advice.source, advice.target or advice.source)


def _money_sentences(book: AdviceBook, currency: str) -> Iterator[str]:
    bill = book.bill
    cost, advised, saved = bill.per_hour(bill.cost), bill.per_hour(bill.advised_cost), bill.saving_per_hour
    if cost is None or advised is None or saved is None:
        return
    if cost == advised:
        yield f"The executors cost {amount_text(cost)} {currency} an hour; nothing would have been saved."
        return
    share = f" ({percent(abs(saved) / cost)})" if cost > 0.0 else ""
    did = "saved" if saved >= 0.0 else "more"
    yield (
        f"The executors cost {amount_text(cost)} {currency} an hour as it ran, and would have cost "
        f"{amount_text(advised)} as advised: {amount_text(abs(saved))} {currency} an hour {did}{share}, "
        f"{amount_text(abs(saved) * HOURS_PER_MONTH)} {currency} a month if it went on like this."
    )
    if bill.change_cost > 0.0:
        yield f"The changes themselves would have cost {amount_text(bill.change_cost)} {currency} in that time."


def summary_table(book: AdviceBook, *, width: int) -> Table | None:
    """Each change that would have been made; None where there is none."""
    changes = [advice for advice in book.told if advice.target is not None]
    if not changes:
        return None
    listed, prices = changes[:_LISTED], book.terms.prices
    cells = {
        "when": [stamp(advice.at_s) for advice in listed],
        "change": [_short(advice) for advice in listed],
        f"{prices.currency}/h now": [amount_text(prices.per_hour(advice.source)) for advice in listed],
        f"{prices.currency}/h then": [
            amount_text(prices.per_hour(advice.target or advice.source)) for advice in listed
        ],
        f"saved, {prices.currency}/month": [amount_text(advice.saving_per_hour * HOURS_PER_MONTH) for advice in listed],
        "p95 expected": [
            MISSING if (expected_s := advice.expected.expected_latency_p95_s) is None else seconds(expected_s)
            for advice in listed
        ],
    }
    table = fitted_table(
        cells,
        width=width,
        words=("when", "change"),
        breaking=("change",),
        first_to_go=("p95 expected", f"{prices.currency}/h now"),
    )
    if len(changes) > _LISTED:
        table.caption = f"and {len(changes) - _LISTED} more"
    return table


def summary_document(book: AdviceBook) -> dict[str, object]:
    """The same, for programs."""
    bill = book.bill
    return {
        "policy": book.terms.label,
        "currency": book.terms.prices.currency,
        "watched_s": bill.seconds,
        "decisions": book.decisions,
        "changes": bill.changes,
        "change_cost": bill.change_cost,
        "cost_per_hour": bill.per_hour(bill.cost),
        "advised_cost_per_hour": bill.per_hour(bill.advised_cost),
        "saving_per_hour": bill.saving_per_hour,
        "saving_per_month": bill.saving_per_month,
        "good_share": bill.good_windows / bill.windows if bill.windows else None,
        "caveat": CAVEAT,
        "advice": [_document(advice) for advice in book.told],
    }


def _document(advice: Advice) -> dict[str, object]:
    reason = advice.decided.decision.reason
    return {
        "at_s": advice.at_s,
        "kind": advice.decided.decision.kind,
        "from": str(advice.source),
        "to": None if advice.target is None else str(advice.target),
        "executors": None if advice.target is None else advice.target.executors,
        "mechanism": None if advice.mechanism is None else advice.mechanism.value,
        "gap_s": advice.gap_s,
        "measure": [str(one) for one in advice.candidates],
        "code": reason.code,
        "sentence": reason.sentence,
        "evidence": dict(reason.evidence),
        "saving_per_hour": advice.saving_per_hour,
        "change_cost": advice.change_cost,
    }
