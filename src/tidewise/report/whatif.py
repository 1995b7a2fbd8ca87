"""What a replayed run comes to, in sentences first and tables second."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tidewise.core import format_duration
from tidewise.experiments.whatif import Interval, Outcome, WhatIf
from tidewise.experiments.whatif_fit import interval
from tidewise.experiments.whatif_replay import JUDGED, Figure, Misfit, Trust
from tidewise.report.wording import MISSING, count, listing, percent

_TRUST = {
    Trust.WELL: "The fit explains this run well",
    Trust.ROUGHLY: "The fit explains this run roughly",
    Trust.NOT: "The fit does not explain this run: do not trust the figures",
}
_ALIKE = 0.005
"""Of the cost of the run: what differs by less is the same."""
_NOTABLE = 0.02
"""Of all seconds."""


def whatif_sentences(answer: WhatIf) -> list[str]:
    """What the run cost, what others would have cost, and how far that can be trusted."""
    said = [_trust(answer)] if answer.explained.second_half.trust is Trust.NOT else []
    said.append(_actual(answer))
    said += [_outcome(answer, outcome) for outcome in answer.outcomes]
    if answer.explained.second_half.trust is not Trust.NOT:
        said.append(_trust(answer))
    said.append(_replayed(answer))
    if answer.fit.assumed:
        said.append(
            f"Assumed as in the profile {answer.fit.usual}, because the run does not show it: "
            f"{'; '.join(answer.fit.assumed)}."
        )
    if answer.explained.left_out:
        said.append(f"{answer.explained.left_out} recorded changes could not be replayed and were left out.")
    return said


def _actual(answer: WhatIf) -> str:
    recording, actual, money = answer.recording, answer.actual, _money(answer)
    engine = "simulated" if recording.is_simulated else f"on {recording.engine.capitalize()}"
    lasted = format_duration(recording.duration_s)
    cut = "" if recording.complete else ", as far as it was recorded"
    cost = f"cost {money(actual.cost)} {answer.question.prices.currency}"
    if actual.is_reckoned:
        cost += " for its executors, as its reports tell (nothing was metered)"
    good = (
        ""
        if actual.good_share is None
        else f" and kept its promised latency in {percent(actual.good_share)} of all seconds"
    )
    return f"The run {recording.name} ({recording.policy}, {engine}, {lasted}{cut}) {cost}{good}."


def _outcome(answer: WhatIf, outcome: Outcome) -> str:
    currency, money = answer.question.prices.currency, _money(answer)
    cost = f"{money(outcome.cost.median)} {currency}{_between(outcome.cost, money)}"
    good = ""
    if outcome.good_share is not None:
        good = f", with {percent(outcome.good_share.median)} good seconds{_between(outcome.good_share, percent)}"
    made = "no change" if outcome.changes.median == 0 else f"{count(outcome.changes.median)} changes"
    made = "1 change" if outcome.changes.median == 1 else made
    failed = f"; it failed {outcome.failed_decisions} times instead of deciding" if outcome.failed_decisions else ""
    return f"{outcome.policy} would have cost {cost}, {_less(answer, outcome)}{good} and {made}{failed}."


def _less(answer: WhatIf, outcome: Outcome) -> str:
    cost, saved = answer.actual.cost, outcome.saved.median
    if cost <= 0.0 or abs(saved) < _ALIKE * cost:
        return "about the same"
    word = "less" if saved > 0.0 else "more"
    return f"{_money(answer)(abs(saved))} {answer.question.prices.currency} or {_whole(abs(saved) / cost)} {word}"


def _whole(share: float) -> str:
    return f"{round(100 * share) + 0} %"


def _between(value: Interval, form: Callable[[float], str]) -> str:
    low, high = form(value.low), form(value.high)
    return "" if low == high else f" (90 %: {low.removesuffix(' %')} to {high})"


def _trust(answer: WhatIf) -> str:
    misfit = answer.explained.second_half
    if all(misfit.errors[figure] is None for figure in JUDGED):
        return f"{_TRUST[Trust.NOT]}. Its second half shows nothing that could be foretold."
    explained = answer.explained
    trust = f"{_TRUST[misfit.trust]}. Fitted to the first half, it misses the second by {_off(misfit)}"
    if explained.calm.windows and explained.calm.windows < misfit.windows:
        trust += f" (where nothing had broken or been changed lately, by {_off(explained.calm)})"
    if explained.foretold.errors != misfit.errors:
        trust += f"; where it has to foretell how long outages last as well, by {_off(explained.foretold)}"
    return f"{trust}; fitted to all of it, it misses that by {_off(explained.whole)}."


def _off(misfit: Misfit) -> str:
    return listing([f"{_whole(error)} in {one}" for one in JUDGED if (error := misfit.errors[one]) is not None])


def _replayed(answer: WhatIf) -> str:
    replayed, actual, money = answer.replayed, answer.actual, _money(answer)
    cost = f"{money(replayed.cost.median)} instead of {money(actual.cost)} {answer.question.prices.currency}"
    if replayed.good_share is None or actual.good_share is None:
        return f"Replayed as it was, the run comes to {cost}."
    share, off = percent(replayed.good_share.median), replayed.good_share.median - actual.good_share
    said = f"Replayed as it was, the run comes to {cost}, {share} instead of {percent(actual.good_share)} good seconds"
    if abs(off) < _NOTABLE:
        return f"{said}."
    word = "many" if off > 0.0 else "few"
    return (
        f"{said}: expect that good seconds are told about {100 * abs(off):.0f} points too {word} for the others, too."
    )


def whatif_table(answer: WhatIf) -> Table:
    """One row for the run, one for each policy."""
    table = Table(
        title=Text(f"{answer.recording.name}: the same load and failures"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    currency, money = answer.question.prices.currency, _money(answer)
    columns = (
        "policy",
        f"cost, {currency}",
        "90 %",
        f"saved, {currency}",
        "90 %",
        "saved",
        "good seconds",
        "90 %",
        "changes",
    )
    for name in columns:
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    actual = answer.actual
    good = MISSING if actual.good_share is None else percent(actual.good_share)
    made = str(actual.changes)
    table.add_row(f"{answer.recording.policy} (the run)", money(actual.cost), "", "", "", "", good, "", made)
    for outcome in answer.outcomes:
        share = outcome.good_share
        table.add_row(
            outcome.policy,
            money(outcome.cost.median),
            f"{money(outcome.cost.low)}..{money(outcome.cost.high)}",
            money(outcome.saved.median),
            f"{money(outcome.saved.low)}..{money(outcome.saved.high)}",
            _whole(outcome.saved.median / actual.cost) if actual.cost > 0.0 else MISSING,
            MISSING if share is None else percent(share.median),
            "" if share is None else f"{percent(share.low).removesuffix(' %')}..{percent(share.high)}",
            count(outcome.changes.median),
        )
    return table


def misfit_table(answer: WhatIf) -> Table:
    """How far the replay was off, in the whole run and in the half that was foretold."""
    table = Table(
        title=Text("How far off the replay is, on average over windows"),
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in ("", *JUDGED, "windows"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    explained = answer.explained
    for name, misfit in (
        ("second half, from the first", explained.second_half),
        ("its calm windows", explained.calm),
        ("with outages foretold, too", explained.foretold),
        ("all of it", explained.whole),
    ):
        table.add_row(name, *(_error(misfit, figure) for figure in JUDGED), str(misfit.windows))
    return table


def _error(misfit: Misfit, figure: Figure) -> str:
    error = misfit.errors[figure]
    return MISSING if error is None else _whole(error)


def fit_table(answer: WhatIf) -> Table:
    """The parameters that the run shows."""
    table = Table(
        title=Text("What the run shows of the job"), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for name in ("parameter", "value", "90 %", "rests on"):
        table.add_column(name, justify="left" if name in {"parameter", "rests on"} else "right", no_wrap=True)
    for value in answer.fit.values:
        low, high = interval(value)
        table.add_row(".".join(value.path), f"{value.value:.4g}", f"{low:.3g}..{high:.3g}", value.basis)
    return table


def _money(answer: WhatIf) -> Callable[[float], str]:
    """Amounts without their currency, all with the digits that the cost of the run needs: a short run costs little."""
    cost = answer.actual.cost
    decimals = 2 if cost <= 0.0 else min(8, max(2, 2 - math.floor(math.log10(cost))))

    def money(amount: float) -> str:
        if cost >= 1000.0:
            return f"{amount:,.0f}"
        return f"{round(amount, decimals) + 0.0:.{decimals}f}"  # plus zero: no minus before nothing

    return money
