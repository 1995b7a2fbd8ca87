"""`tidewise whatif`: what other policies would have made of a run, and how far that can be trusted."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console

from tidewise.cli.output import console, experiment_progress, print_json, print_sentence, print_wrapped
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
from tidewise.experiments.policy_words import plain_value
from tidewise.experiments.spreading import THIS_PROCESS, spread_over
from tidewise.experiments.whatif import WhatIf, what_if
from tidewise.experiments.whatif_fit import DRAWS, RunFit, interval, usual_profile
from tidewise.experiments.whatif_plan import (
    USUAL_POLICIES,
    Question,
    policies_of,
    refuse_what_is_there,
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
        typer.Option("--draws", help=f"How many profiles that explain the run are replayed, up to {_MOST_DRAWS}."),
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
    if to is not None:
        _check_to(to)
    if not 1 <= draws <= _MOST_DRAWS:
        raise BadInputError(f"--draws {draws}: write a number from 1 to {_MOST_DRAWS}")
    recording = read_recording(run)
    if out is not None:
        _check_out(out, recording)
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
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewise-whatif-"))) if out is None else out
        if out is not None:
            _make(out)
            stack.callback(_clear_if_empty, out)
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
        print_wrapped(sentence, screen)
    screen.print()
    for table in (whatif_table, misfit_table, fit_table):
        screen.print(table(answer, width=screen.width))
    if to is not None:
        print_sentence(f"The fitted profile: {to}", screen)
    if out is not None:
        print_sentence(f"The plan and its runs: {out}", screen)


def _check_to(path: Path) -> None:
    """Not when minutes have been spent: what cannot be written is told before."""
    if path.suffix != ".toml":
        raise BadInputError(f"--to {path}: the name of a profile has to end in .toml")
    if path.is_dir():
        raise BadInputError(f"--to {path}: this is a folder; name a file in it")
    if not path.parent.is_dir():
        raise BadInputError(f"--to {path}: there is no folder {path.parent}; make it, or name a file in another one")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"--to {path}: it may not be written there; name a file in a folder of yours")


def _check_out(folder: Path, recording: Recording) -> None:
    try:
        refuse_what_is_there(folder, recording)
    except BadInputError as error:
        raise BadInputError(f"--out {folder}: {error}") from error
    except OSError as error:
        raise BadInputError(f"--out {folder}: it cannot be read: {error.strerror}; name another folder") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"--out {folder}: the folder cannot be made: {error.strerror}; name one in a folder of yours"
        ) from error
    if not os.access(folder, os.W_OK):
        raise BadInputError(f"--out {folder}: nothing may be written there; name a folder of yours")


def _clear_if_empty(folder: Path) -> None:
    """Where nothing came of it, nothing is left of it."""
    with suppress(OSError):
        folder.rmdir()


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
        "trust": answer.trust.value,
        "draws": len(answer.fit.draws),
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
