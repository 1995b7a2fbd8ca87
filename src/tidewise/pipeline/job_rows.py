"""The rows of every job of a bucket, merged and thinned, straight from its files.

A bucket holds all rows of its jobs: none has to be sent to where the others of its job are. And what nobody looks at
never becomes a row: of a hundred rows two or three are looked at whole, and one column of some thirty others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewise.core.checks import require
from tidewise.pipeline.job_files import (
    CONFIGURED,
    JOB,
    PROGRAM,
    START,
    WINDOW,
    Bucket,
    Floats,
    Integers,
    RowGroup,
    Wanted,
    numbered,
    row_groups,
    sums_at,
)

Flags = npt.NDArray[np.bool_]
_Kind = TypeVar("_Kind", bound=np.generic)

LOAD = "load_per_s"
OBSERVED = "observed_s"
"""So many seconds of the window the load is the mean of: a window may have several rows, one of each kind."""
IS_WHOLE = "is_whole"
"""The column of a job's rows which says whether all other columns came along."""
_LOAD_SUM = f"{LOAD}__sum"
_NARROW = (_LOAD_SUM, WINDOW)
_MIXED = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose bits are well spread: products with it tell sequences of values apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinning:
    """How much of each job is looked at: the load in its newest windows, and some windows whole.

    The whole ones are spread over all of the job's time, in blocks of neighbours, and evenly over its kinds of windows
    (program and configuration): of a kind with few windows all are taken.
    """

    newest_s: float
    """So much of the end of each job, by its own newest window."""
    whole: int = 0
    """About how many windows come with all their columns; 0: none."""
    block_s: int = 300
    """Windows of the same kind and block come together or not at all."""

    def __post_init__(self) -> None:
        require(self.newest_s > 0.0 and self.block_s > 0, "newest_s and block_s must be above 0")
        require(self.whole >= 0, f"whole must not be negative, not {self.whole}")


def rows_of(
    bucket: Bucket, jobs: Collection[str], *, thinning: Thinning, wanted: Wanted
) -> Iterator[tuple[str, pa.Table]]:
    """Each of these jobs of a bucket with its rows, in the order of their time.

    Columns are the start of the window, the load, `OBSERVED` and `IS_WHOLE`; where windows come whole, also their
    program and configuration, and the columns that are wanted, which are null in the other rows.
    """
    names = sorted(jobs)
    seen = _look_through(bucket, names) if names else _Seen()
    if seen.groups:
        for number, rows in _kept_rows(seen, thinning, len(names), wanted).by_job():
            yield names[number], rows


