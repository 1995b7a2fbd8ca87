"""How many records have come by any moment: rates per step, summed exactly, as the embedded source's clockwork."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tidewise.core import BadInputError, InvalidValueError
from tidewise.core.checks import require, require_finite
from tidewise.core.readers import did_you_mean

After = Literal["hold", "stop", "repeat"]
"""What comes after the last step: its rate for ever, nothing, or the first step again."""
Whole = NDArray[np.int64]

MOST_PER_S = 1e7
_LEAST_STEP_S = 0.001
_MICROS = 1_000_000
# Rates need not be whole: sums of millionths of a record are exact, so the same file always gives the same records.
_PARTS = 1_000_000
_MOST_RECORDS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The steps in which some records come: enough to tell the time of each, and small enough to send to a worker."""

    first: Whole
    """The first record of each step."""
    began_us: Whole
    """When each step begins, in microseconds since the epoch."""
    parts_before: Whole
    """What had come before each step, in millionths of a record."""
    us_per_part: NDArray[np.float64]
    """How long a millionth of a record takes in each step."""

    def times_us(self, ordinals: Whole) -> Whole:
        """When each of these records became available."""
        # Of steps that begin at the same record only the last has any.
        step = np.searchsorted(self.first, ordinals, side="right") - 1
        parts = (ordinals + 1) * _PARTS - self.parts_before[step]
        # Rounded down: no record may seem to come from the future.
        return self.began_us[step] + (parts * self.us_per_part[step]).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Records per second, step by step since a moment of the wall clock.

    Whoever changes the schedule of a running job may change its future only: steps that have not begun. (Of `repeat`
    that is the first round, of `hold` whatever was not yet reached.) A record's time follows from all steps before it.
    """

    began_unix_s: float
    step_s: float = 1.0
    rates_per_s: tuple[float, ...]
    after: After = "hold"
    _parts: Whole = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_finite("began_unix_s", self.began_unix_s, least=0.0)
        require_finite("step_s", self.step_s, least=_LEAST_STEP_S)
        require(len(self.rates_per_s) > 0, "rates_per_s must hold at least one rate, such as [1000]")
        for rate in self.rates_per_s:
            require(0.0 <= rate <= MOST_PER_S, f"rates_per_s must lie between 0 and {MOST_PER_S:g}, not {rate:g}")
        require(self.after in get_args(After), f"after must be one of {', '.join(get_args(After))}, not {self.after!r}")
        total = math.fsum(self.rates_per_s) * self.step_s
        require(
            total <= _MOST_RECORDS, f"rates_per_s must not bring more than {_MOST_RECORDS:g} records, not {total:g}"
        )
        grown = np.rint(np.array(self.rates_per_s) * (self.step_s * _PARTS)).astype(np.int64)
        object.__setattr__(self, "_parts", np.concatenate(([0], np.cumsum(grown))))

    def available(self, unix_s: float) -> int:
        """How many records have come by then; never fewer at a later moment."""
        elapsed_us = round((unix_s - self.began_unix_s) * _MICROS)
        if elapsed_us <= 0:
            return 0
        step, within_us = divmod(elapsed_us, self._step_us)
        before, after = (int(parts) for parts in self._parts_before(np.array([step, step + 1])))
        return (before + (after - before) * within_us // self._step_us) // _PARTS

    def pieces(self, first: int, end: int) -> Pieces:
        """The steps in which the records from `first` to just before `end` come; BadInputError if they never do."""
        steps = np.arange(self._step_of(first), self._step_of(end - 1) + 1)
        before = self._parts_before(steps)
        grown = self._parts_before(steps + 1) - before
        return Pieces(
            first=before // _PARTS,
            began_us=round(self.began_unix_s * _MICROS) + steps * self._step_us,
            parts_before=before,
            us_per_part=self._step_us / np.maximum(grown, 1),
        )

    @property
    def _step_us(self) -> int:
        return round(self.step_s * _MICROS)

    def _parts_before(self, steps: Whole) -> Whole:
        count = len(self.rates_per_s)
        rounds, more = np.zeros_like(steps), 0
        if self.after == "repeat":
            rounds, steps = np.divmod(steps, count)
        elif self.after == "hold":
            more = int(self._parts[-1] - self._parts[-2])
        rest: Whole = rounds * int(self._parts[-1]) + np.maximum(steps - count, 0) * more
        return self._parts[np.minimum(steps, count)] + rest

    def _step_of(self, ordinal: int) -> int:
        wanted, count, total = (ordinal + 1) * _PARTS, len(self.rates_per_s), int(self._parts[-1])
        rounds = 0
        if wanted > total:
            more = total - int(self._parts[-2])
            if self.after == "hold" and more > 0:
                return count + (wanted - total - 1) // more
            if self.after != "repeat" or total == 0:
                raise BadInputError(
                    f"the schedule ends after {total // _PARTS} records, but record {ordinal} was given out before; "
                    "bring back its past and change only steps that have not begun"
                )
            rounds, rest = divmod(wanted - 1, total)
            wanted = rest + 1
        return rounds * count + int(np.searchsorted(self._parts, wanted)) - 1


def read_schedule(file: Path) -> Schedule:
    """The schedule in a JSON file; BadInputError says what is wrong with it."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"the schedule {file} does not exist; write it or correct the option schedule") from None
    except (OSError, ValueError) as error:
        raise BadInputError(f"the schedule {file} cannot be read ({error}); write one JSON object") from None
    try:
        return _schedule_of(values)
    except InvalidValueError as error:
        raise BadInputError(f"the schedule {file}: {error}") from None


def write_schedule(file: Path, schedule: Schedule) -> None:
    """Put the schedule in place in one step, so that a running job never reads half of it."""
    known = {name: value for name, value in asdict(schedule).items() if name in _KNOWN}
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_text(json.dumps(known), encoding="utf-8")
    fresh.replace(file)


_KNOWN = {entry.name: entry for entry in fields(Schedule) if entry.init}


def _schedule_of(values: object) -> Schedule:
    require(isinstance(values, dict), 'must be an object such as {"began_unix_s": 1.8e9, "rates_per_s": [1000]}')
    assert isinstance(values, dict)  # noqa: S101 - tells the type checker what the line above made sure of
    for name in values:
        require(name in _KNOWN, f"{name!r} is not known{did_you_mean(name, _KNOWN)}")
    for name in ("began_unix_s", "rates_per_s"):
        require(name in values, f"{name} is missing; add it")
    rates = values["rates_per_s"]
    require(isinstance(rates, list), f"rates_per_s must be a list of numbers, not {rates!r}")
    for number in (*rates, values["began_unix_s"], values.get("step_s", 1.0)):
        fits = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
        require(fits, f"{number!r} is not a finite number; write one such as 1000")
    return Schedule(**{**values, "rates_per_s": tuple(rates)})
