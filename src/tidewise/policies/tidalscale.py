"""Prediction over minutes and days with a table of what was seen to cope, as an opponent: TidalScale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar

from tidewise.core import (
    Configuration,
    ConfigurationSpace,
    Decision,
    Evidence,
    JobStatus,
    Mechanism,
    Observation,
    Situation,
    format_duration,
)
from tidewise.core.checks import require, require_finite
from tidewise.core.saved import check_format, damage_told
from tidewise.policies.executors_only import needs_executors
from tidewise.policies.replies import cooling_down, keep, move, not_now, percent
from tidewise.policies.replies import executors as say
from tidewise.policies.tidal_predictions import Predictor, TidalPredictions

_ROUNDING = 1e-9
_FORMAT = 1
"""The version of what is saved."""


@dataclass(kw_only=True)
class TidalScale:
    """Scales to what a short- and a long-term prediction ask for, by a table of loads that were coped with.

    Every report that shows the job coping (memory, CPU and lag within bounds) enters the historic performance table:
    for its number of executors and its CPU to one decimal, the exponential average of the load. The job is
    overutilised when memory, CPU or lag is too high or the lag has risen ten times in a row, and underutilised when
    CPU is low and all else is fine. Then, and only then, the load is predicted `horizon_s` ahead: by a line through the
    last minutes and by Holt-Winters with a daily season, weighed by the recent error of the other. The target rate is

        ((prediction + current rate) / 2 x horizon + lag) / horizon

    and the smallest number of executors is taken that the table, read at `target_cpu`, says to bear it. The table is
    interpolated between what it holds and continued in proportion beyond it. It acts only in the direction in which the
    job was found wanting, and not within `cooldown_s` of the last change.

    Where this differs from the original: reports are the engine's, not one a second through a topic; the lag rule is
    the described one (the prototype compares other numbers than it means to); Holt-Winters is the house's, damped and
    multiplicative, where the original chooses between additive and multiplicative by AIC, and goes without a season
    until two have been seen; the largest load of each row of the table is not kept, since nothing described reads it;
    while the table is empty the report at hand stands in for it, where the original could not decide; a change of
    anything but the executors empties the table; the fewest and the most executors are those of the space, where the
    original stays between 1 and 20.

    Micro-batches always leave a lag of one or two batches: give a `lag_s` above that where a batch takes longer than
    half a second.
    """

    name: ClassVar[str] = "tidalscale"

    max_memory_share: float = 0.9
    """Memory above this share is too full."""
    max_cpu: float = 0.8
    """CPU above this share is overutilised, and no row of the table."""
    low_cpu: float = 0.4
    """CPU below this share is underutilised."""
    least_cpu: float = 0.2
    """CPU below this share says too little to be a row of the table."""
    target_cpu: float = 0.6
    """The CPU at which the table is read."""
    lag_s: float = 1.0
    """A lag of more than what arrives in this time is too much."""
    lag_rises: int = 10
    """So many reports in a row with a larger lag than the one before are too many."""
    cooldown_s: float = 180.0
    """How long nothing is done after a change."""
    horizon_s: float = 180.0
    """How far ahead is predicted, and in what time a lag has to be worked off."""
    short_window_s: float = 540.0
    """The short-term line goes through the load of this time."""
    season_s: float = 86_400.0
    """The season of the long-term prediction."""
    table_smoothing: float = 0.2
    """What a new load counts in the average of its row."""
    error_smoothing: float = 0.5
    """What a new error counts in the average by which the predictions are weighed."""
    mechanism: Mechanism | None = None
    """How to change the executors; none leaves it to the engine."""

    _table: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Load by executors and tenths of CPU."""
    _rest: Configuration | None = field(default=None, init=False, repr=False, compare=False)
    """What the table is about, but for the executors."""
    _rises: int = field(default=0, init=False, repr=False, compare=False)
    _lag: float | None = field(default=None, init=False, repr=False, compare=False)
    _predictions: Predictor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_memory_share", "max_cpu", "low_cpu", "target_cpu"):
            share = getattr(self, name)
            require(0.0 < share <= 1.0, f"{name} must be above 0 and at most 1, not {share:g}")
        require(
            0.0 <= self.least_cpu < self.max_cpu,
            f"least_cpu must be at least 0 and below max_cpu, not {self.least_cpu:g}",
        )
        require(self.low_cpu < self.max_cpu, f"low_cpu must be below max_cpu, not {self.low_cpu:g}")
        require_finite("lag", self.lag_s, above=0.0)
        require(self.lag_rises >= 1, f"lag_rises must be at least 1, not {self.lag_rises}")
        require_finite("cooldown", self.cooldown_s, least=0.0)
        require(
            0.0 < self.table_smoothing <= 1.0,
            f"table_smoothing must be above 0 and at most 1, not {self.table_smoothing:g}",
        )
        self._predictions = TidalPredictions(
            horizon_s=self.horizon_s,
            short_window_s=self.short_window_s,
            season_s=self.season_s,
            error_smoothing=self.error_smoothing,
        )

    @property
    def history_s(self) -> float:
        return 0.0

    def listen_to(self, predictor: Predictor) -> None:
        """Have the load to come told by somebody else, as where predictions are services of their own."""
        self._predictions = predictor

    def remember(self, configuration: Configuration, *, cpu_share: float, load_per_s: float) -> None:
        """Begin with a load that was coped with before, as a table of many jobs has it, until a report says more.

        What differs in more than the executors from what was remembered or reported before is left out.
        """
        rest, row = configuration.with_executors(1), (configuration.executors, round(10 * cpu_share))
        self._rest = rest if self._rest is None else self._rest
        if rest == self._rest and self.least_cpu <= cpu_share <= self.max_cpu and row[1] > 0 and load_per_s > 0.0:
            self._table.setdefault(row, load_per_s)

    def save(self) -> dict[str, object]:
        """What it has learnt as its own meter: the table and the lag, but for what its predictor knows."""
        return {
            "format": _FORMAT,
            "table": [[executors, tenths, load] for (executors, tenths), load in self._table.items()],
            "rest": None if self._rest is None else asdict(self._rest),
            "rises": self._rises,
            "lag": self._lag,
        }

    def load(self, saved: Mapping[str, object]) -> None:
        """Go on from what `save` gave; BadInputError where that is something else."""
        instead = "let it learn anew"
        check_format(saved, version=_FORMAT, what="the saved policy tidalscale has", instead=instead)
        with damage_told(what="the saved policy tidalscale is", instead=instead):
            rows = [(int(executors), int(tenths), float(load)) for executors, tenths, load in saved["table"]]  # type: ignore[attr-defined]  # checked by trying
            rest, lag = saved["rest"], saved["lag"]
            self._table = {(executors, tenths): load for executors, tenths, load in rows}
            self._rest = None if rest is None else _configuration(rest)
            self._rises = int(saved["rises"])  # type: ignore[call-overload]  # checked by trying
            self._lag = None if lag is None else float(lag)  # type: ignore[arg-type]  # checked by trying

    def requires(self, space: ConfigurationSpace) -> str | None:
        """What the space lacks for this policy, in a sentence; None where nothing is missing."""
        return needs_executors(self.name, space)

    def learn(self, observation: Observation) -> None:
        """The performance meter: every load is sampled, and one that is coped with enters the table."""
        self._predictions.learn(observation)
        self._watch_lag(observation)
        rest = observation.configuration.with_executors(1)
        if rest != self._rest:
            self._rest = rest
            self._table.clear()
        cpu = observation.cpu_share
        if observation.status is not JobStatus.RUNNING or cpu is None or not self._copes(observation, cpu):
            return
        row = observation.configuration.executors, round(10 * cpu)
        load = observation.load_per_s
        before = self._table.get(row, load)
        self._table[row] = before + self.table_smoothing * (load - before)

    def decide(self, situation: Situation) -> Decision:
        waiting = not_now(situation) or cooling_down(situation, self.cooldown_s)
        if waiting is not None:
            return waiting
        over, under = self._overutilised(situation.latest), self._underutilised(situation.latest)
        if over is None and situation.latest.cpu_share is None:
            return keep("no-metrics", "The last report does not tell CPU, and memory and lag are within their bounds.")
        if over is None and under is None:
            return keep("well-utilised", "Memory, CPU and lag are within their bounds: nothing is to be done.")
        return self._rescale(situation, why=over or under or "", up=over is not None)

    def _rescale(self, situation: Situation, *, why: str, up: bool) -> Decision:
        latest, current = situation.latest, situation.intended.executors
        target_rate, evidence = self._target_rate(latest)
        enough = self._enough(latest, situation.space, target_rate)
        if enough is None:
            return keep("no-table", f"{why}, but no report yet tells what load how many executors cope with.", evidence)
        evidence = {**evidence, "asked_for": enough, "rows": len(self._table)}
        sentence = f"{why}; {target_rate:.4g}/s are to be processed, for which the table asks for {say(enough)}"
        if (enough > current) is not up or enough == current:
            return keep("other-direction", f"{sentence}, not {'more' if up else 'fewer'} than {current}.", evidence)
        return move(
            situation,
            situation.intended.with_executors(enough),
            mechanism=self.mechanism,
            code="scale-up" if up else "scale-down",
            sentence=f"{sentence} instead of {current}.",
            evidence=evidence,
        )

    # Triggers -------------------------------------------------------------------------------------------------------

    def _overutilised(self, report: Observation) -> str | None:
        """Why the job has too much to do; None where it has not."""
        if _above(report.memory_share, self.max_memory_share):
            return f"Memory is used to {percent(report.memory_share or 0.0)}"
        if _above(report.cpu_share, self.max_cpu):
            return f"CPU is used to {percent(report.cpu_share or 0.0)}"
        if report.backlog_records > self.lag_s * report.load_per_s:
            return f"{report.backlog_records:.4g} records wait, more than arrive in {format_duration(self.lag_s)}"
        if self._rises >= self.lag_rises:
            return f"The lag has risen {self._rises} times in a row"
        return None

    def _underutilised(self, report: Observation) -> str | None:
        """Why the job has too little to do, nothing else being wrong; None where it has not."""
        if report.cpu_share is None or report.cpu_share >= self.low_cpu:
            return None
        return f"CPU is used to {percent(report.cpu_share)} only"

    def _copes(self, report: Observation, cpu: float) -> bool:
        return (
            not _above(report.memory_share, self.max_memory_share)
            and self.least_cpu <= cpu <= self.max_cpu
            # Tenths of CPU: what rounds to none would be a row that cannot be divided by.
            and round(10 * cpu) > 0
            and report.backlog_records < self.lag_s * report.load_per_s
        )

    def _watch_lag(self, report: Observation) -> None:
        # While the job is down its lag rises, and that says nothing about its size.
        runs = report.status is JobStatus.RUNNING
        rose = runs and self._lag is not None and report.backlog_records > self._lag
        self._rises = self._rises + 1 if rose else 0
        self._lag = report.backlog_records if runs else None

    # Predictions ----------------------------------------------------------------------------------------------------

    def _target_rate(self, latest: Observation) -> tuple[float, Evidence]:
        current, lag = latest.load_per_s, latest.backlog_records
        predicted = self._predictions.predicted()
        prediction = current if predicted.per_s is None else predicted.per_s
        rate = ((prediction + current) / 2 * self.horizon_s + lag) / self.horizon_s
        return rate, {
            "rate_per_s": current,
            "lag_records": lag,
            "predicted_short_per_s": predicted.short_per_s,
            "predicted_long_per_s": predicted.long_per_s,
            "weight_short": predicted.weight_short,
            "target_per_s": rate,
        }

    # The table ------------------------------------------------------------------------------------------------------

    def _enough(self, latest: Observation, space: ConfigurationSpace, rate_per_s: float) -> int | None:
        """The fewest executors of the space that bear this rate at the target CPU; None where nothing is known."""
        loads = self._loads(latest)
        if not loads:
            return None
        for executors in space.executors:
            if _read(loads, executors) >= rate_per_s * (1.0 - _ROUNDING):
                return executors
        return space.executors[-1]

    def _loads(self, latest: Observation) -> list[tuple[float, float]]:
        """The load at the target CPU by number of executors, in their order."""
        rows: dict[int, list[tuple[float, float]]] = {}
        for (executors, tenths), load in sorted(self._table.items()):
            rows.setdefault(executors, []).append((tenths / 10, load))
        if not rows and latest.cpu_share:
            rows = {latest.configuration.executors: [(latest.cpu_share, latest.processed_rate_per_s)]}
        loads = [(float(executors), _read(by_cpu, self.target_cpu)) for executors, by_cpu in rows.items()]
        return [(executors, load) for executors, load in loads if load > 0.0]


def _above(share: float | None, limit: float) -> bool:
    """Whether a share is known to be above a limit."""
    return share is not None and share > limit


def _configuration(plain: object) -> Configuration:
    """From what `asdict` made of it, and then perhaps JSON."""
    told = dict(plain)  # type: ignore[call-overload]  # checked by trying
    settings = tuple((str(name), str(value)) for name, value in told.pop("settings"))
    return Configuration(**told, settings=settings)


def _read(points: Sequence[tuple[float, float]], where: float) -> float:
    """The value at a place: in a straight line between two points, in proportion beyond the first and the last."""
    place, value = points[0]
    if where <= place:
        return value * where / place
    for beyond, next_value in points[1:]:
        if where <= beyond:
            return value + (next_value - value) * (where - place) / (beyond - place)
        place, value = beyond, next_value
    return value * where / place
