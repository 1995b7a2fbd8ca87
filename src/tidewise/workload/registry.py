"""Loads by name, for plans: what a name or a setting must be is told where it is wrong."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidewise.core import BadInputError, InvalidValueError
from tidewise.core.readers import Reader, Readers, did_you_mean, mismatch
from tidewise.core.settings import Setting, read_settings, settings_of
from tidewise.workload.bursts import Bursts
from tidewise.workload.combined import Noisy, Scaled, Sum
from tidewise.workload.curve import Curve
from tidewise.workload.load import Load
from tidewise.workload.seasons import Daily, Weekly
from tidewise.workload.shapes import Constant, Growth, RegimeChange, Sine, Square, Steps
from tidewise.workload.trace_file import read_trace

LOADS: Mapping[str, Callable[..., Load]] = types.MappingProxyType(
    {
        "bursts": Bursts,
        "constant": Constant,
        "curve": Curve,
        "daily": Daily,
        "growth": Growth,
        "noisy": Noisy,
        "regime-change": RegimeChange,
        "scaled": Scaled,
        "sine": Sine,
        "square": Square,
        "steps": Steps,
        "sum": Sum,
        "trace": read_trace,
        "weekly": Weekly,
    }
)
"""Every load a plan can name, with what makes it."""

_TABLE = "a table with a shape of its own"
_FILE = "the name of a file"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDescription:
    """What a person needs to choose a load and set it up."""

    name: str
    summary: str
    """The first line of its docstring."""
    settings: tuple[Setting, ...]


def build_load(shape: str, settings: Mapping[str, object], *, folder: Path | None = None) -> Load:
    """The load of this name with these settings, as a plan writes them (lists for tuples, tables for loads).

    Settings have the names of the arguments, durations without their `_s` and with their unit. The file of a trace is
    looked for in `folder`, where one is given. Raises BadInputError, and nothing else.
    """
    make = LOADS.get(shape)
    if make is None:
        raise BadInputError(f"there is no load shape {shape!r}{did_you_mean(shape, LOADS)}")
    where = f"load shape {shape!r}"
    arguments = read_settings(make, settings, where=where, readers=_readers(folder or Path()))
    try:
        return make(**arguments)
    except InvalidValueError as error:
        raise BadInputError(f"{where}: {error}") from error


def describe_loads() -> tuple[LoadDescription, ...]:
    """Every load with its settings, by name."""
    readers = _readers(Path())
    return tuple(
        LoadDescription(
            name=name,
            summary=(inspect.getdoc(make) or "").partition("\n")[0],
            settings=settings_of(make, readers=readers),
        )
        for name, make in LOADS.items()
    )


def _readers(folder: Path) -> Readers:
    def load(value: object) -> Load:
        table = {str(key): part for key, part in value.items()} if isinstance(value, Mapping) else {}
        shape = table.pop("shape", None)
        if not isinstance(shape, str):
            raise mismatch(value, _TABLE)
        return build_load(shape, table, folder=folder)

    def file(value: object) -> Path:
        if not isinstance(value, str | Path):
            raise mismatch(value, _FILE)
        return folder / value

    return {Load: Reader(allowed=_TABLE, read=load), Path: Reader(allowed=_FILE, read=file)}
