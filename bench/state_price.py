"""How large the state of a query is, and what it costs: to commit, to load after a restart, and to cut anew."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.page import table
from tidewise.experiments.query_figures import RunFigures, batch_durations_s, run_figures
from tidewise.experiments.query_process import Answer, QueryProcess, conf_of
from tidewise.experiments.spark_run import check_spark
from tidewise.jobs.measure import queries_of
from tidewise.jobs.measure_request import RunRequest
from tidewise.report.query_table import duration, size

_PARTITIONS, _MORE_PARTITIONS = 4, 8
_BATCHES = 6
_FEW = 100
_MEMORY_MIB = 3072
_AT_MOST_S = 300.0
_STORES = ("hdfs", "rocksdb", "rocksdb, no changelog")
_MISSING = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A query, and enough events to give it much state."""

    benchmark: str
    query: str
    events: int
    events_per_s: float
    """So many in each second of their own time that hardly any window closes."""

    @property
    def stores(self) -> tuple[str, ...]:
        can_use = queries_of(self.benchmark)[self.query].stores
        return tuple(store for store in _STORES if store.partition(",")[0] in can_use)


_CASES = (
    _Case(benchmark="nexmark", query="q4", events=240_000, events_per_s=20_000.0),
    _Case(benchmark="nexmark", query="q5", events=240_000, events_per_s=20_000.0),
    _Case(benchmark="nexmark", query="q8", events=480_000, events_per_s=60_000.0),
    _Case(benchmark="nexmark", query="q9", events=240_000, events_per_s=20_000.0),
    _Case(benchmark="psm", query="q2", events=240_000, events_per_s=200.0),
    _Case(benchmark="psm", query="q4", events=240_000, events_per_s=200.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Price:
    case: _Case
    store: str
    run: RunFigures | None
    load_s: float | None = None
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
    process.ask(_request(case, store, events=3 * _FEW, in_batch=_FEW))
    answer = process.ask(
        replace(
            _request(case, store, events=case.events, in_batch=case.events // _BATCHES),
            checkpoint=str(_checkpoint(case, store, folder)),
        )
    )
    _tell(case, store, "filled", answer)
    if "error" in answer:
        return _Price(case=case, store=store, run=None, error=str(answer["error"]))
    return _Price(case=case, store=store, run=run_figures(answer, None))


def _moved(process: QueryProcess, price: _Price, folder: Path) -> _Price:
    """The first batch of a process that has to load the state, less that of one that has none to load."""
    case, store = price.case, price.store
    few = _request(case, store, events=3 * _FEW, in_batch=_FEW)
    process.ask(few)
    empty = process.ask(few)
    checkpoint = str(_checkpoint(case, store, folder))
    more = replace(_request(case, store, events=case.events + 3 * _FEW, in_batch=_FEW), checkpoint=checkpoint)
    loaded = process.ask(more)
    _tell(case, store, "loaded", loaded)
    for answer in (empty, loaded):
        if "error" in answer:
            return replace(price, error=str(answer["error"]))
    load_s = max(0.0, batch_durations_s(loaded)[0] - batch_durations_s(empty)[0])
    if store == "hdfs":
        return replace(price, load_s=load_s)
    cut = process.ask(replace(more, repartition=_MORE_PARTITIONS))
    _tell(case, store, "cut anew", cut)
    # It counts only if the query goes on with it.
    after = cut if "error" in cut else process.ask(replace(more, events=case.events + 6 * _FEW))
    if "error" in after:
        return replace(price, load_s=load_s, error=f"after cutting anew: {after['error']}")
    return replace(price, load_s=load_s, repartition_s=float(cut["seconds"]))


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


def _tell(case: _Case, store: str, what: str, answer: Answer) -> None:
    came = answer.get("error") or f"{answer['seconds']:.1f} s"
    print(f"{case.benchmark} {case.query}, {store}, {what}: {came}", flush=True)


def _page(prices: Sequence[_Price]) -> str:
    sizes, costs = [], []
    for price in prices:
        name = f"{price.case.benchmark} {price.case.query}"
        run = price.run
        if run is None:
            costs.append([name, price.store, f"failed: {price.error}", *[_MISSING] * 6])
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
                _MISSING if price.load_s is None else duration(price.load_s),
                (f"failed: {price.error}" if price.error else _MISSING)
                if price.repartition_s is None
                else duration(price.repartition_s),
            ]
        )
    head = ["query", "state store", "rows", "memory", "checkpoint", "commit per batch", "batch", "load", "4 to 8"]
    return (
        f"Each query over events so dense in their own time that hardly any state is let go of, in {_BATCHES} batches, "
        f"{_PARTITIONS} state partitions, local[{os.cpu_count() or 1}]. Memory: as Spark counts it; checkpoint: the "
        "whole folder, with what old versions left. Commit per batch: of all tasks together, the median batch. Load: "
        "the first batch of another process that goes on with the checkpoint, less that of a query that begins anew "
        f"in it. 4 to 8: cutting the state into {_MORE_PARTITIONS} partitions offline, after which the query goes on; "
        "Spark does that for RocksDB alone.\n\n"
        + table(head, costs)
        + "\n\nThe state by operator, in RocksDB:\n\n"
        + table(["query", "operator", "rows", "memory"], sizes)
    )
