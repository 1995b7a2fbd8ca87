"""How large the state of a query is, and what it costs: to commit, to load after a restart, and to cut anew."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.page import table
from tidewise.core import PermanentError
from tidewise.experiments.query_figures import RunFigures, batch_durations_s, run_figures
from tidewise.experiments.query_process import Answer, QueryProcess, conf_of
from tidewise.experiments.spark_run import check_spark
from tidewise.jobs.measure import queries_of
from tidewise.jobs.measure_request import RunRequest
from tidewise.report.query_table import duration, size

_PARTITIONS, _MORE_PARTITIONS = 4, 8
_BATCHES = 6
_FEW = 100
_RESTARTS = 3
_MEMORY_MIB = 3072
_AT_MOST_S = 600.0
_STORES = ("hdfs", "rocksdb", "rocksdb, no changelog")
_MISSING = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A query, and enough events to give it much state."""

    benchmark: str
    query: str
    events: int
    events_per_s: float
    """Of Nexmark so many in each second of their own time that hardly any window closes; of PSM, whose windows hold
    each product once, so few that a batch has many windows."""

    @property
    def stores(self) -> tuple[str, ...]:
        can_use = queries_of(self.benchmark)[self.query].stores
        return tuple(store for store in _STORES if store.partition(",")[0] in can_use)


