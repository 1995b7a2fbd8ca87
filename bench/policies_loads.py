"""What the policies are compared on: the loads of a plan, recorded traces, generated shapes, and loads drawn at random.

All but those of the plan itself are brought to the peak of `ysb` in their world, so that what is enough for the one is
enough for the others; what differs is their course.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from tidewise.experiments.toml_file import duration_text
from tidewise.workload import LOADS, Load, build_load
from tidewise.workload.random_loads import random_load

Table = Mapping[str, JsonValue]
DAY_S = 18 * 3600
_NOISE = 0.1
"""On every second, as on the loads of the plans."""
_MEAN = 1000.0
"""Any: shapes are scaled afterwards."""
_DRAWN = 6
_FLASHES = (
    (0, 0.2), (5, 0.2), (5 + 1 / 3600, 1.0), (5.25, 1.0), (6, 0.2),
    (12, 0.2), (12 + 30 / 3600, 1.0), (12 + 2 / 3, 1.0), (14, 0.2), (18, 0.2),
)  # fmt: skip  # one crowd a line
"""Hours and shares of the peak."""
_NOT_LOADS = ("ysb", "tsw", "_profiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A load that the policies are offered."""

    name: str
    words: str
    """What it is."""
    table: Table
    """As a plan writes it, without its name and its scale."""
    peak_share: float | None = 1.0
    """Its highest second as a share of that of ysb; None: as high as it is."""

    def scaled(self, peak_per_s: float) -> dict[str, JsonValue]:
        """The load as a plan writes it, brought to its part of this peak."""
        whole: dict[str, JsonValue] = {"name": self.name, **self.table}
        if self.peak_share is not None:
            whole["scale"] = self.peak_share * peak_per_s / peak_of(self.table)
        return whole


def peak_of(table: Table) -> float:
    """The highest second of a load before its noise, in a whole run with the first seed."""
    own = {"name", "shape", "noise", "scale", "profile", "promises"}
    settings = {key: value for key, value in table.items() if key not in own}
    load = build_load(str(table["shape"]), settings)
    return float(table.get("scale", 1.0)) * float(load.rates_per_s(DAY_S, 1).max())  # type: ignore[arg-type]  # a number


def planned(tables: Sequence[Table], traces: Path | None) -> list[Offered]:
    """The loads of the plan, from their released files where the folder has them."""
    return [_planned(table, traces) for table in tables]