# The first look: which rows there are -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Runs:
    """The rows of a row group, as runs of the same job and kind."""

    path: str
    number: int
    lengths: Integers
    jobs: Integers
    """By their numbers; -1: one that is not asked for."""
    kinds: Integers
    starts: Integers
    """Of all rows."""
    newest: Integers
    """The latest start of each run."""

    def spread(self, values: npt.NDArray[_Kind]) -> npt.NDArray[_Kind]:
        """From runs to rows."""
        return np.repeat(values, self.lengths)


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What there is of the jobs that are asked for."""

    groups: list[_Runs] = field(default_factory=list)
    kinds: dict[tuple[object, ...], int] = field(default_factory=dict)
    """Programs with configurations, and their numbers."""
    parts: list[tuple[Integers, Integers]] = field(default_factory=list)
    """Jobs and kinds of rows that belong to a window that another row tells of already."""

    def add(self, group: RowGroup, numbers: Mapping[str, int]) -> None:
        """Take a row group in, if it holds any of these jobs."""
        rows = group.read([JOB, PROGRAM, START, *CONFIGURED])
        jobs = numbered(rows.column(JOB), lambda name: numbers.get(name or "", -1))
        if not (jobs >= 0).any():
            return
        mixed, starts = _mixed(rows), rows.column(START).to_numpy()
        first = np.concatenate([[0], np.flatnonzero((jobs[1:] != jobs[:-1]) | (mixed[1:] != mixed[:-1])) + 1])
        _, examples, places = np.unique(mixed[first], return_index=True, return_inverse=True)
        found = rows.select([PROGRAM, *CONFIGURED]).take(first[examples]).to_pylist()
        kinds = np.array([self.kinds.setdefault(tuple(kind.values()), len(self.kinds)) for kind in found])
        self.groups.append(
            _Runs(
                path=group.path,
                number=group.number,
                lengths=np.diff(np.append(first, len(jobs))),
                jobs=jobs[first],
                kinds=kinds[places.reshape(-1)],
                starts=starts,
                newest=np.maximum.reduceat(starts, first),
            )
        )

    def note_parts(self, groups: Sequence[_Runs]) -> None:
        """Look for windows of which several of these row groups tell, each a part."""
        columns = [
            np.concatenate([np.zeros(0, dtype=np.int64), *parts])
            for parts in (
                (group.spread(group.jobs) for group in groups),
                (group.spread(group.kinds) for group in groups),
                (group.starts for group in groups),
            )
        ]
        order = np.lexsort(columns[::-1])
        again = order[~_begins(*(column[order] for column in columns))]
        self.parts.append((columns[0][again], columns[1][again]))


def _look_through(bucket: Bucket, names: Sequence[str]) -> _Seen:
    seen, numbers = _Seen(), {name: number for number, name in enumerate(names)}
    for day in bucket.days:
        before = len(seen.groups)
        for group in (group for path in day for group in row_groups(path)):
            if group.may_hold(names[0], names[-1]):
                seen.add(group, numbers)
        if len(day) > 1:
            seen.note_parts(seen.groups[before:])
    return seen


def _mixed(rows: pa.Table) -> npt.NDArray[np.uint64]:
    """A number for each row, the same where program and configuration are."""
    mixed = numbered(rows.column(PROGRAM), lambda word: crc32((word or "").encode())).view(np.uint64)
    for name in CONFIGURED:
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIXED + rows.column(name).to_numpy().view(np.uint64)
    return mixed


def _begins(*columns: npt.NDArray[np.generic]) -> Flags:
    """Whether each row differs from the one before it."""
    differs = np.zeros(len(columns[0]), dtype=np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


# The second: what is kept of them -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Keys:
    """Whose rows they are, and when."""

    jobs: Integers
    kinds: Integers
    starts: Integers
    is_whole: Flags

    @classmethod
    def together(cls, parts: Sequence[_Keys]) -> _Keys:
        return cls(
            jobs=np.concatenate([part.jobs for part in parts]),
            kinds=np.concatenate([part.kinds for part in parts]),
            starts=np.concatenate([part.starts for part in parts]),
            is_whole=np.concatenate([part.is_whole for part in parts]),
        )

    def at(self, places: Integers | Flags) -> _Keys:
        """Some of them, or all in another order."""
        return _Keys(
            jobs=self.jobs[places],
            kinds=self.kinds[places],
            starts=self.starts[places],
            is_whole=self.is_whole[places],
        )

    def order(self, *, has_parts: bool) -> Integers:
        """By job and time."""
        order = np.argsort(self.jobs, kind="stable")
        jobs, starts = self.jobs[order], self.starts[order]
        # Compacted files are in this order already, and so are their days.
        if has_parts or bool(((starts[1:] < starts[:-1]) & (jobs[1:] == jobs[:-1])).any()):
            order = np.lexsort((self.kinds, self.starts, self.jobs))
        return order


@dataclass(slots=True, kw_only=True)
class _Keeping:
    """Gathers what is kept, row group by row group."""

    stored: Sequence[str]
    """The columns of rows that are whole."""
    keys: list[_Keys] = field(default_factory=list)
    narrow: list[list[Floats]] = field(default_factory=list)
    whole: list[list[Floats]] = field(default_factory=list)

    def add(self, group: RowGroup, keys: _Keys, places: Integers) -> None:
        rows = group.read([*_NARROW, *self.stored] if keys.is_whole.any() else _NARROW)
        self.keys.append(keys)
        self.narrow.append([sums_at(rows, name, places) for name in _NARROW])
        self.whole.append([sums_at(rows, name, places[keys.is_whole]) for name in self.stored])

    def ordered(self, *, has_parts: bool) -> tuple[_Keys, list[Floats], dict[str, Floats]]:
        """Keys and sums in the order of jobs and time, rows that are parts of one window made one."""
        keys = _Keys.together(self.keys)
        order = keys.order(has_parts=has_parts)
        whole_order = (np.cumsum(keys.is_whole) - 1)[order][keys.is_whole[order]]
        keys = keys.at(order)
        begins = np.ones(len(order), dtype=np.bool_)
        if has_parts:
            begins = _begins(keys.jobs, keys.starts, keys.kinds)
        narrow = [_summed(np.concatenate(parts)[order], begins) for parts in zip(*self.narrow, strict=True)]
        begins_whole = begins[keys.is_whole]
        whole = [_summed(np.concatenate(parts)[whole_order], begins_whole) for parts in zip(*self.whole, strict=True)]
        return keys.at(begins), narrow, dict(zip(self.stored, whole, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """What is kept of all jobs, in the order of jobs and time."""

    keys: _Keys
    loads: Floats
    observed_s: Floats
    by_kind: Mapping[str, pa.Array]
    """Program and configuration of every kind; empty where no row comes whole."""
    whole: Mapping[str, Floats]
    """The columns that are wanted of the rows that are whole; NaN where they are unknown."""

    def by_job(self) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each job, with its number."""
        begins = np.flatnonzero(_begins(self.keys.jobs))
        ends = np.append(begins[1:], len(self.loads))
        wholes = np.concatenate([[0], np.cumsum(self.keys.is_whole)])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            among = slice(int(wholes[begin]), int(wholes[end]))
            yield int(self.keys.jobs[begin]), self._table(slice(begin, end), among)

    def _table(self, span: slice, among: slice) -> pa.Table:
        is_whole, kinds = self.keys.is_whole[span], pa.array(self.keys.kinds[span].astype(np.int32))
        loads, observed_s = self.loads[span], self.observed_s[span]
        columns = {START: self.keys.starts[span], LOAD: loads, OBSERVED: observed_s, IS_WHOLE: is_whole}
        columns |= {name: pa.DictionaryArray.from_arrays(kinds, values) for name, values in self.by_kind.items()}
        for name, values in self.whole.items():
            spread = np.full(len(is_whole), np.nan)
            spread[is_whole] = values[among]
            columns[name] = pa.array(spread, from_pandas=True)
        return pa.table(columns)


