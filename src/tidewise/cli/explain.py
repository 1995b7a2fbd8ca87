"""`tidewise explain`: what was decided in a run and why, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tidewise.cli.output import console, print_json, print_sentence
from tidewise.core import (
    Censored,
    ChangeStatus,
    Configuration,
    Keep,
    Measured,
    Origin,
    Profile,
    Verdict,
    at_least_s,
    format_duration,
)
from tidewise.experiments.explain import (
    EXPECTED_NAMES,
    HIGH_LEVEL,
    Account,
    Calibration,
    Came,
    Expected,
    Held,
    Step,
)
from tidewise.experiments.explain_run import RecordedRun, find_recorded, moment_s, stamp
from tidewise.observe.recoveries import FOUND, Recovered
from tidewise.report.wording import MISSING, difference, listing, manner, percent, seconds, whole_seconds

_WHO = {Origin.POLICY: "The policy", Origin.OPERATOR: "An operator", Origin.ROLLBACK: "The control loop"}
_MOST_EVIDENCE = 12
_LEGEND = (
    "What came of cost and p95 latency is what came until the next change, but for no longer than was looked ahead; of "
    "the latencies of its reports the median is told. A report above the expected high level is a miss."
)


def explain(
    *,
    run: Annotated[Path, typer.Argument(help="A run: over, cut short or still on; or the home of a `tidewise run`.")],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="One decision: 90s, 1h30min, or 14:05 where there is a wall clock."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Say what was decided in a run and why, what was expected of it, and what came.

    Without a time: every decision that changed something, one line each.

    Nothing is written and nobody is disturbed: it works while the run is on.

    For example:

    tidewise explain runs/clicks

    tidewise explain runs/clicks --at 1h30min
    """
    recorded = find_recorded(run)
    with recorded.open_journal() as journal:
        account = Account.read(journal, prices=recorded.prices)
    teller = _Teller(recorded, account)
    if at is None:
        if json:
            print_json(teller.timeline_document())
        else:
            teller.print_timeline()
        return
    began_unix_s = None if recorded.began_unix_s is None else recorded.began_unix_s + account.began_s
    asked_s = moment_s(at, began_unix_s=began_unix_s, lasted_s=account.lasted_s)
    step = account.at(account.began_s + asked_s + 0.5)
    if json:
        print_json(teller.document(asked_s, step))
    else:
        teller.print_step(asked_s, step)


