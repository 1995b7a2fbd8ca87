"""`tidewise bench`: the queries of a benchmark, each to the end of its events, again and again in turn."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from tidewise.core import BadInputError, PermanentError
from tidewise.core.checks import require
from tidewise.core.readers import did_you_mean
from tidewise.experiments.produce import Production, produce
from tidewise.experiments.query_figures import QueryFigures, RunFigures, run_figures
from tidewise.experiments.query_process import Answer, QueryProcess, conf_of
from tidewise.experiments.spark_run import check_spark, stop
from tidewise.host.java import find_java
from tidewise.jobs.measure_request import BENCHMARKS, RunRequest, schedule_of
from tidewise.kafka.broker import LocalBroker
from tidewise.kafka.jars import connector_conf

SOURCES = ("embedded", "kafka")
STATE_STORES = ("rocksdb", "hdfs")
Say = Callable[[str], None]

EVENTS, BATCHES, REPEATS, MEMORY_MIB, AT_MOST_S = 500_000, 5, 3, 2048, 600.0
"""Unless it is said."""
RUNS_NAME = "runs.jsonl"
LOG_NAME = "spark.log"
FEW_EVENTS, FEW_BATCHES = 100, 6
"""Batches of so few events tell what a batch costs before its first one."""
EVENTS_PER_S = {"nexmark": 2_000.0, "psm": 200.0}
"""By the events' own times, unless it is said: windows are seconds in one benchmark, and minutes in the other."""
_MOST = {"events": 10**9, "batches": 1_000, "repeats": 1_000, "state_partitions": 1_024, "cores": 1_024}
_LEAST_MIB = 512
"""Less, and Spark refuses to start."""
_START_S, _RUN_S, _BATCH_S, _EVENTS_PER_S = 15.0, 1.0, 0.35, 100_000.0
"""What to tell of how long it may take: roughly so on two cores of a small machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """What is measured, and how; InvalidValueError for what cannot be."""

    benchmark: str
    queries: tuple[str, ...]
    events: int = EVENTS
    batches: int = BATCHES
    repeats: int = REPEATS
    state_store: str = "rocksdb"
    state_partitions: int = 2
    source: str = "embedded"
    cores: int = 2
    memory_mib: int = MEMORY_MIB
    """Of the JVM."""
    events_per_s: float = 2_000.0
    at_most_s: float = AT_MOST_S
    """A run that takes longer has failed."""

    def __post_init__(self) -> None:
        require(self.benchmark in BENCHMARKS, f"benchmark must be one of {', '.join(BENCHMARKS)}")
        require(len(self.queries) > 0, "there must be a query at least")
        require(self.source in SOURCES, f"there is no source {self.source!r}{did_you_mean(self.source, SOURCES)}")
        for name, most in _MOST.items():
            count = getattr(self, name)
            require(1 <= count <= most, f"--{name.replace('_', '-')} must be between 1 and {most:,}, not {count:,}")
        require(
            self.batches <= self.events,
            f"{self.events:,} events are too few for {self.batches:,} batches: write fewer --batches or more --events",
        )
        require(
            0.1 <= self.events_per_s <= 1e6, f"--rate must be between 0.1 and 1,000,000, not {self.events_per_s:,g}"
        )
        require(self.memory_mib >= _LEAST_MIB, f"--memory must be {_LEAST_MIB} MiB or more, not {self.memory_mib} MiB")
        require(self.at_most_s >= 1.0, f"--limit must be 1 s or more, not {self.at_most_s:g} s")

    @property
    def events_per_batch(self) -> int:
        return -(-self.events // self.batches)

    @property
    def expected_s(self) -> float:
        """About how long it takes; twice as long, or half as long, on another machine."""
        run_s = _RUN_S + self.batches * _BATCH_S + self.events / _EVENTS_PER_S
        few_s = _RUN_S + FEW_BATCHES * _BATCH_S
        return _START_S + len(self.queries) * (run_s + self.repeats * (run_s + few_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A run that is over."""

    query: str
    repeat: int
    """0: the warm-up, which does not count."""
    events: int
    done: int
    total: int
    figures: RunFigures | None
    error: str | None
    left_s: float
    """About how long the rest takes, by what was seen so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBench:
    """What came of it."""

    settings: BenchSettings
    queries: tuple[QueryFigures, ...]
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)
    is_stopped: bool = False
    """Whether somebody stopped it; what was measured until then is here."""

    @property
    def failed(self) -> tuple[QueryFigures, ...]:
        return tuple(query for query in self.queries if query.error is not None)


def chosen_queries(benchmark: str, wanted: str | None, *, state_store: str) -> dict[str, str]:
    """The queries that are asked for, by name, with what they answer; BadInputError where one cannot be run so."""
    if state_store not in STATE_STORES:
        raise BadInputError(f"there is no state store {state_store!r}{did_you_mean(state_store, STATE_STORES)}")
    check_spark()
    from tidewise.jobs.measure import queries_of  # noqa: PLC0415 - only now it is known that Spark is there

    known = queries_of(benchmark)
    names = list(known) if wanted is None else [name.strip().lower() for name in wanted.split(",") if name.strip()]
    if not names:
        raise BadInputError(f"--queries names no query; write some of {', '.join(known)}, with commas between them")
    for name in names:
        if name not in known:
            raise BadInputError(f"there is no query {name!r} in {benchmark}{did_you_mean(name, known)}")
    chosen = {name: known[name] for name in names}
    refused = [name for name, query in chosen.items() if query.stores and state_store not in query.stores]
    if refused:
        others = ",".join(name for name in chosen if name not in refused)
        raise BadInputError(
            f"{' and '.join(filter(None, (', '.join(refused[:-1]), refused[-1])))} cannot keep "
            f"{'its' if len(refused) == 1 else 'their'} state in {state_store}: write --state-store "
            f"{known[refused[0]].stores[0]}"
            + (f", or leave {'it' if len(refused) == 1 else 'them'} out: --queries {others}" if others else "")
        )
    return {name: query.sentence for name, query in chosen.items()}


def bench_queries(
    settings: BenchSettings, sentences: dict[str, str], folder: Path, *, say: Say, progress: Callable[[Step], None]
) -> QueryBench:
    """Measure every query: a round that does not count, and then the repeats; each round takes them in turn.

    What Spark says, and all that was seen of every run, goes into the folder. A query that fails is not tried again.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOG_NAME).unlink(missing_ok=True)
        runs_file = (folder / RUNS_NAME).open("w", encoding="utf-8")
    except OSError as error:
        raise PermanentError(f"nothing can be written into the folder {folder}: {error.strerror}") from error
    began_s = time.monotonic()
    rounds = _Rounds(settings, progress)
    is_stopped = False
    with runs_file, _spark(settings, folder / LOG_NAME, say) as process:
        try:
            for seen in rounds.run(process):
                runs_file.write(json.dumps(seen) + "\n")
                runs_file.flush()
        except KeyboardInterrupt:
            is_stopped = True
            process.stop(at_once=True)
    return QueryBench(
        settings=settings,
        queries=tuple(rounds.figures(name, sentences[name]) for name in settings.queries),
        seconds=time.monotonic() - began_s,
        versions={"Spark": version("pyspark"), "Java": str(find_java().major)},
        is_stopped=is_stopped,
    )