def _kept_rows(seen: _Seen, thinning: Thinning, count: int, wanted: Wanted) -> _Rows:
    newest, every = _newest(seen, count), _every(seen, thinning.whole)
    keeping = _Keeping(stored=wanted.stored if thinning.whole else ())
    found = {(runs.path, runs.number): (runs, each) for runs, each in zip(seen.groups, every, strict=True)}
    for group in (group for path in dict.fromkeys(path for path, _ in found) for group in row_groups(path)):
        if (group.path, group.number) not in found:
            continue
        runs, each = found[group.path, group.number]
        keys, places = _kept(runs, newest, each, thinning)
        if len(places):
            keeping.add(group, keys, places)
    keys, (loads, windows_s), sums = keeping.ordered(has_parts=bool(seen.parts))
    if not thinning.whole:
        return _Rows(keys=keys, loads=_quotient(loads, windows_s), observed_s=windows_s, by_kind={}, whole={})
    named = zip((PROGRAM, *CONFIGURED), zip(*seen.kinds, strict=True), strict=True)
    means = {name: _quotient(sums[of], sums[over]) for name, (of, over) in wanted.means.items()}
    return _Rows(
        keys=keys,
        loads=_quotient(loads, windows_s),
        observed_s=windows_s,
        by_kind={name: pa.array(values) for name, values in named},
        whole=means | {name: sums[name] for name in wanted.sums},
    )


def _kept(runs: _Runs, newest: Integers, every: Integers, thinning: Thinning) -> tuple[_Keys, Integers]:
    """The rows of a row group that are kept, and where they lie in it."""
    is_asked = runs.spread(runs.jobs >= 0)
    is_whole = is_asked & (runs.starts // thinning.block_s % runs.spread(every) == 0) & (thinning.whole > 0)
    is_new = is_asked & (runs.starts > runs.spread(newest[runs.jobs]) - thinning.newest_s)
    places = np.flatnonzero(is_whole | is_new)
    keys = _Keys(jobs=runs.spread(runs.jobs), kinds=runs.spread(runs.kinds), starts=runs.starts, is_whole=is_whole)
    return keys.at(places), places


def _newest(seen: _Seen, count: int) -> Integers:
    """When the newest window of each job began."""
    newest = np.full(count, np.iinfo(np.int64).min)
    for runs in seen.groups:
        asked = runs.jobs >= 0
        np.maximum.at(newest, runs.jobs[asked], runs.newest[asked])
    return newest


def _every(seen: _Seen, whole: int) -> list[Integers]:
    """For the runs of each row group: each how many-th block comes whole."""
    many = len(seen.kinds)
    pairs = [runs.jobs * many + runs.kinds for runs in seen.groups]
    again = [jobs * many + kinds for jobs, kinds in seen.parts]
    # A window counts once, however many rows are parts of it.
    rows = [*(runs.lengths for runs in seen.groups), *(np.full(len(each), -1) for each in again)]
    different, places = np.unique(np.concatenate([*pairs, *again]), return_inverse=True)
    windows = np.bincount(places.reshape(-1), np.concatenate(rows))
    _, job_places, kinds_of_job = np.unique(different // many, return_inverse=True, return_counts=True)
    every = np.ceil(windows * kinds_of_job[job_places.reshape(-1)] / max(1, whole)).astype(np.int64)
    of_runs = np.maximum(every, 1)[places.reshape(-1)][: sum(map(len, pairs))]
    return np.split(of_runs, np.cumsum([len(each) for each in pairs])[:-1])


def _summed(values: Floats, begins: Flags) -> Floats:
    """The sums of rows that belong together."""
    return values if begins.all() else np.asarray(np.add.reduceat(values, np.flatnonzero(begins)))


def _quotient(of: Floats, over: Floats) -> Floats:
    """NaN over nothing."""
    return np.asarray(np.divide(of, over, out=np.full(len(of), np.nan), where=over > 0.0))