class _Teller:
    """Says in words what an account holds."""

    def __init__(self, recorded: RecordedRun, account: Account) -> None:
        self._run = recorded
        self._account = account
        self._currency = "" if recorded.prices is None else recorded.prices.currency

    # Times and money.

    def _when(self, at_s: float) -> str:
        told = stamp(at_s - self._account.began_s)
        if self._run.began_unix_s is None:
            return told
        return f"{told} ({datetime.fromtimestamp(self._run.began_unix_s + at_s, tz=UTC).astimezone():%H:%M:%S})"

    def _money(self, amount: float | None) -> str:
        return MISSING if amount is None else f"{amount_text(amount)} {self._currency}".strip()

    def _cost(self, step: Step) -> float | None:
        """What was to be paid from then on."""
        if step.expected.cost_per_hour is not None:
            return step.expected.cost_per_hour
        return self._price(step.wanted)

    def _price(self, configuration: Configuration | None) -> float | None:
        prices = self._run.prices
        return None if prices is None or configuration is None else prices.per_hour(configuration)

    # All decisions.

    def print_timeline(self) -> None:
        """One line for each decision that changed something."""
        account = self._account
        for sentence in self._head():
            print_sentence(sentence)
        if any(step.change is not None for step in account.steps):
            print_sentence(_LEGEND)
        for kept, step in self._acts():
            if kept:
                print_sentence(f"          kept {kept} times")
            if step is not None:
                print_sentence(self._line(step))
        print_sentence("")
        for sentence in self._calibrated(None):
            print_sentence(sentence)
        if account.steps:
            print_sentence(f"One of them in full: tidewise explain {self._run.folder} --at TIME")

    def _head(self) -> Iterator[str]:
        account, record = self._account, self._run.record
        how = "is on, or its controller was killed" if record is None else "is over"
        if record is not None and not record.complete:
            how = "was cut short"
        yield (
            f"The run {self._run.name} {how}: {stamp(account.lasted_s)} under the policy "
            f"{account.policy if record is None else record.policy}."
        )
        acts = [step for step in account.steps if step.acted]
        keeps = sum(step.is_keep for step in account.steps)
        refused = len(account.steps) - keeps - len(acts)
        yield (
            f"Of {_count(len(account.steps), 'decision')}, {len(acts)} changed something, {keeps} kept the job as it "
            f"was, and {refused} were stopped by a guard."
        )

    def _acts(self) -> Iterator[tuple[int, Step | None]]:
        """How many times nothing was changed, and the decision that did."""
        kept = 0
        for step in self._account.steps:
            if step.acted:
                yield kept, step
                kept = 0
            else:
                kept += 1
        if kept:
            yield kept, None

    def _line(self, step: Step) -> str:
        came, expected = self._account.came(step), step.expected
        parts = [f"{stamp(step.at_s - self._account.began_s):>9} {_what(step)}"]
        if step.change is not None:
            before = expected.cost_per_hour_before
            before = self._price(step.change.request.source) if before is None else before
            parts.append(f"{_how_it_ended(step)}")
            if self._run.prices is not None:
                hourly = f"{self._money(self._cost(step))}/h expected"
                realised = "" if came.cost_per_hour is None else f", {self._money(came.cost_per_hour)} came"
                parts.append(f"cost {amount_text(before or 0.0)} → {hourly}{realised}")
            parts.append(_latency_part(expected, came))
        return "; ".join(part for part in parts if part)

    def timeline_document(self) -> dict[str, object]:
        """The same, for programs."""
        account, record = self._account, self._run.record
        return {
            "run": str(self._run.folder),
            "policy": account.policy if record is None else record.policy,
            "is_over": record is not None,
            "lasted_s": account.lasted_s,
            "currency": self._currency or None,
            "decisions": len(account.steps),
            "keeps": sum(step.is_keep for step in account.steps),
            "changes": [self._step_document(step) for step in account.steps if step.acted],
            "expectations_held": _calibration_document(account.calibration()),
        }

    # One decision.

    def print_step(self, asked_s: float, step: Step | None) -> None:
        """Sentences first, then what was expected beside what came."""
        if step is None:
            first = self._account.steps[0] if self._account.steps else None
            later = "" if first is None else f"; the first came at {self._when(first.at_s)}"
            print_sentence(f"Nothing had been decided by {stamp(asked_s)}{later}.")
            return
        for sentence in self._sentences(step):
            print_sentence(sentence)
        came = self._account.came(step)
        for sentence in self._came_sentences(step, came):
            print_sentence(sentence)
        table = self._table(step, came)
        if table is not None:
            print_sentence("")
            console().print(table)
        print_sentence("")
        for sentence in self._calibrated(step):
            print_sentence(sentence)

    def _sentences(self, step: Step) -> Iterator[str]:
        reason = step.decided.decision.reason
        yield f"At {self._when(step.at_s)} {_WHO[step.decided.origin].lower()} decided: {_what(step)}."
        yield f"Why: {reason.sentence}"
        rested = [
            text
            for name, value in reason.evidence.items()
            if name not in EXPECTED_NAMES and (text := evidence_text(name, value, currency=self._currency)) is not None
        ]
        if rested:
            more = f", and {len(rested) - _MOST_EVIDENCE} more" if len(rested) > _MOST_EVIDENCE else ""
            yield f"It rested on: {', '.join(rested[:_MOST_EVIDENCE])}{more}."
        yield from expected_sentences(step.expected, currency=self._currency)
        if not step.is_keep:
            yield from _guards(step)
        yield from self._change_sentences(step)
        yield from _profile_sentences(step)
        if not step.acted:
            last = next((one for one in reversed(self._account.steps) if one.acted and one.at_s <= step.at_s), None)
            if last is not None:
                yield f"The last decision that changed something came at {self._when(last.at_s)}: {_what(last)}."

    def _change_sentences(self, step: Step) -> Iterator[str]:
        story = step.change
        if story is None:
            return
        request, outcome = story.request, story.outcome
        how = f"The change went {manner(request.mechanism)}"
        if outcome is None and story.expired_at_s is None:
            yield f"{how} and had not ended when the journal did."
        elif outcome is not None:
            took = format_duration(max(0.0, outcome.finished_at_s - request.requested_at_s))
            if outcome.status is ChangeStatus.APPLIED:
                gap = "without a gap" if outcome.gap_s <= 0.0 else f"with a gap of {format_duration(outcome.gap_s)}"
                yield f"{how}, took {took}, {gap}."
            else:
                yield f"{how} and failed after {took}: {outcome.detail.rstrip('.')}."
        if story.expired_at_s is not None:
            yield f"It had not reached its target at its deadline, {self._when(story.expired_at_s)}."
        if story.settled_at_s is not None:
            yield f"It came through its time of probation at {self._when(story.settled_at_s)}."
        if story.undone_at_s is not None:
            yield f"It was taken back at {self._when(story.undone_at_s)}."

    def _came_sentences(self, step: Step, came: Came) -> Iterator[str]:
        if came.windows == 0:
            yield "No report has come since."
            return
        expected = step.expected
        span = format_duration(round(max(0.0, came.end_s - came.begin_s)))
        cut = "" if came.is_whole else " (the journal ends before the look-ahead does)"
        peak = MISSING if came.peak_rate_per_s is None else f"{came.peak_rate_per_s:,.0f}/s"
        yield f"What came in the {_count(came.windows, 'report')} of the following {span}{cut}:"
        yield f"  the rate peaked at {peak}{_verdict(came.rate)};"
        for one in came.recoveries:
            yield f"  {_recovery(one, expected.expected_recovery_high_s)};"
        if came.recoveries:
            yield "  (by its reports, so to about the length of one; the page of `tidewise report` goes by the second)"
        if came.ran_until_s <= came.ran_from_s:
            yield "  of latency and cost nothing can be said: what was decided for did not run in that time."
            return
        when = self._when_it_ran(step, came)
        if came.ran_windows == 0:
            yield f"  of latency and cost nothing can be said: no whole report lies {when}."
            return
        if (came.ran_from_s, came.ran_until_s) != (came.begin_s, came.end_s):
            yield f"What came {when} ({_count(came.ran_windows, 'report')}):"
        yield f"  {_latency_sentence(came, expected)};"
        if self._run.prices is None:
            yield "  what the executors cost nobody can say: the run knows no prices."
            return
        paid, meant = self._money(came.cost_per_hour), self._money(self._cost(step))
        if expected.cost_per_hour is None:
            yield f"  the executors cost {paid} an hour, and by the prices what was decided for costs {meant}."
        else:
            yield f"  the executors cost {paid} an hour, and {meant} was expected."

    def _when_it_ran(self, step: Step, came: Came) -> str:
        """Over which time latency and cost are told."""
        span = format_duration(round(came.ran_until_s - came.ran_from_s))
        since = "" if step.change is None else f" from the end of the change, at {self._when(came.ran_from_s)},"
        if came.ran_until_s < came.end_s:
            return f"in the {span}{since} until the next change, at {self._when(came.ran_until_s)}"
        return f"in the {span}{since} on" if since else f"in these {span}"

    def _table(self, step: Step, came: Came) -> Table | None:
        expected = step.expected
        ahead, ran = (
            format_duration(round(end_s - begin_s)) if end_s > begin_s else MISSING
            for begin_s, end_s in ((came.begin_s, came.end_s), (came.ran_from_s, came.ran_until_s))
        )
        rows = [
            (
                "rate, per second",
                _text(expected.expected_rate_per_s, "{:,.0f}"),
                _text(expected.expected_rate_high_per_s, "{:,.0f}"),
                _text(came.peak_rate_per_s, "{:,.0f}"),
                ahead,
                _share(came.rate),
            ),
            (
                "latency p95, s",
                _text(expected.expected_latency_p95_s, "{:.2f}"),
                _text(expected.expected_latency_p95_high_s, "{:.2f}"),
                _text(came.latency_p95_s, "{:.2f}"),
                ran,
                _share(came.latency),
            ),
            (
                "recovery, s",
                _text(expected.expected_recovery_s, "{:.0f}"),
                _text(expected.expected_recovery_high_s, "{:.0f}"),
                ", ".join(_took(one.took_s).removesuffix(" s") for one in came.recoveries) or MISSING,
                ahead,
                _share(came.recovery, "recovery", "recoveries"),
            ),
            (
                f"cost per hour, {self._currency or '?'}",
                *map(_amount, (self._cost(step), None, came.cost_per_hour)),
                ran,
                MISSING,
            ),
        ]
        told = [row for row in rows if any(cell != MISSING for cell in row[1:4])]
        if not told:
            return None
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("", "expected", "high level", "came", "within", "at or below it"):
            table.add_column(name, justify="left" if not name else "right", no_wrap=True)
        for row in told:
            table.add_row(*row)
        return table

    def _calibrated(self, step: Step | None) -> Iterator[str]:
        """How often the expectations held, until a decision and over the whole run."""
        if step is not None:
            told = _calibration_text(self._account.calibration(step.at_s))
            if told:
                yield f"Until then, {told}."
        told = _calibration_text(self._account.calibration())
        if not told:
            yield "No decision of this run said which rate, latency or recovery it expected."
            return
        yield f"Over the whole run, {told}."
        yield (
            f"Where expectations are good, {100 * HIGH_LEVEL:.0f} % or more lie there. A report counts once for each "
            "decision that looked ahead to it."
        )

    def document(self, asked_s: float, step: Step | None) -> dict[str, object]:
        """The same, for programs."""
        document: dict[str, object] = {"run": str(self._run.folder), "asked_s": asked_s, "decision": None}
        if step is None:
            return document
        before, whole = map(_calibration_document, (self._account.calibration(step.at_s), self._account.calibration()))
        return document | {
            "currency": self._currency or None,
            "decision": self._step_document(step),
            "expectations_held": {
                name: {"until_then": before[name], "whole_run": whole[name]} for name in ("rate", "latency", "recovery")
            },
        }

    def _step_document(self, step: Step) -> dict[str, object]:
        account, came, reason = self._account, self._account.came(step), step.decided.decision.reason
        story, began_s = step.change, self._account.began_s
        change: dict[str, object] | None = None
        if story is not None:
            change = {
                "id": story.request.request_id,
                "mechanism": story.request.mechanism.value,
                "from": str(story.request.source),
                "to": str(story.request.target),
                "status": None if story.outcome is None else story.outcome.status.value,
                "gap_s": None if story.outcome is None else story.outcome.gap_s,
                "finished_s": None if story.outcome is None else story.outcome.finished_at_s - began_s,
                "settled": story.settled_at_s is not None,
                "taken_back": story.undone_at_s is not None,
                "missed_its_deadline": story.expired_at_s is not None,
            }
        return {
            "at_s": step.at_s - account.began_s,
            "origin": step.decided.origin.value,
            "kind": step.decided.decision.kind,
            "code": reason.code,
            "sentence": reason.sentence,
            "evidence": dict(reason.evidence),
            "expected": {name: getattr(step.expected, name) for name in EXPECTED_NAMES}
            | {"cost_per_hour": self._cost(step)},
            "verdicts": [
                {"guard": one.guard, "verdict": one.verdict.value, "sentence": one.reason.sentence}
                for one in step.decided.verdicts
            ],
            "change": change,
            "came": {
                "windows": came.windows,
                "is_whole": came.is_whole,
                "peak_rate_per_s": came.peak_rate_per_s,
                "rate": _held_document(came.rate),
                "latency_p95_s": came.latency_p95_s,
                "worst_latency_p95_s": came.worst_latency_p95_s,
                "ran_from_s": came.ran_from_s - account.began_s,
                "ran_until_s": came.ran_until_s - account.began_s,
                "ran_windows": came.ran_windows,
                "windows_without_output": came.without_output,
                "windows_of_recoveries": came.recovering_windows,
                "latency": _held_document(came.latency),
                "cost_per_hour": came.cost_per_hour,
                "recoveries": [
                    {"kind": one.kind, "at_s": one.at_s - account.began_s, "took": _took(one.took_s)}
                    for one in came.recoveries
                ],
            },
        }


