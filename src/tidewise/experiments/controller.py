"""A controller in its home: starts or finds the cluster, starts the job or takes it back, and ends all of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tidewise.control import SqliteJournal, SystemClock
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.engines.spark.book import Book
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.engine import SparkEngine
from tidewise.engines.spark.job import SparkJob
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.reports import QueryDetail, ReportDetail
from tidewise.experiments.channel import Answer, Channel, controller_of
from tidewise.experiments.comparison import run_name
from tidewise.experiments.fleet_warm_start import JobTraits
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.live import LiveRun, LiveSetting, LiveView, Observer
from tidewise.experiments.record import JOURNAL_FILE, PARTIAL_SUFFIX, RUN_FILE, Run
from tidewise.experiments.signals import asked_to_stop
from tidewise.host.private_files import write_private

_LOG = logging.getLogger(__name__)

_SEED = 1
_CLUSTER = "cluster"
_JOB = "job"

KEPT_JOB_FILE = "job.toml"
"""In its home: the job file as it was when the run began."""
ADVICE_FILE = "advice-only"
"""In its home: there where nothing of the job may be changed."""
SIMILAR_FILE = "similar-jobs.json"
"""In its home: what was known of the jobs whose history this one began with."""
BEGAN_FILE = "began.json"
"""In its home: when the clock of the run began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The folder of one job under control."""

    folder: Path
    run_folder: Path
    """Appears when the run has ended."""

    @classmethod
    def of(cls, job: JobFile, folder: Path) -> Home:
        """BadInputError where another job or policy has it, or its run has ended."""
        folder = folder.absolute()
        home = cls(folder=folder, run_folder=folder / run_name(job.name, job.label, _SEED))
        if not folder.exists():
            return home
        ended = cls.ended_run(folder)
        if ended is not None:
            raise BadInputError(f"the run in {folder} has ended ({ended.name}); choose another folder with --home")
        others = [path for path in folder.glob(f"*{PARTIAL_SUFFIX}") if path != home.partial]
        if others:
            raise BadInputError(
                f"{folder} belongs to the run {others[0].name.removesuffix(PARTIAL_SUFFIX)}; take that back with its "
                "own job file and policy, or choose another folder with --home"
            )
        return home

    @classmethod
    def default(cls, job: JobFile, runs: Path, *, name: str | None = None) -> Home:
        """The folder of this job's run that is on or was left behind; else the first that is free.

        `name`: what it is called, where not by the job's own name.
        """
        number, name = 1, name or job.name
        while True:
            folder = runs / (name if number == 1 else f"{name}-{number}")
            if cls.ended_run(folder) is None:
                return cls.of(job, folder)
            number += 1

    @staticmethod
    def ended_run(folder: Path) -> Path | None:
        return next((path.parent for path in sorted(folder.glob(f"*/{RUN_FILE}"))), None)

    @property
    def partial(self) -> Path:
        return self.run_folder.with_name(self.run_folder.name + PARTIAL_SUFFIX)

    @property
    def was_left_behind(self) -> bool:
        """Whether a job is there that a controller had: it may still run."""
        return Book.exists(self.folder / _JOB)

    @property
    def job_file(self) -> Path:
        """A copy of the job file that the run began with: it holds until the run has ended, whatever is edited."""
        return self.folder / KEPT_JOB_FILE

    def refuse_the_other(self, *, advice_only: bool) -> None:
        """BadInputError where what was left behind here may be changed and now may not, or the other way round."""
        mark = self.folder / ADVICE_FILE
        if self.was_left_behind and mark.exists() != advice_only:
            other = "run" if advice_only else "advise"
            raise BadInputError(
                f"the job in {self.folder} was begun by `tidewise {other}`: take it back with that, or choose another "
                "folder with --home"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if advice_only:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)

    def keep(self, job: JobFile) -> bool:
        """Keep the job file for every controller of this run; whether the one given is what the run began with."""
        if self.was_left_behind and self.job_file.is_file():
            return self.job_file.read_text(encoding="utf-8") == job.text
        write_private(self.job_file, job.text)
        return True

    def similar(self, job: JobFile) -> list[JobTraits]:
        """The jobs whose history this one begins with: the same for every controller of this run, whatever is fitted.

        BadInputError where they cannot be read.
        """
        path = self.folder / SIMILAR_FILE
        if not (self.was_left_behind and path.is_file()):
            found = [] if self.was_left_behind else job.similar()
            write_private(path, json.dumps([asdict(each) for each in found], indent=1))
            return found
        try:
            return [JobTraits(**each) for each in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError) as error:
            raise BadInputError(f"{path} cannot be read: {error}") from error

    def clock(self) -> SystemClock:
        """The time of the run, which goes on over restarts and never back."""
        journal, at_least_s = self.partial / JOURNAL_FILE, None
        if journal.is_file():
            with SqliteJournal.open_readonly(journal) as read:
                at_least_s = read.latest_at_s()
        return SystemClock.since(self._began_unix_s(), at_least_s=at_least_s or 0.0)

    def _began_unix_s(self) -> float:
        """When the clock of the run began; the first one who asks sets it, and no restart changes it."""
        path = self.folder / BEGAN_FILE
        try:
            return float(json.loads(path.read_text(encoding="utf-8"))["unix_s"])
        except FileNotFoundError:
            began_unix_s = time.time()
            write_private(path, json.dumps({"unix_s": began_unix_s}))
            return began_unix_s
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{path} cannot be read: {error}") from error

    def refuse_a_second(self) -> None:
        """BadInputError where a controller is at work here, with or without its supervisor."""
        running = controller_of(self.folder)
        if running is not None:
            raise BadInputError(
                f"the job in {self.folder} is under control already (process {running.pid}); "
                f"stop it first (tidewise stop {self.folder}), or choose another folder with --home"
            )


class Controller:
    """Everything that a controller process does; `run` belongs to the main thread, which gets the signals."""

    def __init__(
        self,
        job: JobFile,
        home: Home,
        *,
        created: str,
        duration_s: float | None = None,
        advice_only: bool = False,
        observer: Observer | None = None,
        tell: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        """`advice_only`: nothing is changed. `tell` is given what a person ought to know, in sentences."""
        self._job_file = job
        self._home = home
        self._created = created
        self._duration_s = duration_s
        self._advice_only = advice_only
        self._observer = observer
        self._tell = tell
        self._live: LiveRun | None = None
        self._engine: SparkEngine | None = None
        self._job: SparkJob | None = None
        self._asked = 0

    def run(self) -> Run:
        """Until the run has ended; its folder is written then and nothing of it runs any more.

        KeyboardInterrupt: it was stopped at once, or before it had begun. PermanentError: it cannot be done, and all
        is stopped. Any other error leaves the job running, for the next controller to take back.
        """
        with asked_to_stop(self._asked_to_stop):
            try:
                run = self._run()
            except (KeyboardInterrupt, PermanentError):
                self._asked = 2  # who is cleaning up is not to be disturbed
                clear(self._job_file, self._home)
                raise
            clear(self._job_file, self._home)
            return run

    def _run(self) -> Run:
        home, file = self._home, self._job_file
        home.folder.mkdir(parents=True, exist_ok=True)
        if home.was_left_behind and Book.read(home.folder / _JOB).active is None:
            # The controller before died before its job had begun: nothing is lost by beginning again.
            clear(file, home)
        similar = home.similar(file)  # before anything starts: it may be wrong
        if (beginning := file.begins_with(similar)) is not None and not home.was_left_behind:
            self._tell(beginning)
        cluster = _cluster(file, home)
        if isinstance(cluster, LocalCluster) and (note := file.cpu_note(cluster.cpu_reason)) is not None:
            self._tell(note)
        job, clock = self._begin(cluster)
        self._job = job
        self._compare_checkpoints(job)
        live = LiveRun(
            job,
            LiveSetting(
                folder=home.run_folder,
                load=file.name,
                # Held against other runs, it must not pass for what the policy would have made of the job.
                label=f"{file.label} (advice only)" if self._advice_only else file.label,
                policy=file.policy(similar),
                space=file.space,
                start=file.start,
                promises=file.promises,
                prices=file.prices,
                created=self._created,
                settings=file.table.control.loop_settings(),
                guard_settings=replace(file.table.control.guard_settings(), advice_only=self._advice_only),
                duration_s=self._duration_s,
                seed=_SEED,
                plan=file.resolved(),
            ),
            clock=clock,
            observer=self._observer,
            resume=(home.partial / JOURNAL_FILE).is_file(),
        )
        self._live = live
        if self._asked:
            live.stop("it was stopped")
        channel = Channel(home.folder, self._answer)
        try:
            return live.run()
        finally:
            channel.close()

    def _begin(self, cluster: ClusterManager) -> tuple[SparkJob, SystemClock]:
        """Launch the job, or take it back."""
        left = self._home.was_left_behind
        clock = self._home.clock()
        self._engine = engine = _engine(self._job_file, self._home, cluster, clock)
        if left:
            self._tell("The job of an earlier controller is taken back.")
            return engine.take_back(), clock
        return engine.launch(self._job_file.start), clock

    def _compare_checkpoints(self, job: SparkJob) -> None:
        given = self._job_file.checkpoint
        if given is None:
            return
        used = list(job.fleet.checkpoints())
        if not any(Path(one.removeprefix("file:")).resolve() == given.resolve() for one in used):
            self._tell(
                f"Careful: the job file says that the checkpoint is {given}, and the program uses "
                f"{', '.join(used) or 'none that could be found out'}."
            )

    # Signals.

    def _asked_to_stop(self) -> None:
        """The first time the run ends in order, if there is one; the second time, or before there is one, at once."""
        self._asked += 1
        if self._asked == 1 and self._live is not None:
            self._live.stop("it was stopped")
        elif self._asked <= 2:
            raise KeyboardInterrupt

    # What other commands ask.

    def _answer(self, do: str, arguments: Answer) -> Answer:
        live, engine = self._live, self._engine
        if live is None or engine is None:
            raise TemporaryError("the job has not begun yet")
        by = str(arguments.get("by") or "somebody")
        if do == "status":
            view = live.look()
            return {"status": None if view is None or self._job is None else describe(view, self._job.detail())}
        if do == "faults":
            return {"faults": list(engine.faults)}
        if do == "inject":
            kind = str(arguments.get("fault"))
            if kind == "kill-controller":
                live.inject(kind)  # nobody will be left to answer
                return {"done": kind}
            live.inject(kind).result(timeout=20.0)
            return {"done": kind}
        if do == "pause":
            live.pause(by=by)
        elif do == "resume":
            live.resume(by=by)
        elif do == "stop":
            live.stop(f"it was stopped by {by}")
        else:
            raise PermanentError(f"a controller does not know how to {do!r}")
        return {"done": do}


def describe(view: LiveView, detail: ReportDetail) -> Answer:
    """A run at one moment, as plain data."""
    seen, decided = view.observation, view.decided
    return {
        "now_s": view.now_s,
        "duration_s": view.duration_s,
        "status": None if seen is None else seen.status.value,
        "input_rate_per_s": None if seen is None else seen.input_rate_per_s,
        "backlog_records": None if seen is None else seen.backlog_records,
        "latency_p95_s": None if seen is None else seen.latency_p95_s,
        "runs": None if view.observed is None else str(view.observed),
        "requested": None if view.requested is None else str(view.requested),
        "decision": None if decided is None else decided.decision.reason.sentence,
        "changes": view.changes,
        "cost": view.cost,
        "drivers_replaced": len(view.recoveries),
        "audits": len(view.audits),
        "violations": [one.sentence for one in view.audits if not one.clean],
        "problems": list(view.problems),
        "paused_by": view.paused_by,
        "queries": [_describe_query(query) for query in detail.queries],
    }


def _describe_query(query: QueryDetail) -> Answer:
    told: Answer = {
        "name": query.name or query.query_id,
        "batch": query.batch_id,
        "watermark_delay_s": query.watermark_delay_s,
        "state_mib": query.state_mib,
        "dropped_as_too_late": query.dropped_records,
        "observed": dict(query.observed),
    }
    if query.lag is not None:
        told["waiting_records"] = query.lag.records
        told["oldest_waits_s"] = query.lag.oldest_s
        told["partitions"] = query.lag.partitions
        told["partitions_lagging"] = query.lag.lagging
        told["worst_partitions"] = [
            {"topic": one.topic, "partition": one.partition, "records": one.records} for one in query.lag.worst
        ]
    return told


def clear(job: JobFile, home: Home) -> None:
    """End whatever lives of the job in this home, its own cluster included; the journal and the logs stay.

    May be called again, and by any process once no controller is at work. TemporaryError where something does not end.
    """
    place = home.folder / _JOB
    cluster: ClusterManager | None = LocalCluster.find(home.folder / _CLUSTER) if job.is_local else job.master()
    if home.was_left_behind and cluster is not None:
        _engine(job, home, cluster, SystemClock()).clear()
        (place / "job.json").replace(place / "ended.json")
    if isinstance(cluster, LocalCluster):
        cluster.down()


def _cluster(job: JobFile, home: Home) -> ClusterManager:
    if not job.is_local:
        return job.master()
    folder, table = home.folder / _CLUSTER, job.table.cluster
    found = LocalCluster.find(folder)
    if found is not None and found.is_running:
        return found
    return LocalCluster.up(
        folder, workers=table.workers, slots_per_worker=table.slots, memory_mib_per_worker=table.memory
    )


def _engine(job: JobFile, home: Home, cluster: ClusterManager, clock: SystemClock) -> SparkEngine:
    return SparkEngine(
        program=job.program,
        cluster=cluster,
        home=home.folder / _JOB,
        clock=clock,
        window_s=job.table.control.report_every,
        latency=job.table.latency,
        repartitions=job.repartitions,
        faults=True,
        supervised=True,
        seed=_SEED,
    )
