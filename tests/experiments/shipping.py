"""Homes of jobs with a run in them, and places that rows are told to, for tests of telemetry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import write_journal
from tests.experiments.test_record import a_record, a_series
from tidewise.core import JournalEvent, TemporaryError
from tidewise.experiments.record import finish_run

BEGAN_UNIX_S = 1_800_000_000.0
RUN = "small-reactive-1"


def a_home(folder: Path, events: Iterable[JournalEvent], *, job: str = GOOD) -> Path:
    """The home of a `tidewise run` that is on, with this journal; answers the folder of its run."""
    run = write_journal(folder / f"{RUN}.partial", events).with_name(RUN)
    write_job(folder, job)
    (folder / "began.json").write_text(json.dumps({"unix_s": BEGAN_UNIX_S}), encoding="utf-8")
    return run


def end_run(run: Path, **values: object) -> None:
    """Give the folder of a run its name, as a controller does in the end."""
    finish_run(run.with_name(f"{run.name}.partial"), a_record(name=run.name, **values), a_series())


class Place:
    """Keeps what it is told; may be away."""

    gather_s = 0.0
    most_lines = 1000

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.sends = 0
        self.away = 0
        """How many sends fail before the next one that does not."""

    def send(self, lines: Sequence[tuple[str, str]]) -> None:
        self.sends += 1
        if self.away > 0:
            self.away -= 1
            raise TemporaryError("nobody is there")
        self.lines += lines

    def close(self) -> None:
        pass

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in self.lines]

    @property
    def numbers(self) -> list[int]:
        return [row["line"] for row in self.rows]