# Words.


def amount_text(amount: float) -> str:
    """Money without its currency, with the digits that matter."""
    if abs(amount) >= 1000:
        return f"{amount:,.0f}"
    if abs(amount) >= 1 or amount == 0:
        return f"{amount:.2f}"
    if abs(amount) >= 0.01:
        return f"{amount:.3f}"
    return f"{Decimal(f'{amount:.2g}'):f}"


def evidence_text(name: str, value: object, *, currency: str = "") -> str | None:
    """One piece of evidence as a person would say it; None for what is unknown."""
    if value is None:
        return None
    if isinstance(value, bool):
        return f"{_words(name)}: {'yes' if value else 'no'}"
    if not isinstance(value, int | float):
        return f"{_words(name)}: {value}"
    number = float(value)
    if name in _SENTENCES:
        return _SENTENCES[name](number, currency).rstrip()
    ending = next((one for one in _UNITS if name.endswith(one)), "")
    return f"{_words(name.removesuffix(ending))} {_UNITS.get(ending, _number_text)(number)}"


def _share_text(value: float) -> str:
    return percent(value) if 0.0 <= value <= 1.0 else _number_text(value)


def _number_text(value: float) -> str:
    """With the digits that matter, and never as a power of ten."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{Decimal(f'{value:.4g}'):f}"


_SENTENCES: dict[str, Callable[[float, str], str]] = {
    "slower": lambda value, _: f"the job does {percent(value)} of what its models say it can",
    "late_seconds_used": lambda value, _: f"{percent(value)} of the late seconds it allows itself were used",
    "planned_cost": lambda value, currency: (
        f"over all that it looks ahead its plan costs {amount_text(value)} {currency}"
    ),
    "cost_of_keeping": lambda value, currency: f"keeping the job as it is {amount_text(value)} {currency}",
}
"""Evidence whose name says nothing to who does not know the policy; the text may need the currency."""
_UNITS: dict[str, Callable[[float], str]] = {
    "_per_s": lambda value: f"{value:,.0f}/s" if value >= 10 else f"{_number_text(value)}/s",
    "_per_hour": lambda value: f"{amount_text(value)} an hour",
    "_mib": lambda value: f"{value:,.0f} MiB",
    "_share": _share_text,
    "_probability": _share_text,
    "_s": format_duration,
}


def _words(name: str) -> str:
    return name.replace("_", " ")


def expected_sentences(expected: Expected, *, currency: str, verb: str = "expected") -> Iterator[str]:
    """What a decision expected, in sentences; none where it did not say."""
    parts = []
    if expected.expected_rate_per_s is not None:
        high = _text(expected.expected_rate_high_per_s, ", hardly more than {:,.0f}/s")
        now = _text(expected.rate_per_s, " (now {:,.0f}/s)")
        parts.append(f"a rate of up to {expected.expected_rate_per_s:,.0f}/s{_known(high)}{_known(now)}")
    if expected.expected_latency_p95_s is not None:
        high = _text(expected.expected_latency_p95_high_s, ", hardly more than {:.2f} s")
        parts.append(f"a p95 latency of {seconds(expected.expected_latency_p95_s)}{_known(high)}")
    if expected.expected_recovery_s is not None:
        high = _text(expected.expected_recovery_high_s, ", hardly more than {:.0f} s")
        parts.append(
            f"a recovery from the worst failure in {whole_seconds(expected.expected_recovery_s)}{_known(high)}"
        )
    if expected.cost_per_hour is not None:
        before = "" if expected.cost_per_hour_before is None else f" after {amount_text(expected.cost_per_hour_before)}"
        parts.append(f"a cost of {amount_text(expected.cost_per_hour)} {currency} an hour{before}")
    if parts:
        yield f"It {verb}, over the next {format_duration(expected.over_s)}: {'; '.join(parts)}."
    if expected.saving_per_hour is not None:
        gained = "saves" if expected.saving_per_hour >= 0 else "costs"
        once = "" if expected.change_cost is None else f"; the change itself costs {amount_text(expected.change_cost)}"
        yield f"By its reckoning that {gained} {amount_text(abs(expected.saving_per_hour))} {currency} an hour{once}."
    if expected.keeps_probability is not None:
        yield f"The chance that all promises are kept, by its reckoning: {percent(expected.keeps_probability)}."
    if expected.calibration is not None and expected.calibration > 1.0:
        yield (
            f"Its margins: {expected.calibration:.2f} times as wide as usual, because earlier expectations were wrong."
        )


def _known(text: str) -> str:
    return "" if text == MISSING else text


def _what(step: Step) -> str:
    decision = step.decided.decision
    if isinstance(decision, Keep):
        return "keep the job as it is"
    if isinstance(decision, Profile):
        copies = _count(len(decision.candidates), "configuration")
        return f"measure {copies} in copies beside the job"
    target = step.wanted or decision.target
    source = step.change.request.source if step.change is not None else step.runs
    changed = str(target) if source is None else difference(source, target)
    return f"{changed}, as a rollback" if step.decided.origin is Origin.ROLLBACK else changed


def _guards(step: Step) -> Iterator[str]:
    verdicts = step.decided.verdicts
    if not verdicts:
        yield "The guards let it pass."
    for one in verdicts:
        did = "stopped it" if one.verdict is Verdict.VETO else "altered it"
        yield f"The guard {one.guard} {did}: {one.reason.sentence}"


def _profile_sentences(step: Step) -> Iterator[str]:
    story = step.profile
    if story is None:
        return
    if story.outcome is None:
        yield "The profile gave no result." if story.expired_at_s is not None else "The profile had not ended."
        return
    for one in story.outcome.measurements:
        latency = "no latency" if one.latency_p95_s is None else f"p95 latency {seconds(one.latency_p95_s)}"
        recovery = "" if one.recovery_s is None else f", recovery {_took(one.recovery_s)}"
        died = f" ({one.detail})" if one.detail else ""
        yield f"Measured: {one.configuration}: {one.processed_rate_per_s:,.0f}/s, {latency}{recovery}{died}."


def _how_it_ended(step: Step) -> str:
    story = step.change
    if story is None:
        return ""
    if story.undone_at_s is not None:
        return f"{story.request.mechanism}, taken back"
    if story.expired_at_s is not None:
        return f"{story.request.mechanism}, too late"
    if story.outcome is None:
        return f"{story.request.mechanism}, still on"
    if story.outcome.status is ChangeStatus.FAILED:
        return f"{story.request.mechanism}, failed"
    return str(story.request.mechanism)


def _latency_part(expected: Expected, came: Came) -> str:
    if came.latency_p95_s is None:
        return ""
    told = f"p95 {seconds(came.latency_p95_s)} came"
    if expected.expected_latency_p95_s is None:
        return told
    high_s = expected.expected_latency_p95_high_s
    most = "" if high_s is None else f", {seconds(high_s)} at most"
    said = f"p95 {seconds(expected.expected_latency_p95_s)} expected{most}"
    return f"{said}, {seconds(came.latency_p95_s)} came{_hits(came.latency)}"


def _hits(held: Held) -> str:
    if not held.of:
        return " (not judged)"
    missed = held.of - held.held
    return (
        f" (missed in {missed} of {_count(held.of, 'report')})"
        if missed
        else f" (hit in all {_count(held.of, 'report')})"
    )


def _latency_sentence(came: Came, expected: Expected) -> str:
    if came.latency_windows == 0:
        return "of latency nothing can be said: the job was idle"
    told = came.latency_windows - came.without_output
    median_s, worst_s = came.latency_p95_s, came.worst_latency_p95_s
    if median_s is None or worst_s is None:
        said = f"there was no output in {_count(came.without_output, 'report')} that owed it"
    elif told == 1:
        said = f"p95 latency was {seconds(median_s)}"
    else:
        said = f"p95 latency was {seconds(median_s)} as a rule and {seconds(worst_s)} at worst"
    if told and came.without_output:
        said += f", and {_count(came.without_output, 'report')} had no output"
    if expected.expected_latency_p95_high_s is None or not came.recovering_windows:
        return f"{said}{_verdict(came.latency)}"
    if not came.latency.of:
        return f"{said}: not judged, as the job was recovering from a failure, and how long that took is judged instead"
    others = _count(came.recovering_windows, "report")
    return f"{said}{_verdict(came.latency)} ({others} of a recovery from a failure not judged)"


def _verdict(held: Held) -> str:
    """A hit or a miss, in words; nothing where nothing was expected."""
    if not held.of:
        return ""
    if held.held == held.of:
        return ": a hit, never above the expected high level"
    return f": a miss, above the expected high level in {held.of - held.held} of {_count(held.of, 'report')}"


def _recovery(one: Recovered, limit_s: float | None) -> str:
    what = "a failure that nobody told of" if one.kind == FOUND else f"the failure {one.kind}"
    told = f"{what} was recovered from in {_took(one.took_s)}"
    if limit_s is None:
        return told
    took_s = at_least_s(one.took_s)
    if took_s > limit_s:
        return f"{told}: a miss"
    return told if isinstance(one.took_s, Censored) else f"{told}: a hit"


def _took(took_s: Measured) -> str:
    return f"at least {whole_seconds(took_s.at_least)}" if isinstance(took_s, Censored) else whole_seconds(took_s)


def _calibration_text(calibration: Calibration) -> str:
    names = (
        ("the rate", calibration.rate, calibration.rate_windows),
        ("p95 latency", calibration.latency, calibration.latency_windows),
    )
    told = [(name, held.share, windows) for name, held, windows in names if held.share is not None]
    where = "lay at or below the expected high level "
    parts = [
        f"{name} {'' if index else where}in {percent(share)} of {_count(windows, 'report')}"
        for index, (name, share, windows) in enumerate(told)
    ]
    parts = [listing(parts)] if parts else []
    if calibration.recovery.of:
        counted = _count(calibration.recovery.of, "recovery", "recoveries")
        parts.append(f"{calibration.recovery.held} of {counted} took no longer than expected at most")
    return "; ".join(parts)


def _calibration_document(calibration: Calibration) -> dict[str, dict[str, object]]:
    return {
        "rate": _held_document(calibration.rate) | {"windows": calibration.rate_windows},
        "latency": _held_document(calibration.latency) | {"windows": calibration.latency_windows},
        "recovery": _held_document(calibration.recovery),
    }


def _held_document(held: Held) -> dict[str, object]:
    return {"held": held.held, "of": held.of, "share": held.share}


def _text(value: float | None, form: str) -> str:
    return MISSING if value is None else form.format(value)


def _amount(value: float | None) -> str:
    return MISSING if value is None else amount_text(value)


def _share(held: Held, thing: str = "report", things: str | None = None) -> str:
    return MISSING if held.share is None else f"{percent(held.share)} of {_count(held.of, thing, things)}"


def _count(number: int, thing: str, things: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"