def _planned(table: Table, traces: Path | None) -> Offered:
    name = str(table["name"])
    rest = {key: value for key, value in table.items() if key != "name"}
    found = None if traces is None else traces / f"{name}_{DAY_S // 3600}h.csv"
    if found is None or not found.is_file():
        return Offered(name=name, words="the curve of the plan", table=rest, peak_share=None)
    of_the_job: Table = {key: rest[key] for key in ("noise", "scale", "profile", "promises") if key in rest}
    read: dict[str, JsonValue] = {"shape": "trace", "file": str(found.resolve()), **of_the_job}
    return Offered(name=name, words=f"released, {found.name}", table=read, peak_share=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Which part of a trace is taken, and how fast it passes."""

    start: str
    days: int
    words: str


_STRETCHES = {"nyc_taxi": _Stretch(start="6d", days=7, words="the week from its seventh day on (a Monday)")}
_USUAL_STRETCH = _Stretch(start="4d", days=3, words="three days from its fifth day on")


def recorded(traces: Path | None) -> list[Offered]:
    """Every other trace of the folder."""
    files = [] if traces is None else sorted(traces.glob("*.csv"))
    return [_recorded(file) for file in files if not any(part in file.stem for part in _NOT_LOADS)]


def _recorded(file: Path) -> Offered:
    part = _STRETCHES.get(file.stem, _USUAL_STRETCH)
    table: Table = {
        "shape": "trace",
        "file": str(file.resolve()),
        "start": part.start,
        "compress": part.days * 86_400 / DAY_S,
        "repeat": True,
        "gaps": "interpolate",
        "order": "sort",
        "noise": _NOISE,
    }
    return Offered(name=file.stem, words=f"recorded, {file.name}: {part.words} in 18 h", table=table)


def generated(loop_every_s: float) -> list[Offered]:
    """Every shape that can be named, and some that are hard; `loop_every_s`: how often a policy decides."""
    day: Table = {"mean_per_s": _MEAN, "day": "6h", "noise_share": 0.0}
    bursts: Table = {"shape": "bursts", "base_per_s": _MEAN / 4, "mean_gap": "90min", "hold": "3min"}
    wave: Table = {"mean_per_s": _MEAN}
    return [
        _shape("constant", "half the peak all the time", "constant", {"rate_per_s": _MEAN}, peak_share=0.5),
        _shape("growth", "from a fifth to the peak in a straight line", "growth", _trend(0.2, 1.0, "linear")),
        _shape(
            "growth-by-factor",
            "from a tenth to the peak by the same factor in each second",
            "growth",
            _trend(0.1, 1.0, "exponential"),
        ),
        _shape("decline", "from the peak to a fifth", "growth", _trend(1.0, 0.2, "linear")),
        _shape(
            "sine",
            "a smooth season of 3 h between a ninth and the peak",
            "sine",
            {**wave, "amplitude_share": 0.8, "period": "3h"},
        ),
        _shape(
            "fast-sine",
            "a smooth season of 20 min between a third and the peak",
            "sine",
            {**wave, "amplitude_share": 0.5, "period": "20min"},
        ),
        _shape("daily", "three days of 6 h with two peaks each", "daily", day),
        _shape("weekly", "a week of seven days", "weekly", {**day, "day": duration_text(DAY_S / 7)}),
        _shape(
            "square",
            "a third and the peak by turns, an hour each",
            "square",
            {"low_per_s": _MEAN / 3, "high_per_s": _MEAN, "period": "2h"},
        ),
        _shape(
            "steps",
            "levels that each hold for two to four hours",
            "steps",
            _levels((0, 0.4), (3, 0.9), (5, 0.3), (9, 0.6), (12, 1.0), (14, 0.5)),
        ),
        _shape(
            "regime-change",
            "a season of 3 h becomes one of 50 min with twice its mean after 9 h",
            "regime-change",
            {
                "at": "9h",
                "mean_before_per_s": _MEAN,
                "mean_after_per_s": 2 * _MEAN,
                "period_before": "3h",
                "period_after": "50min",
            },
        ),
        _shape(
            "bursts",
            "steady, with bursts of up to four times as much for 5 min, every hour on average, at once",
            "bursts",
            {"base_per_s": _MEAN, "mean_gap": "1h", "ramp": "0s", "hold": "5min", "decay": "1min"},
        ),
        _shape(
            "flash-crowd",
            "a fifth of the peak; all of it within 1 s for 15 min and within 30 s for 40 min, and slowly gone",
            "curve",
            _points(*_FLASHES),
        ),
        _shape(
            "silence",
            "nothing at all for an hour, two and half an hour",
            "steps",
            _levels((0, 0.6), (3, 0.0), (4, 0.6), (9, 0.0), (11, 1.0), (14, 0.0), (14.5, 0.5)),
        ),
        _shape(
            "sawtooth",
            f"from half the peak to the peak in {loop_every_s - 1:g} s and back at once: the period of the loop",
            "curve",
            _saw(0.5, loop_every_s, 1.0),
        ),
        _shape(
            "slow-sawtooth",
            "from a third to the peak in 10 min and back at once, over again",
            "curve",
            _saw(1 / 3, 600.0, 10.0),
        ),
        _shape("sum", "days of 6 h with bursts on them", "sum", {"loads": [{"shape": "daily", **day}, dict(bursts)]}),
    ]


def _shape(name: str, words: str, shape: str, settings: Table, *, peak_share: float = 1.0) -> Offered:
    table: Table = {"shape": shape, "noise": _NOISE, **settings}
    return Offered(name=name, words=words, table=table, peak_share=peak_share)


def _trend(start: float, end: float, kind: str) -> Table:
    return {"start_per_s": start * _MEAN, "end_per_s": end * _MEAN, "over": "18h", "kind": kind}


def _levels(*levels: tuple[float, float]) -> Table:
    return {"levels": [[duration_text(3600 * hour), share * _MEAN] for hour, share in levels]}


def _points(*points: tuple[float, float]) -> Table:
    return {"points": [[duration_text(3600 * hour), share * _MEAN] for hour, share in points]}


def _saw(low: float, period_s: float, fall_s: float) -> Table:
    top_s = period_s - fall_s
    # The point halfway keeps the rise straight.
    corners = ((0.0, low), (top_s / 2, (1 + low) / 2), (top_s, 1.0), (period_s, low))
    return _points(*((at_s / 3600, share) for at_s, share in corners))


def drawn() -> list[Offered]:
    """Loads that nobody chose."""
    return [
        Offered(
            name=f"random-{seed}",
            words=f"drawn at random (random_load({seed}))",
            table=table_of(random_load(seed, mean_per_s=_MEAN, day_s=float(DAY_S))),
        )
        for seed in range(1, _DRAWN + 1)
    ]


def table_of(load: Load) -> Table:
    """A load as a plan would write it."""
    shape = next(name for name, make in LOADS.items() if make is type(load))
    fields = dataclasses.fields(load)  # type: ignore[arg-type]  # all that a plan can name are dataclasses, but traces
    return {"shape": shape, **dict(_setting(field.name, getattr(load, field.name)) for field in fields)}


def _setting(name: str, value: object) -> tuple[str, JsonValue]:
    if name == "load":
        return name, dict(table_of(value))  # type: ignore[arg-type]  # what this field holds
    if name == "loads":
        return name, [dict(table_of(one)) for one in value]  # type: ignore[attr-defined]  # what this field holds
    if name in {"levels", "points"}:
        return name, [[duration_text(at_s), rate] for at_s, rate in value]  # type: ignore[attr-defined]  # what it holds
    if name.endswith("_s") and not name.endswith("_per_s"):
        return name.removesuffix("_s"), duration_text(float(value))  # type: ignore[arg-type]  # seconds
    return name, value if isinstance(value, str | int) else float(value)  # type: ignore[arg-type]  # numpy's, perhaps
