"""`tidewise whatif`: what other policies would have made of a run, and how far that can be trusted."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console

from tidewise.cli.output import console, experiment_progress, print_json, print_sentence
from tidewise.core import (
    BadInputError,
    InvalidValueError,
    PermanentError,
    Prices,
    Promises,
    format_duration,
    parse_duration_s,
)
from tidewise.engines.simulator.profile_file import profile_to_toml
from tidewise.experiments.plan import PricesTable, PromisesTable
from tidewise.experiments.spreading import THIS_PROCESS, spread_over
from tidewise.experiments.whatif import WhatIf, what_if
from tidewise.experiments.whatif_fit import DRAWS, RunFit, interval, usual_profile
from tidewise.experiments.whatif_plan import (
    USUAL_POLICIES,
    Question,
    plain_value,
    policies_of,
    space_of,
)
from tidewise.experiments.whatif_recording import Recording, read_recording
from tidewise.experiments.whatif_replay import Misfit
from tidewise.report.whatif import fit_table, misfit_table, whatif_sentences, whatif_table

_MOST_DRAWS = 99
_LONG_S = 7200.0
"""Of a run: replays of longer ones are worth the start of a Spark."""
_MASTER = "local[*]"


def whatif(
    run: Annotated[Path, typer.Argument(help="The folder of a run, also one that is on or was killed.")],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:KEY=VALUE,...]",
            help=f"A policy to replay, with its settings; by default {', '.join(USUAL_POLICIES)}.",
        ),
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            "--space",
            metavar="KEY=VALUE",
            help="What policies may choose from, as in executors=1..8; by default as recorded.",
        ),
    ] = None,
    latency_p95: Annotated[
        str | None, typer.Option("--latency-p95", metavar="DURATION", help="Another promise than the recorded one.")
    ] = None,
    good_share: Annotated[
        float | None, typer.Option("--good-share", help="Of all seconds, how many have to keep that latency.")
    ] = None,
    recovery: Annotated[
        str | None, typer.Option("--recovery", metavar="DURATION", help="Another promised recovery time.")
    ] = None,
    core_hour: Annotated[float | None, typer.Option("--core-hour", help="Another price of a core for an hour.")] = None,
    gib_hour: Annotated[
        float | None, typer.Option("--gib-hour", help="Another price of a GiB of memory for an hour.")
    ] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Of these prices.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", help="Where what the run does not show is taken from; by default spark-local for real runs."
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option("--draws", min=1, max=_MOST_DRAWS, help="How many profiles that explain the run are replayed."),
    ] = DRAWS,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE.toml", help="Write the fitted profile for `experiment`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Keep the plan and all simulated runs in this folder.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            help="The Spark that computes the replays; none: this process, one by one.",
            show_default=f"none up to {format_duration(_LONG_S)} of run, then {_MASTER}",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of sentences.")] = False,
) -> None:
    """Fit the simulator to a recorded run, replay its load under other policies, and say what would have been saved.

    The same load and the same failures, on several profiles that explain the run; with an interval, and how well the
    run is explained: the profile that is fitted to its first half has to foretell the second.

    For example:

    tidewise whatif runs/demo/morning-tidewise-1

    tidewise whatif runs/mine --policy ds2:target_utilisation=0.7 --policy static:executors=3

    tidewise whatif runs/mine --to mine.toml
      the fitted profile, for plans: profile = "mine.toml"
    """
    if to is not None and to.suffix != ".toml":
        raise BadInputError(f"--to {to}: the name of a profile has to end in .toml")
    recording = read_recording(run)
    usual = usual_profile(recording, profile)
    wanted = space_of(recording, _space(space or []))
    question = Question(
        policies=policies_of(recording, policy or [], wanted),
        space=wanted,
        promises=_promises(recording, latency_p95=latency_p95, good_share=good_share, recovery=recovery),
        prices=_prices(recording, core_hour=core_hour, gib_hour=gib_hour, currency=currency),
    )
    errors = Console(stderr=True)
    with ExitStack() as stack:
        home = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewise-whatif-")))
        quick = THIS_PROCESS if recording.duration_s <= _LONG_S else _MASTER
        spread = stack.enter_context(spread_over(master or quick))
        progress = stack.enter_context(experiment_progress(quiet=json))
        answer = what_if(
            recording,
            question,
            usual=usual,
            draws=draws,
            home=home,
            spread=spread,
            say=lambda sentence: None if json else print_sentence(sentence, errors),
            progress=progress,
        )
    if to is not None:
        _write_profile(to, recording, answer.fit)
    if json:
        print_json(_document(answer, to))
        return
    _print(answer, to=to, out=out)


def _print(answer: WhatIf, *, to: Path | None, out: Path | None) -> None:
    screen = console()
    for sentence in whatif_sentences(answer):
        print_sentence(sentence, screen)
    screen.print()
    for table in (whatif_table(answer), misfit_table(answer), fit_table(answer)):
        screen.print(table)
    if to is not None:
        print_sentence(f"The fitted profile: {to}", screen)
    if out is not None:
        print_sentence(f"The plan and its runs: {out}", screen)


def _space(written: list[str]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for text in written:
        key, equals, value = text.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise BadInputError(f"--space {text}: write a key and a value, as in --space executors=1..8")
        parts = [plain_value(part.strip()) for part in value.split(",")]
        found[key.strip()] = parts if len(parts) > 1 else parts[0]
    return found


def _promises(
    recording: Recording, *, latency_p95: str | None, good_share: float | None, recovery: str | None
) -> Promises:
    known = recording.promises
    if known is None and latency_p95 is None and recovery is None:
        raise BadInputError(
            f"{recording.name} does not say what was promised, since it is not over; write it, as in --latency-p95 5s"
        )
    share = PromisesTable().good_share if known is None else known.good_share
    try:
        return Promises(
            latency_p95_s=_seconds("--latency-p95", latency_p95, None if known is None else known.latency_p95_s),
            good_share=share if good_share is None else good_share,
            recovery_s=_seconds("--recovery", recovery, None if known is None else known.recovery_s),
        )
    except InvalidValueError as error:
        raise BadInputError(f"the promises: {error}") from error


def _seconds(option: str, text: str | None, otherwise: float | None) -> float | None:
    if text is None:
        return otherwise
    try:
        return parse_duration_s(text)
    except InvalidValueError as error:
        raise BadInputError(f"{option}: {error}") from error


def _prices(recording: Recording, *, core_hour: float | None, gib_hour: float | None, currency: str | None) -> Prices:
    known = recording.prices or PricesTable().prices()
    try:
        return Prices(
            core_hour=known.core_hour if core_hour is None else core_hour,
            gib_hour=known.gib_hour if gib_hour is None else gib_hour,
            currency=known.currency if currency is None else currency,
        )
    except InvalidValueError as error:
        raise BadInputError(f"the prices: {error}") from error


def _write_profile(path: Path, recording: Recording, fit: RunFit) -> None:
    assumed = "".join(f"\n- {one}" for one in fit.assumed)
    preface = (
        f"Fitted to the run {recording.name} by: tidewise whatif RUN --to THIS_FILE\n"
        f"Not in that run, and so as in the profile {fit.usual}:{assumed or ' nothing'}"
    )
    try:
        path.write_text(profile_to_toml(fit.profile, preface=preface), encoding="utf-8")
    except OSError as error:
        raise PermanentError(f"the profile {path} cannot be written: {error.strerror}") from error


def _document(answer: WhatIf, to: Path | None) -> dict[str, object]:
    recording, explained = answer.recording, answer.explained
    return {
        "run": recording.name,
        "engine": recording.engine,
        "policy": recording.policy,
        "seconds": recording.duration_s,
        "complete": recording.complete,
        "currency": answer.question.prices.currency,
        "sentences": whatif_sentences(answer),
        "actual": asdict(answer.actual),
        "replayed": asdict(answer.replayed),
        "policies": [asdict(outcome) for outcome in answer.outcomes],
        "trust": explained.second_half.trust.value,
        "second_half": _misfit(explained.second_half),
        "calm": _misfit(explained.calm),
        "foretold": _misfit(explained.foretold),
        "whole": _misfit(explained.whole),
        "parameters": [
            {
                "name": ".".join(value.path),
                "value": value.value,
                "low": interval(value)[0],
                "high": interval(value)[1],
                "rests_on": value.basis,
            }
            for value in answer.fit.values
        ],
        "assumed": list(answer.fit.assumed),
        "assumed_from": answer.fit.usual,
        "profile": None if to is None else str(to),
    }


def _misfit(misfit: Misfit) -> dict[str, object]:
    return {"windows": misfit.windows, "errors": {figure.value: error for figure, error in misfit.errors.items()}}
