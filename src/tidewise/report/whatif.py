"""What a replayed run comes to, in sentences first and tables second."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.table import Table

from tidewise.core import format_duration
from tidewise.experiments.whatif import FEWEST_FOR_SHARE, Interval, Outcome, WhatIf
from tidewise.experiments.whatif_fit import interval
from tidewise.experiments.whatif_replay import JUDGED, Figure, Misfit, Trust
from tidewise.report.fitted_table import fitted_table
from tidewise.report.wording import MISSING, count, listing, percent

_TRUST = {
    Trust.WELL: "The fit explains this run well",
    Trust.ROUGHLY: "The fit explains this run roughly",
    Trust.NOT: "The fit does not explain this run",
}
_ALIKE = 0.005
"""Of the cost of the run: what differs by less is the same."""
_NOTABLE = 0.02
"""Of all reports."""


def whatif_sentences(answer: WhatIf) -> list[str]:
    """What the run cost, what others would have cost, and how far that can be trusted."""
    said = [_trust(answer)] if answer.trust is Trust.NOT else []
    said.append(_actual(answer))
    said += [_outcome(answer, outcome) for outcome in answer.outcomes]
    if answer.trust is not Trust.NOT:
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
        else f" and kept its promised latency in {percent(actual.good_share)} of its reports"
    )
    return f"The run {recording.name} ({recording.policy}, {engine}, {lasted}{cut}) {cost}{good}."


def _outcome(answer: WhatIf, outcome: Outcome) -> str:
    currency, money = answer.question.prices.currency, _money(answer)
    cost = f"{money(outcome.cost.median)} {currency}{_between(answer, outcome.cost, money)}"
    good = ""
    if outcome.good_share is not None:
        share = outcome.good_share
        good = f", with {percent(share.median)} good reports{_between(answer, share, percent)}"
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


def _between(answer: WhatIf, value: Interval, form: Callable[[float], str]) -> str:
    low, high = form(value.low), form(value.high)
    return "" if low == high else f" ({_spread_of(answer)}: {low.removesuffix(' %')} to {high})"


def _spread_of(answer: WhatIf) -> str:
    """What an interval is: few replays do not tell what 90 % of them lie between."""
    draws = len(answer.fit.draws)
    return "90 %" if draws >= FEWEST_FOR_SHARE else f"{draws} draws"


def _trust(answer: WhatIf) -> str:
    explained, misfit = answer.explained, answer.explained.second_half
    trust = f"{_TRUST[answer.trust]}{_because(answer)}"
    if answer.trust is Trust.NOT:
        trust += ": do not trust the figures"
    if all(misfit.errors[figure] is None for figure in JUDGED):
        return f"{trust}. Its second half shows nothing that could be foretold."
    trust += f". Fitted to the first half, it misses the second by {_off(misfit)}"
    if explained.calm.windows and explained.calm.windows < misfit.windows:
        trust += f" (where nothing had broken or been changed lately, by {_off(explained.calm)})"
    if explained.foretold.errors != misfit.errors:
        trust += f"; where it has to foretell how long outages last as well, by {_off(explained.foretold)}"
    return f"{trust}; fitted to all of it, it misses that by {_off(explained.whole)}."


def _because(answer: WhatIf) -> str:
    """What of the run its own replay does not show, where that is why the fit is trusted less."""
    trust, actual, replayed, money = answer.trust, answer.actual, answer.replayed, _money(answer)
    if trust is answer.explained.second_half.trust:
        return ""
    reasons = []
    if trust is answer.good_trust and actual.good_share is not None and replayed.good_share is not None:
        reasons.append(
            f"has {percent(replayed.good_share.median)} good reports instead of {percent(actual.good_share)}"
        )
    if trust is answer.cost_trust:
        currency = answer.question.prices.currency
        reasons.append(f"costs {money(replayed.cost.median)} instead of {money(actual.cost)} {currency}")
    return f", because a replay of it {listing(reasons)}"


def _off(misfit: Misfit) -> str:
    return listing([f"{_whole(error)} in {one}" for one in JUDGED if (error := misfit.errors[one]) is not None])


def _replayed(answer: WhatIf) -> str:
    replayed, actual, money = answer.replayed, answer.actual, _money(answer)
    cost = f"{money(replayed.cost.median)} instead of {money(actual.cost)} {answer.question.prices.currency}"
    if replayed.good_share is None or actual.good_share is None:
        return f"Replayed as it was, the run comes to {cost}."
    share, off = percent(replayed.good_share.median), replayed.good_share.median - actual.good_share
    said = f"Replayed as it was, the run comes to {cost}, {share} instead of {percent(actual.good_share)} good reports"
    if abs(off) < _NOTABLE:
        return f"{said}."
    word = "many" if off > 0.0 else "few"
    return (
        f"{said}: expect that good reports are told about {100 * abs(off):.0f} points too {word} for the others, too."
    )


def whatif_table(answer: WhatIf, *, width: int) -> Table:
    """One row for the run, one for each policy; below a figure, what the replays lie between."""
    actual, outcomes, money = answer.actual, answer.outcomes, _money(answer)
    currency = answer.question.prices.currency
    good = MISSING if actual.good_share is None else percent(actual.good_share)
    cells = {
        "policy": [f"{answer.recording.policy} (the run)", *(outcome.policy for outcome in outcomes)],
        f"cost, {currency}": [money(actual.cost), *(_stacked(outcome.cost, money) for outcome in outcomes)],
        f"saved, {currency}": ["", *(_stacked(outcome.saved, money) for outcome in outcomes)],
        "saved": ["", *(_saved_share(answer, outcome) for outcome in outcomes)],
        "good reports": [good, *(_stacked(outcome.good_share, percent) for outcome in outcomes)],
        "changes": [str(actual.changes), *(count(outcome.changes.median) for outcome in outcomes)],
    }
    draws = len(answer.fit.draws)
    spread = "" if draws == 1 else f"; in brackets: {_spread_of(answer)}"
    return fitted_table(
        cells,
        width=width,
        title=f"{answer.recording.name}: the same load and failures{spread}",
        words=("policy",),
        breaking=("policy",),
        first_to_go=("changes", f"saved, {currency}"),
    )


def _stacked(value: Interval | None, form: Callable[[float], str]) -> str:
    if value is None:
        return MISSING
    low, median, high = form(value.low), form(value.median), form(value.high)
    return median if low == high else f"{median}\n({low.removesuffix(' %')}..{high.removesuffix(' %')})"


def _saved_share(answer: WhatIf, outcome: Outcome) -> str:
    return _whole(outcome.saved.median / answer.actual.cost) if answer.actual.cost > 0.0 else MISSING


def misfit_table(answer: WhatIf, *, width: int) -> Table:
    """How far the replay was off, in the whole run and in the half that was foretold."""
    explained = answer.explained
    rows = {
        "second half, from the first": explained.second_half,
        "its calm windows": explained.calm,
        "with outages foretold, too": explained.foretold,
        "all of it": explained.whole,
    }
    cells = {
        "": list(rows),
        **{figure.value: [_error(misfit, figure) for misfit in rows.values()] for figure in JUDGED},
        "windows": [str(misfit.windows) for misfit in rows.values()],
    }
    title = "How far off the replay is, on average over windows"
    return fitted_table(cells, width=width, title=title, words=("",), breaking=("",))


def _error(misfit: Misfit, figure: Figure) -> str:
    error = misfit.errors[figure]
    return MISSING if error is None else _whole(error)


def fit_table(answer: WhatIf, *, width: int) -> Table:
    """The parameters that the run shows."""
    values = answer.fit.values
    cells = {
        "parameter": [".".join(value.path) for value in values],
        "value": [f"{value.value:.4g}" for value in values],
        "90 %": ["{:.3g}..{:.3g}".format(*interval(value)) for value in values],
        "rests on": [value.basis for value in values],
    }
    words = ("parameter", "rests on")
    title = "What the run shows of the job"
    return fitted_table(cells, width=width, title=title, words=words, breaking=("rests on",), first_to_go=("rests on",))


def _money(answer: WhatIf) -> Callable[[float], str]:
    """Amounts without their currency, all with the digits that the cost of the run needs: a short run costs little."""
    cost = answer.actual.cost
    decimals = 2 if cost <= 0.0 else min(8, max(2, 2 - math.floor(math.log10(cost))))

    def money(amount: float) -> str:
        if cost >= 1000.0:
            return f"{amount:,.0f}"
        return f"{round(amount, decimals) + 0.0:.{decimals}f}"  # plus zero: no minus before nothing

    return money