class _Rounds:
    """The runs in their order, and what came of them."""

    def __init__(self, settings: BenchSettings, progress: Callable[[Step], None]) -> None:
        self._settings = settings
        self._progress = progress
        self._runs: dict[str, list[RunFigures]] = {name: [] for name in settings.queries}
        self._errors: dict[str, str] = {}

    def run(self, process: QueryProcess) -> Iterator[dict[str, object]]:
        """All that was seen of each run, as it came."""
        settings, took_s, done = self._settings, 0.0, 0
        total = (1 + settings.repeats) * len(settings.queries)
        for repeat in range(1 + settings.repeats):
            for name in settings.queries:
                done += 1
                if name in self._errors:
                    continue
                began_s = time.monotonic()
                answer, few = self._measured(process, name, is_warm=repeat > 0)
                took_s += time.monotonic() - began_s
                figures = self._taken(name, repeat, answer, few)
                yield {"query": name, "repeat": repeat, "run": answer, "few": few}
                self._progress(
                    Step(
                        query=name,
                        repeat=repeat,
                        events=settings.events,
                        done=done,
                        total=total,
                        figures=figures,
                        error=self._errors.get(name),
                        left_s=took_s / done * (total - done),
                    )
                )

    def _measured(self, process: QueryProcess, name: str, *, is_warm: bool) -> tuple[Answer, Answer | None]:
        settings = self._settings
        answer = process.ask(_request(settings, name, events=settings.events, in_batch=settings.events_per_batch))
        if "error" in answer or not is_warm:
            return answer, None
        return answer, process.ask(_request(settings, name, events=FEW_EVENTS * FEW_BATCHES, in_batch=FEW_EVENTS))

    def _taken(self, name: str, repeat: int, answer: Answer, few: Answer | None) -> RunFigures | None:
        error = answer.get("error") or (few or {}).get("error")
        if error is not None:
            self._errors[name] = str(error)
            return None
        figures = run_figures(answer, few)
        if repeat > 0:
            self._runs[name].append(figures)
        return figures

    def figures(self, name: str, sentence: str) -> QueryFigures:
        return QueryFigures(
            name=name,
            sentence=sentence,
            events=self._settings.events,
            runs=tuple(self._runs[name]),
            error=self._errors.get(name),
        )


