"""The applications of one job: the one that works, and now and then one that waits beside it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tidewise.core import Clock, Configuration, JobStatus, PermanentError, TemporaryError
from tidewise.engines.spark.application import Application, CopyOrder, QueryFacts, identity_in, launch
from tidewise.engines.spark.book import Book, configuration_from_dict, configuration_to_dict
from tidewise.engines.spark.copy_record import CopyRecord
from tidewise.engines.spark.master import ClusterManager
from tidewise.engines.spark.operators import StageSample
from tidewise.engines.spark.program import SparkProgram, check_memory, heap_mib
from tidewise.engines.spark.progress import UnreadableProgressError, parse_progress
from tidewise.engines.spark.proxy import TcpProxy
from tidewise.engines.spark.reports import Reporter
from tidewise.engines.spark.switchboard import Message, Switchboard
from tidewise.host.processes import ProcessIdentity, find_with_environment, wait_until
from tidewise_agent.scratch import clear_up
from tidewise_agent.spec import SPEC_VARIABLE

_LOG = logging.getLogger(__name__)

_PROBLEMS_KEPT = 20
_GONE_WITHIN_S = 30.0
_ANSWER_WITHIN_S = 20.0


class MoveFailedError(PermanentError):
    """A change could not be carried out; the sentence says why."""


class Fleet:
    """Launches, hears, asks and ends applications; everything that several threads touch is touched under one lock."""

    def __init__(
        self,
        *,
        program: SparkProgram,
        cluster: ClusterManager,
        book: Book,
        clock: Clock,
        reporter: Reporter,
        faults: bool,
    ) -> None:
        self.program = program
        self.cluster = cluster
        self.clock = clock
        self.reporter = reporter
        self.news = threading.Condition(threading.RLock())
        self.applications: dict[str, Application] = {}
        self.active_key: str | None = None
        self.standby_key: str | None = None
        self.status = JobStatus.DOWN
        self.details: dict[str, Message] = {}
        """The last executor details of each application."""
        self._unix_offset_s = time.time() - clock.now_s()
        self._since_s = clock.now_s()
        """What was committed before this controller came is not told of as if it had happened now."""
        self._query_ids: dict[str, str] = {}
        self.switchboard = Switchboard(token=book.token, port=book.port, heard=self._hear)
        self.proxy = TcpProxy("127.0.0.1", self.switchboard.port, port=book.proxy_port) if faults else None
        """In the line between agents and controller, where faults may be injected there."""
        self.closing = False
        """Whether the job is being stopped: nothing is launched any more."""
        # Agents call these ports again after a restart of the controller.
        self.book = book.having(
            port=self.switchboard.port, proxy_port=book.proxy_port if self.proxy is None else self.proxy.port
        )

    @property
    def home(self) -> Path:
        return self.book.folder

    @property
    def active(self) -> Application:
        """The application that works, or worked last."""
        application = self.applications.get(self.active_key or "")
        if application is None:
            raise TemporaryError("the job has not started yet, or its driver is being replaced")
        return application

    def run_time_s(self, unix_s: float) -> float:
        return unix_s - self._unix_offset_s

    def unix_s(self, run_time_s: float) -> float:
        return run_time_s + self._unix_offset_s

    def checkpoints(self) -> dict[str, QueryFacts]:
        """The queries of the working application by their checkpoint."""
        with self.news:
            return {facts.checkpoint: facts for facts in self.active.queries.values() if facts.checkpoint is not None}

    # Beginning and ending applications

    def launch_copy(
        self, configuration: Configuration, *, record: CopyRecord, ends_unix_s: float, scratch: str | None = None
    ) -> Application:
        """Start a copy that is only measured; where the `scratch` checkpoint is there already, it goes on from it."""
        key = self._new_key()
        order = CopyOrder(scratch=scratch or key, ends_unix_s=ends_unix_s, record=record)
        return self._launch(key, configuration, standby=True, copy=order)

    def launch(self, configuration: Configuration, *, standby: bool = False) -> Application:
        """Start another application of the program."""
        return self._launch(self._new_key(), configuration, standby=standby)

    def _new_key(self) -> str:
        """Never used twice, also by a controller that comes after this one: leases go by them."""
        with self.news:
            if self.closing:
                raise MoveFailedError("the job is being stopped")
            number = self.book.launched + 1
            self.book = self.book.having(launched=number)
            return f"{self.home.name}-{int(self.book.began_unix_s)}-{number}"

    def _launch(
        self, key: str, configuration: Configuration, *, standby: bool, copy: CopyOrder | None = None
    ) -> Application:
        check_memory(configuration.memory_mib_per_executor)
        port = self.switchboard.port if self.proxy is None else self.proxy.port
        application = launch(
            key=key,
            program=self.program,
            configuration=configuration,
            cluster=self.cluster,
            home=self.home,
            controller=(self.switchboard.host, port),
            token=self.book.token,
            standby=standby,
            gone=self.book.dead,
            copy=copy,
        )
        with self.news:
            self.applications[key] = application
            self.save()
        return application

    def take_back(self) -> None:
        """Find the applications of an earlier controller; what is dead is noted as such."""
        with self.news:
            for content in self.book.applications:
                key = str(content["key"])
                process = ProcessIdentity.from_dict(content["process"])
                self.applications[key] = Application(
                    key=key,
                    configuration=configuration_from_dict(self.book.configurations[key]),
                    folder=Path(content["folder"]),
                    process=process,
                    target=int(content["target"]),
                    copy=content.get("copy"),
                )
            self.active_key = self.book.active
        self._end_strays()

    def _end_strays(self) -> None:
        """An application whose controller died before it had written it down belongs to nobody: it is ended."""
        for folder in sorted((self.home / "applications").glob("*")):
            if folder.name in self.applications or folder.name in self.book.dead:
                continue
            found = find_with_environment(SPEC_VARIABLE, str(folder / "agent.json"))
            for process in found:
                process.kill()
            spark_id = identity_in(folder).get("spark_application")
            gone = spark_id is None or wait_until(
                partial(self._is_gone, str(spark_id)), deadline_s=_GONE_WITHIN_S, poll_s=0.2
            )
            if gone:
                self.book = self.book.having(dead=(*self.book.dead, folder.name))

    def clear_up(self) -> None:
        """Remove the scratch checkpoints of applications that are dead, whoever ended them."""
        for name in self.book.dead:
            clear_up(self.home / "applications" / name)

    def _is_gone(self, spark_id: str) -> bool:
        return self.cluster.is_gone(spark_id) is True

    def retire(self, application: Application, *, within_s: float = _GONE_WITHIN_S) -> bool:
        """End an application in order, or else by force; whether it is known to be dead."""
        if application.is_driver_alive and self.switchboard.is_connected(application.key):
            try:
                self.ask(application, "retire", within_s=5.0)
                application.process.wait_gone(deadline_s=10.0)
            except (TemporaryError, PermanentError) as error:
                _LOG.info("%s could not be asked to leave: %s", application.key, error)
        return self.end(application, within_s=within_s)

    def end(self, application: Application, *, within_s: float = _GONE_WITHIN_S, keeps_scratch: bool = False) -> bool:
        """Kill what lives of an application; whether all of it is known to be dead, which is written down.

        `keeps_scratch`: another goes on from its scratch checkpoint.
        """
        gone = application.end(self.cluster, within_s=within_s)
        if gone and not keeps_scratch:
            # One that was killed could not clear up after itself.
            clear_up(application.folder)
        with self.news:
            if gone:
                self.applications.pop(application.key, None)
                self.details.pop(application.key, None)
                if application.key not in self.book.dead:
                    self.book = self.book.having(dead=(*self.book.dead, application.key))
                if self.standby_key == application.key:
                    self.standby_key = None
                self.save()
            self.news.notify_all()
        return gone

    def end_for_sure(self, application: Application, *, give_up: Callable[[], bool] = lambda: False) -> None:
        """End it, however long that takes: where death cannot be confirmed, nobody else may write."""
        while not self.end(application) and not give_up():
            _LOG.warning("It cannot be confirmed yet that %s is gone; nobody else may write", application.key)
            time.sleep(1.0)

    def make_active(self, application: Application) -> None:
        with self.news:
            self.active_key = application.key
            if self.standby_key == application.key:
                self.standby_key = None
            self.save()
            self.tell_configuration()

    def save(self) -> None:
        """Write down which applications there are."""
        with self.news:
            intended = self.book.configuration
            if self.active_key in self.applications:
                intended = configuration_to_dict(self.active.configuration)
            self.book = self.book.having(
                applications=tuple(one.to_dict() for one in self.applications.values()),
                configurations={
                    one.key: configuration_to_dict(one.configuration) for one in self.applications.values()
                },
                configuration=intended,
                active=self.active_key,
            )

    def close(self) -> None:
        self.switchboard.close()
        if self.proxy is not None:
            self.proxy.close()

    # Asking and waiting

    def ask(
        self,
        application: Application,
        operation: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        within_s: float = _ANSWER_WITHIN_S,
    ) -> Message:
        return self.switchboard.ask(
            application.key,
            operation,
            arguments,
            within_s=within_s,
            give_up=lambda: not application.is_driver_alive,
        )

    def wait_for(self, condition: Callable[[], bool], *, within_s: float, alive: tuple[Application, ...] = ()) -> bool:
        """Whether it came true in time; MoveFailedError as soon as one of these applications dies."""
        deadline_s = time.monotonic() + within_s
        with self.news:
            while not condition():
                for application in alive:
                    if not application.is_driver_alive:
                        raise MoveFailedError(application.why_it_ended())
                left_s = deadline_s - time.monotonic()
                if left_s <= 0.0:
                    return False
                self.news.wait(timeout=min(0.2, left_s))
            return True

    def fits(self, configuration: Configuration, executors: int) -> bool:
        """Whether so many more executors of this size find a place; True where the cluster cannot tell."""
        if executors <= 0:
            return True
        found = self.cluster.fits(
            count=executors,
            slots=configuration.slots_per_executor,
            memory_mib=heap_mib(configuration.memory_mib_per_executor),
        )
        return found is not False

    def has_room_for_copy(self, configuration: Configuration) -> bool:
        """Whether a copy finds a place beside all that runs, as far as that is known; PermanentError: it never will."""
        check_memory(configuration.memory_mib_per_executor)
        found = self.cluster.fits(
            count=configuration.executors,
            slots=configuration.slots_per_executor,
            memory_mib=heap_mib(configuration.memory_mib_per_executor),
        )
        return found is True

    def expect_room(self, configuration: Configuration) -> None:
        """PermanentError where the cluster cannot hold an application of this configuration."""
        if not self.fits(configuration, configuration.executors):
            raise PermanentError(f"the cluster has no room for {configuration}; see `tidewise cluster status`")

    # What is observed

    def observed(self) -> Configuration:
        with self.news:
            application = self.active
            return application.configuration.with_executors(max(1, len(application.executor_ids)))

    def set_status(self, status: JobStatus, at_s: float | None = None) -> None:
        with self.news:
            if status is not self.status:
                self.status = status
                self.reporter.status(status, self.clock.now_s() if at_s is None else at_s)
                self.news.notify_all()

    def tell_configuration(self) -> None:
        with self.news:
            self.reporter.configuration(self.observed(), self.clock.now_s())

    # Hearing

    def _hear(self, key: str, message: Message) -> None:
        with self.news:
            application = self.applications.get(key)
            if application is None:
                _LOG.warning("An application called in that is not known: %s", key)
                return
            handler = getattr(self, f"_hear_{str(message.get('kind')).replace('-', '_')}", None)
            if handler is not None:
                handler(application, message)
            self.news.notify_all()

    def _hear_hello(self, application: Application, message: Message) -> None:
        application.greeted = True
        self._hear_executors(application, {"ids": message["executors"], "target": message["target"]})
        for query in message["queries"]:
            self._hear_query(application, query)

    def _hear_executors(self, application: Application, message: Message) -> None:
        application.executor_ids = tuple(message["ids"])
        if application.key == self.active_key:
            self.tell_configuration()

    def _hear_query(self, application: Application, message: Message) -> None:
        facts = QueryFacts.of(message)
        application.queries[facts.key] = facts

    def _hear_progress(self, application: Application, message: Message) -> None:
        try:
            progress = parse_progress(str(message["progress"]))
        except UnreadableProgressError as error:
            _LOG.warning("A report of Spark cannot be read: %s", error)
            self._note(application, f"a report of Spark cannot be read: {error}")
            return
        if not progress.executed:
            return
        query = str(message["query"])
        application.committed_unix_s[query] = progress.committed_unix_s
        application.first_commit_unix_s.setdefault(query, progress.committed_unix_s)
        application.running.add(query)
        usual_s = application.batch_s.get(query, progress.duration_s)
        application.batch_s[query] = usual_s + 0.1 * (progress.duration_s - usual_s)
        committed_s = self.run_time_s(progress.committed_unix_s)
        at_s = min(committed_s, self.clock.now_s())
        if application.copy is not None:
            if application.record is not None:
                application.record.batch(query, progress, at_s)
            return
        self._query_ids[query] = progress.query_id
        if committed_s >= self._since_s:
            self.reporter.batch(progress, at_s)

    def _hear_idle(self, application: Application, message: Message) -> None:
        # A source without new data runs no batch; its query runs all the same.
        application.running.add(str(message["query"]))
        if application.record is not None:
            application.record.idle(str(message["query"]), self.clock.now_s())
        query_id = self._query_ids.get(str(message["query"]))
        if query_id is not None and application.key == self.active_key:
            self.reporter.idle(query_id, self.clock.now_s())

    def _hear_warm(self, application: Application, message: Message) -> None:
        query = str(message["query"])
        application.warm_s.setdefault(query, []).append(float(message["took_ms"] or 0) / 1000)

    def _hear_terminated(self, application: Application, message: Message) -> None:
        if message.get("by_program"):
            application.stopped_by_program = True
        if message.get("exception"):
            first = str(message["exception"]).splitlines()[0]
            application.query_failure = first
            self._note(application, f"a query ended with an error: {first}")

    def _hear_details(self, application: Application, message: Message) -> None:
        self.details[application.key] = message

    def _hear_stages(self, application: Application, message: Message) -> None:
        query_id = self._query_ids.get(str(message["query"]))
        if query_id is not None and application.key == self.active_key:
            stages = [_stage(entry) for entry in message["stages"]]
            self.reporter.stages(query_id, stages, self.clock.now_s())

    def _hear_problem(self, application: Application, message: Message) -> None:
        _LOG.warning("The agent of %s: %s: %s", application.key, message["code"], message["sentence"])
        self._note(application, str(message["sentence"]))

    def _hear_dropped(self, application: Application, message: Message) -> None:
        self._note(application, f"{message['messages']} messages were lost while the controller was away")

    def _hear_ending(self, application: Application, message: Message) -> None:
        application.ending = True
        failure = message.get("failure")
        application.failure = None if failure is None else str(failure).splitlines()[0]

    @staticmethod
    def _note(application: Application, sentence: str) -> None:
        application.problems = [*application.problems, sentence][-_PROBLEMS_KEPT:]


def _stage(entry: Mapping[str, Any]) -> StageSample:
    return StageSample(
        stage_id=int(entry["stage"]),
        name=str(entry["name"]),
        operators=tuple(str(operator) for operator in entry.get("operators", ())),
        seconds=max(0.0, ((entry["ended_ms"] or 0) - (entry["began_ms"] or 0)) / 1000),
        tasks=int(entry["tasks"]),
        rows=int(entry["rows"]),
        skew=entry["skew"],
        batch_id=entry.get("batch"),
        is_done=bool(entry.get("job_done")),
        run_s=float(entry["run_ms"]) / 1000,
        shuffled_rows=int(entry.get("shuffled_rows", 0)),
    )