_CASES = (
    _Case(benchmark="nexmark", query="q4", events=6_000_000, events_per_s=500_000.0),
    _Case(benchmark="nexmark", query="q5", events=6_000_000, events_per_s=500_000.0),
    _Case(benchmark="nexmark", query="q8", events=9_000_000, events_per_s=1_000_000.0),
    _Case(benchmark="nexmark", query="q9", events=6_000_000, events_per_s=500_000.0),
    _Case(benchmark="psm", query="q2", events=6_000_000, events_per_s=2_000.0),
    _Case(benchmark="psm", query="q4", events=6_000_000, events_per_s=50.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price:
    case: _Case
    store: str
    run: RunFigures | None
    empty_s: float | None = None
    """The first batch after a restart with hardly any state."""
    loaded_s: float | None = None
    """The same with all of it."""
    repartition_s: float | None = None
    error: str | None = None


def measure(_traces: Path | None) -> str:
    """Every query with every state store: filled in one process; loaded, and cut anew, in another."""
    check_spark()
    prices: list[_Price] = []
    with tempfile.TemporaryDirectory(prefix="tidewise-bench-") as name:
        for benchmark in dict.fromkeys(case.benchmark for case in _CASES):
            own = [case for case in _CASES if case.benchmark == benchmark]
            prices += _of_benchmark(benchmark, own, Path(name) / benchmark)
    return _page(prices)


def _of_benchmark(benchmark: str, cases: Sequence[_Case], folder: Path) -> list[_Price]:
    folder.mkdir()
    settings = {
        "benchmark": benchmark,
        "cores": os.cpu_count() or 1,
        "folder": folder,
        "log": folder / "spark.log",
        "conf": conf_of(memory_mib=_MEMORY_MIB),
        "brokers": None,
    }
    with QueryProcess(**settings) as process:  # type: ignore[arg-type]  # each has the type it needs
        prices = [_filled(process, case, store, folder) for case in cases for store in case.stores]
    with QueryProcess(**settings) as another:  # type: ignore[arg-type]  # each has the type it needs
        return [price if price.error is not None else _moved(another, price, folder) for price in prices]


def _filled(process: QueryProcess, case: _Case, store: str, folder: Path) -> _Price:
    """Once with few events, so that it is warm, and then to the end."""
    try:
        _seen(process, _request(case, store, events=3 * _FEW, in_batch=_FEW), "warm-up")
        request = _request(case, store, events=case.events, in_batch=case.events // _BATCHES)
        answer = _seen(process, replace(request, checkpoint=str(_checkpoint(case, store, folder))), "filled")
    except PermanentError as error:
        return _Price(case=case, store=store, run=None, error=str(error))
    return _Price(case=case, store=store, run=run_figures(answer, None))


def _moved(process: QueryProcess, price: _Price, folder: Path) -> _Price:
    """What a restart takes where the state has to be loaded, and where there is hardly any; and then cut it anew."""
    case, store, place = price.case, price.store, _checkpoint(price.case, price.store, folder)
    scratch = place.with_name(f"{place.name}-scratch")
    try:
        _seen(process, replace(_request(case, store, events=_FEW, in_batch=_FEW), checkpoint=str(scratch)), "begun")
        price = replace(price, empty_s=_restart_s(process, case, store, scratch, _FEW))
        price = replace(price, loaded_s=_restart_s(process, case, store, place, case.events))
        if store == "hdfs":
            return price
        read = case.events + _RESTARTS * _FEW
        more = replace(_request(case, store, events=read + _FEW, in_batch=_FEW), checkpoint=str(place))
        cut = _seen(process, replace(more, repartition=_MORE_PARTITIONS), "cut anew")
        _seen(process, more, "gone on")  # it counts only if the query goes on with it
    except PermanentError as error:
        return replace(price, error=str(error))
    return replace(price, repartition_s=float(cut["seconds"]))


def _restart_s(process: QueryProcess, case: _Case, store: str, checkpoint: Path, read: int) -> float:
    """The first batch of a query that goes on after so many events: the median of several restarts."""
    requests = [
        replace(_request(case, store, events=read + restart * _FEW, in_batch=_FEW), checkpoint=str(checkpoint))
        for restart in range(1, _RESTARTS + 1)
    ]
    return median(batch_durations_s(_seen(process, request, "restarted"))[0] for request in requests)


def _seen(process: QueryProcess, request: RunRequest, what: str) -> Answer:
    answer = process.ask(request)
    came = answer.get("error") or f"{answer['seconds']:.1f} s"
    print(f"{request.query}, {request.state_store}, {what}: {came}", flush=True)
    if "error" in answer:
        raise PermanentError(str(answer["error"]))
    return answer


def _request(case: _Case, store: str, *, events: int, in_batch: int) -> RunRequest:
    return RunRequest(
        query=case.query,
        events=events,
        events_per_batch=in_batch,
        events_per_s=case.events_per_s,
        state_store=store.partition(",")[0],
        state_partitions=_PARTITIONS,
        at_most_s=_AT_MOST_S,
        changelog=store == "rocksdb",
    )


def _checkpoint(case: _Case, store: str, folder: Path) -> Path:
    return folder / f"{case.query}-{store.replace(', ', '-').replace(' ', '-')}"


def _shown(seconds: float | None) -> str:
    return _MISSING if seconds is None else duration(seconds)


def _page(prices: Sequence[_Price]) -> str:
    sizes, costs = [], []
    for price in prices:
        name = f"{price.case.benchmark} {price.case.query}"
        run = price.run
        if run is None:
            costs.append([name, price.store, f"failed: {price.error}", *[_MISSING] * 7])
            continue
        if price.store == "rocksdb":
            sizes += [[name, one.operator, f"{one.rows:,}", size(one.memory_bytes)] for one in run.state]
        costs.append(
            [
                name,
                price.store,
                f"{sum(one.rows for one in run.state):,}",
                size(sum(one.memory_bytes for one in run.state)),
                size(run.checkpoint_bytes),
                duration(run.commit_s),
                duration(median(run.batches_s)) if run.batches_s else _MISSING,
                _shown(price.loaded_s),
                _shown(price.empty_s),
                f"failed: {price.error}" if price.error else _shown(price.repartition_s),
            ]
        )
    head = ["query", "state store", "rows", "memory", "checkpoint", "commit per batch", "batch"]
    head += ["restart", "with no state", f"{_PARTITIONS} to {_MORE_PARTITIONS}"]
    return (
        "Each query of Nexmark over events so dense in their own time that hardly any state is let go of; of PSM, q2 "
        "until its windows of 10,000 clicks are about a sixth full, and q4 over as many windows as lie in a batch. In "
        f"{_BATCHES} batches, {_PARTITIONS} state partitions, local[{os.cpu_count() or 1}]; q4 of Nexmark and q2 of "
        "PSM keep state in Python, for which Spark has RocksDB alone. Memory: what the store has taken, as Spark "
        "counts it, which RocksDB does in steps; checkpoint: the whole folder, with what old versions left. Commit per "
        "batch: of all tasks together, the median batch. "
        f"Restart: the first batch, of {_FEW} events, of another process that goes on with the checkpoint and loads "
        f"its state, the median of {_RESTARTS}; beside it the same where there is hardly any state. {_PARTITIONS} to "
        f"{_MORE_PARTITIONS}: cutting the state into so many partitions offline, after which the query went on; Spark "
        "does that for RocksDB alone.\n\n"
        + table(head, costs)
        + "\n\nThe state by operator, in RocksDB:\n\n"
        + table(["query", "operator", "rows", "memory"], sizes)
    )