def _request(settings: BenchSettings, query: str, *, events: int, in_batch: int) -> RunRequest:
    return RunRequest(
        query=query,
        events=events,
        events_per_batch=in_batch,
        events_per_s=settings.events_per_s,
        state_store=settings.state_store,
        state_partitions=settings.state_partitions,
        at_most_s=settings.at_most_s,
        topic=None if settings.source == "embedded" else _topic(events),
    )


def _topic(events: int) -> str:
    return f"events-{events}"


@contextmanager
def _spark(settings: BenchSettings, log: Path, say: Say) -> Iterator[QueryProcess]:
    """What measures, and what it reads from; neither is left at the end."""
    with _scratch() as scratch, _events(settings, scratch, say) as (brokers, jars):
        process = QueryProcess(
            benchmark=settings.benchmark,
            cores=settings.cores,
            folder=scratch,
            log=log,
            conf=conf_of(memory_mib=settings.memory_mib, jars=jars),
            brokers=brokers,
        )
        with process:
            yield process


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for checkpoints; what a process that is being killed still writes into it is no reason to fail."""
    folder = Path(tempfile.mkdtemp(prefix="tidewise-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _events(settings: BenchSettings, scratch: Path, say: Say) -> Iterator[tuple[str | None, Sequence[str]]]:
    """Where the events are: a broker with topics that hold them, and the jars to read these; nothing where none is."""
    if settings.source == "embedded":
        yield None, ()
        return
    jars = connector_conf(tell=say)["spark.jars"].split(",")
    broker = LocalBroker.up(scratch / "kafka", tell=say)
    try:
        for events in dict.fromkeys((settings.events, FEW_EVENTS * FEW_BATCHES)):  # one topic if they are as many
            say(f"sending {events:,} events to a topic")
            schedule = schedule_of(events, settings.events_per_s)
            production = Production(
                job=settings.benchmark,
                brokers=broker.address,
                topic=_topic(events),
                partitions=settings.cores,
                at_once=True,
            )
            produced = produce(production, schedule, began_unix_s=schedule.began_unix_s)
            if produced.report.acknowledged != events:
                raise PermanentError(f"the broker took {produced.report.acknowledged:,} of {events:,} events")
        yield broker.address, jars
    finally:
        stop(broker)


def as_document(bench: QueryBench) -> dict[str, object]:
    """Everything as plain data."""
    return {
        "settings": asdict(bench.settings),
        "versions": bench.versions,
        "seconds": round(bench.seconds, 1),
        "stopped": bench.is_stopped,
        "queries": [
            {
                "query": query.name,
                "sentence": query.sentence,
                "error": query.error,
                "events": query.events,
                "seconds": query.seconds,
                "cores_used": query.cores,
                "cpu_s": query.cpu_s,
                "events_per_s": query.per_s,
                "events_per_s_per_core": query.per_core_s,
                "batch_p50_s": query.batch_p50_s,
                "batch_p95_s": query.batch_p95_s,
                "fixed_s": query.fixed_s,
                "state_rows": query.state_rows,
                "state_bytes": query.state_bytes,
                "stages": [asdict(stage) for stage in query.stages],
                "runs": [asdict(run) for run in query.runs],
            }
            for query in bench.queries
        ],
    }
