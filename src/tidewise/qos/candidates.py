"""Configurations as a table: one row each, columns as arrays, so that models answer for thousands of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidewise.core import BadInputError, Configuration, ConfigurationSpace, Prices

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

AXES = (
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
    "state_partitions",
)
"""The columns, in the order of a space's own listing."""
RESOURCES = ("executors", "cores_per_executor", "memory_mib_per_executor")
"""What a job can only gain by having more of. Slots are not among them: they share the cores they are given."""
_LARGEST_LATTICE = 4_000_000
"""Cells; a listing whose values span more than this is compared row by row."""


class Candidates:
    """An enumerated, filtered space: every array has one row per configuration, in one fixed order."""

    def __init__(
        self, columns: Sequence[Floats], *, settings: Sequence[tuple[tuple[str, str], ...]], same_settings: bool
    ) -> None:
        """For `of` and `listing`, which check what they are given."""
        self.executors, self.slots_per_executor, self.cores_per_executor = columns[:3]
        self.memory_mib_per_executor, self.commit_interval_s, self.state_partitions = columns[3:]
        self._settings = settings
        self._same_settings = same_settings

    @classmethod
    def of(cls, space: ConfigurationSpace, *, keep: Callable[[Configuration], bool] | None = None) -> Candidates:
        """Every configuration of a space that is to be kept, in the order of the space."""
        values = [_numbers(getattr(space, name)) for name in AXES]
        grid = np.meshgrid(*values, indexing="ij")
        table = cls([column.ravel() for column in grid], settings=(space.settings,), same_settings=True)
        if keep is None:
            return table
        kept = np.array([keep(table[row]) for row in range(len(table))], dtype=np.bool_)
        if not kept.any():
            raise BadInputError(
                f"none of the {len(table)} configurations of the space is to be kept: widen the space or ask for less"
            )
        return cls([column[kept] for column in table.columns], settings=(space.settings,), same_settings=True)

    @classmethod
    def listing(cls, configurations: Sequence[Configuration]) -> Candidates:
        """These configurations, in this order; some may be equal."""
        if not configurations:
            raise BadInputError("no configuration was given: name at least one")
        columns = [_numbers(tuple(getattr(each, name) for each in configurations)) for name in AXES]
        settings = tuple(each.settings for each in configurations)
        same = len(set(settings)) == 1
        return cls(columns, settings=settings[:1] if same else settings, same_settings=same)

    def only(self, rows: Integers) -> Candidates:
        """These rows, in this order."""
        settings = self._settings if self._same_settings else tuple(self._settings[row] for row in rows)
        return Candidates(
            [column[rows] for column in self.columns], settings=settings, same_settings=self._same_settings
        )

    def with_one_more(self, configuration: Configuration) -> Candidates:
        """All rows, and one more at the end."""
        one = _numbers(tuple(getattr(configuration, name) for name in AXES))
        columns = [np.append(column, value) for column, value in zip(self.columns, one, strict=True)]
        if self._same_settings and configuration.settings == self._settings[0]:
            return Candidates(columns, settings=self._settings, same_settings=True)
        settings = [self._settings[0 if self._same_settings else row] for row in range(len(self))]
        return Candidates(columns, settings=(*settings, configuration.settings), same_settings=False)

    def __len__(self) -> int:
        return len(self.executors)

    def __getitem__(self, row: int) -> Configuration:
        """The configuration of a row, made when it is asked for: thousands of objects would cost each decision."""
        partitions = self.state_partitions[row]
        return Configuration(
            executors=int(self.executors[row]),
            slots_per_executor=int(self.slots_per_executor[row]),
            cores_per_executor=float(self.cores_per_executor[row]),
            memory_mib_per_executor=int(self.memory_mib_per_executor[row]),
            commit_interval_s=float(self.commit_interval_s[row]),
            state_partitions=None if np.isnan(partitions) else int(partitions),
            settings=self._settings[0 if self._same_settings else row],
        )

    @property
    def columns(self) -> tuple[Floats, ...]:
        """The columns in the order of `AXES`; partitions are NaN where a configuration has none."""
        return tuple(getattr(self, name) for name in AXES)

    @cached_property
    def total_cores(self) -> Floats:
        return self.executors * self.cores_per_executor

    @cached_property
    def total_slots(self) -> Floats:
        return self.executors * self.slots_per_executor

    @cached_property
    def total_memory_mib(self) -> Floats:
        return self.executors * self.memory_mib_per_executor

    def cost_per_hour(self, prices: Prices) -> Floats:
        """What each costs, exactly, in the currency of the prices."""
        return self.total_cores * prices.core_hour + self.total_memory_mib / 1024.0 * prices.gib_hour

    @cached_property
    def scaled(self) -> Floats:
        """All axes, in logarithms, about 0..1; the same configuration has the same numbers in every table."""
        partitions = np.nan_to_num(self.state_partitions, nan=1.0)
        return np.column_stack(
            (
                np.log2(self.executors) / 6.0,
                np.log2(self.slots_per_executor) / 4.0,
                np.log2(8.0 * self.cores_per_executor) / 7.0,
                np.log2(self.memory_mib_per_executor / 256.0) / 8.0,
                np.log1p(self.commit_interval_s) / 5.0,
                np.log2(partitions) / 10.0,
            )
        )

    @cached_property
    def features(self) -> Floats:
        """What a Gaussian process sees of each row: the axes that vary, about 0..1; one column where none does."""
        axes = np.flatnonzero(np.ptp(self.scaled, axis=0) > 0.0)
        return self.scaled[:, axes if len(axes) else [0]]

    def row_of(self, configuration: Configuration) -> int | None:
        """Where a configuration stands; the first of equal ones, None where it is not in the table."""
        same = np.ones(len(self), dtype=np.bool_)
        for name, column in zip(AXES, self.columns, strict=True):
            value = getattr(configuration, name)
            same &= np.isnan(column) if value is None else column == value
        for row in np.flatnonzero(same).tolist():
            if self._settings[0 if self._same_settings else row] == configuration.settings:
                return int(row)
        return None

    def alike_but_for(self, *names: str) -> Integers:
        """Rows that differ in nothing but these (axes, or `settings`) have the same number."""
        # NaN is not equal to itself.
        others = [np.nan_to_num(getattr(self, name)) for name in AXES if name not in names]
        if "settings" not in names:
            numbers = {settings: number for number, settings in enumerate(dict.fromkeys(self._settings))}
            settings = np.array([numbers[each] for each in self._settings], dtype=np.float64)
            others.append(np.broadcast_to(settings, (len(self),)))
        # Column by column: to compare whole rows takes several times as long.
        numbers_so_far = np.zeros(len(self), dtype=np.int64)
        for column in others:
            values, places = np.unique(column, return_inverse=True)
            if len(values) > 1:
                both = numbers_so_far * len(values) + places.reshape(-1)
                numbers_so_far = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int64)
        return numbers_so_far

    @cached_property
    def group_numbers(self) -> Integers:
        """Rows that differ in nothing but resources have the same number."""
        return self.alike_but_for(*RESOURCES)

    @cached_property
    def kind_numbers(self) -> Integers:
        """Rows that differ in nothing but their number of executors have the same number."""
        return self.alike_but_for("executors")

    @cached_property
    def lattice(self) -> Lattice | None:
        """Where the rows lie on the grid of their resources; None where that grid would be too large."""
        places, shape = [], []
        for column in (*(getattr(self, name) for name in RESOURCES), self.group_numbers):
            values, place = np.unique(column, return_inverse=True)
            places.append(place.reshape(-1))
            shape.append(len(values))
        if math.prod(shape) > _LARGEST_LATTICE:
            return None
        return Lattice(tuple(shape), np.ravel_multi_index(tuple(places), tuple(shape)).astype(np.int64))


class Lattice:
    """The grid of a table's resources (with one more axis for all the rest), and the cell of every row."""

    def __init__(self, shape: tuple[int, ...], cells: Integers) -> None:
        self.shape = shape
        self.cells = cells
        self.is_full = len(cells) == math.prod(shape) == len(np.unique(cells))
        """Every cell has exactly one row."""


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
