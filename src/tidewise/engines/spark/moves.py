"""The ways of changing a running job, each with a deadline and a way back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidewise.core import (
    REACH,
    ChangeRequest,
    Configuration,
    ImpossibleChangeError,
    JobStatus,
    Mechanism,
    Parameter,
    PermanentError,
    TemporaryError,
    format_duration,
)
from tidewise.engines.spark.application import Application
from tidewise.engines.spark.fleet import Fleet, MoveFailedError

_LOG = logging.getLogger(__name__)

DRAIN_WITHIN_S = 30.0
"""How long a query may take to finish its batch before it is cut."""
HOLD_S = 90.0
"""A drained application that hears nothing for this long starts its queries again by itself."""
TAKE_OVER_WITHIN_S = 30.0
"""A successor that has not committed a batch by then is given up."""
_AS_FAST_AS = 1.5
_ENOUGH_BATCHES = 4
"""A successor that has gone through this many times the batches it needs is as warm as it gets."""
_ENDS_AN_APPLICATION = (Mechanism.HANDOVER, Mechanism.REDEPLOY, Mechanism.REPARTITION)
_STATE_SHARE = 0.6
"""The most of an executor's memory that its share of the state may take after a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What a move did."""

    gap_s: float = 0.0
    detail: str = ""


def check(fleet: Fleet, request: ChangeRequest, *, state_mib: float | None) -> None:
    """PermanentError for a change that cannot be carried out; nothing has been touched then."""
    source, target = fleet.active.configuration, request.target
    reach = REACH[request.mechanism]
    beyond = source.differs_from(target) - reach
    if target.executors == len(fleet.active.executor_ids):
        beyond -= {Parameter.EXECUTORS}  # some are only being replaced: that is not asked to change
    if beyond:
        raise ImpossibleChangeError(f"{request.mechanism} cannot change {', '.join(sorted(beyond))}")
    if target.executors > fleet.program.most_executors:
        raise PermanentError(
            f"the job was started for at most {fleet.program.most_executors} executors, not {target.executors}"
        )
    if state_mib is not None and state_mib / target.executors > _STATE_SHARE * target.memory_mib_per_executor:
        raise PermanentError(
            f"{state_mib:.0f} MiB of state do not fit into {target.executors} executors of "
            f"{target.memory_mib_per_executor} MiB"
        )
    if target.state_partitions is None and source.state_partitions is not None:
        raise ImpossibleChangeError("state partitions can be given another number, not none at all")
    blind = fleet.cluster.blind_spot()
    if blind is not None and request.mechanism in _ENDS_AN_APPLICATION:
        raise PermanentError(f"it could not be confirmed that the old application is gone: {blind}")
    more = executors_needed(fleet, request)
    if not fleet.fits(target, more):
        beside = request.mechanism is Mechanism.HANDOVER
        hint = "; a redeploy, which stops the job first, may fit" if beside else ""
        raise PermanentError(
            f"the cluster cannot hold {more} more executors of {target.slots_per_executor} slots and "
            f"{target.memory_mib_per_executor} MiB{hint}"
        )


def executors_needed(fleet: Fleet, request: ChangeRequest) -> int:
    """How many executors have to find a place beside those that run."""
    if request.mechanism is Mechanism.HANDOVER:
        return request.target.executors
    return request.target.executors - len(fleet.active.executor_ids)


def move(fleet: Fleet, request: ChangeRequest) -> Moved:
    """Carry the change out; MoveFailedError where it did not work, and then the job runs as it did before."""
    moves: dict[Mechanism, Callable[[Fleet, ChangeRequest], Moved]] = {
        Mechanism.LIVE: live,
        Mechanism.QUERY_RESTART: query_restart,
        Mechanism.HANDOVER: handover,
        Mechanism.REDEPLOY: redeploy,
        Mechanism.REPARTITION: repartition,
    }
    return moves[request.mechanism](fleet, request)


# Live


def live(fleet: Fleet, request: ChangeRequest) -> Moved:
    """Executors join or leave; the query never stops."""
    application, wanted = fleet.active, request.target.executors
    before = _failed_tasks(fleet, application)
    _scale(fleet, application, wanted)
    in_time = fleet.wait_for(
        lambda: len(application.executor_ids) == wanted,
        within_s=_left_s(fleet, request),
        alive=(application,),
    )
    if not in_time:
        have = len(application.executor_ids)
        _scale(fleet, application, request.source.executors)
        raise MoveFailedError(f"only {have} of {wanted} executors were there by the deadline")
    _became(fleet, application, application.configuration.with_executors(wanted))
    _follow(fleet, wanted)
    failed = _failed_tasks(fleet, application) - before
    return Moved(detail=f"{failed} tasks had to be tried again" if failed > 0 else "")


def _scale(fleet: Fleet, application: Application, executors: int) -> None:
    fleet.ask(application, "scale", {"executors": executors})
    with fleet.news:
        application.target = executors
        fleet.save()


def _follow(fleet: Fleet, executors: int) -> None:
    """A warm standby is kept as large as what it stands by for."""
    with fleet.news:
        standby = fleet.applications.get(fleet.standby_key or "")
    if standby is not None:
        try:
            _scale(fleet, standby, executors)
            _became(fleet, standby, standby.configuration.with_executors(executors))
        except (TemporaryError, PermanentError) as error:
            _LOG.warning("The standby could not follow: %s", error)


def _failed_tasks(fleet: Fleet, application: Application) -> int:
    with fleet.news:
        executors = fleet.details.get(application.key, {}).get("executors", ())
        return sum(int(entry["failedTasks"] or 0) for entry in executors)


# Query restart


def query_restart(fleet: Fleet, request: ChangeRequest) -> Moved:
    """The queries stop between two batches and start again in the same driver."""
    application = fleet.active
    interval_s = request.target.commit_interval_s
    with _drained(fleet, application, request) as drained:
        _start(fleet, application, interval_s)
        _expect_commits(fleet, application, request)
        drained.done()
    _became(fleet, application, replace(application.configuration, commit_interval_s=interval_s))
    return Moved(gap_s=drained.gap_s(application, interval_s), detail=drained.detail)


@dataclass(slots=True, kw_only=True)
class Drained:
    """Queries that were stopped between batches, or cut."""

    committed_unix_s: dict[str, float]
    detail: str
    is_done: bool = False

    def done(self) -> None:
        """The change went through: there is nothing to go back from."""
        self.is_done = True

    def gap_s(self, successor: Application, interval_s: float) -> float:
        """The longest time between the last commit before and the first one after, less one trigger interval."""
        gaps_s = [
            after_s - self.committed_unix_s[query]
            for query, after_s in successor.first_commit_unix_s.items()
            if query in self.committed_unix_s
        ]
        return max(0.0, max(gaps_s, default=0.0) - interval_s)


@contextlib.contextmanager
def _drained(fleet: Fleet, application: Application, request: ChangeRequest) -> Iterator[Drained]:
    """Inside, the queries stand still; whoever leaves without `done` has them started again as they were."""
    interval_s = application.configuration.commit_interval_s
    within_s = min(DRAIN_WITHIN_S + interval_s, max(1.0, _left_s(fleet, request) - 5.0))
    fleet.set_status(JobStatus.CHANGING)
    try:
        answer = fleet.ask(
            application, "drain", {"within_s": within_s, "hold_s": HOLD_S}, within_s=within_s + DRAIN_WITHIN_S
        )
    except BaseException:
        _go_on(fleet, application, interval_s)
        raise
    cut = [query for query, stopped in answer["queries"].items() if stopped["cut"]]
    with fleet.news:
        last = dict(application.committed_unix_s)
        application.forget_runs()
    drained = Drained(
        committed_unix_s=last, detail=f"a batch was cut and is replayed in {', '.join(cut)}" if cut else ""
    )
    try:
        yield drained
    finally:
        if not drained.is_done:
            _go_on(fleet, application, interval_s)


def _go_on(fleet: Fleet, application: Application, interval_s: float) -> None:
    """The way back: the queries start again as they were."""
    if not application.is_driver_alive:
        return  # to be replaced, by whoever watches over drivers
    try:
        _start(fleet, application, interval_s)
        fleet.wait_for(lambda: has_run(application), within_s=TAKE_OVER_WITHIN_S, alive=(application,))
        fleet.set_status(JobStatus.RUNNING)
    except (TemporaryError, PermanentError) as error:
        # The agent starts them by itself when its time is over.
        _LOG.warning("The queries of %s could not be started again yet: %s", application.key, error)


def _start(fleet: Fleet, application: Application, interval_s: float) -> None:
    with fleet.news:
        application.forget_runs()
        gone = list(fleet.book.dead)
    fleet.ask(application, "start", {"commit_interval_s": interval_s, "gone": gone}, within_s=60.0)


def has_run(application: Application) -> bool:
    """Whether every query has committed a batch since its start, or found nothing to do."""
    movable = [facts.key for facts in application.queries.values() if facts.movable]
    return bool(movable) and all(key in application.running for key in movable)


def _expect_commits(fleet: Fleet, application: Application, request: ChangeRequest) -> None:
    """Wait until every query has committed a batch; the job runs from then on."""
    within_s = min(_left_s(fleet, request), TAKE_OVER_WITHIN_S + 2 * request.target.commit_interval_s)
    if not fleet.wait_for(lambda: has_run(application), within_s=within_s, alive=(application,)):
        raise MoveFailedError(f"no batch was committed within {format_duration(round(within_s))}")
    fleet.set_status(JobStatus.RUNNING)


# Handover


def handover(fleet: Fleet, request: ChangeRequest) -> Moved:
    """A second application warms up beside the first, which then drains and lets it take over."""
    old, target = fleet.active, request.target
    successor = fleet.launch(target, standby=True)
    try:
        _expect_warm(fleet, old, successor, request)
        _expect_same_queries(old, successor)
        # What the warm-up held is free before the old application stops, so that this costs no gap.
        fleet.ask(successor, "stop-warm-up", within_s=60.0)
        with _drained(fleet, old, request) as drained:
            try:
                _start(fleet, successor, target.commit_interval_s)
                _expect_commits(fleet, successor, request)
            except BaseException:
                # The old one may go on only when this one cannot write any more.
                fleet.end_for_sure(successor)
                raise
            drained.done()
    except BaseException:
        if fleet.active_key != successor.key:
            fleet.end_for_sure(successor)
        raise
    fleet.make_active(successor)
    if not fleet.retire(old):
        _LOG.warning("It cannot be confirmed that all of %s is gone", old.key)
    return Moved(gap_s=drained.gap_s(successor, target.commit_interval_s), detail=drained.detail)


def _expect_warm(fleet: Fleet, old: Application, successor: Application, request: ChangeRequest) -> None:
    """Wait until the successor has its executors and works through batches about as fast as the old application."""

    def warm() -> bool:
        if not old.is_driver_alive:
            raise MoveFailedError(f"the application that was to be replaced has died: {old.why_it_ended()}")
        return is_warm(fleet, old, successor)

    # Leave time for the drain and the first batch.
    within_s = max(1.0, _left_s(fleet, request) - TAKE_OVER_WITHIN_S)
    if not fleet.wait_for(warm, within_s=within_s, alive=(successor,)):
        told = successor.problems[-1] if successor.problems else "no reason was given"
        raise MoveFailedError(
            f"the successor was not warm within {format_duration(round(within_s))} "
            f"({len(successor.executor_ids)} executors, {sum(map(len, successor.warm_s.values()))} batches; {told})"
        )


def is_warm(fleet: Fleet, old: Application, successor: Application) -> bool:
    """Enough batches of every query, the last of them no slower than the old application's, or very many of them."""
    needed = fleet.program.warm_batches
    if len(successor.executor_ids) < successor.configuration.executors:
        return False
    movable = [key for key, facts in old.queries.items() if facts.movable]
    for key in movable:
        took_s = successor.warm_s.get(key, [])
        usual_s = old.batch_s.get(key, 0.0)
        fast = len(took_s) >= needed and took_s[-1] <= _AS_FAST_AS * usual_s
        if not fast and len(took_s) < _ENOUGH_BATCHES * needed:
            return False
    return bool(movable)


def _expect_same_queries(old: Application, successor: Application) -> None:
    """All queries of the application move, or none."""
    ours = {key for key, facts in old.queries.items() if facts.movable}
    theirs = {key for key, facts in successor.queries.items() if facts.movable}
    if ours != theirs:
        raise MoveFailedError(
            "started a second time, the program has other queries: "
            f"{', '.join(sorted(ours ^ theirs))} would not have been handed over"
        )
    if any(not facts.movable for facts in old.queries.values()):
        fixed = sorted(key for key, facts in old.queries.items() if not facts.movable)
        raise MoveFailedError(f"a query of the program cannot be moved, so none is: {', '.join(fixed)}")


# Redeploy


def redeploy(fleet: Fleet, request: ChangeRequest) -> Moved:
    """The application stops in order and is launched anew, cold."""
    old, source, target = fleet.active, fleet.active.configuration, request.target
    standby = fleet.applications.get(fleet.standby_key or "")
    if standby is not None:
        fleet.end(standby)
    with _drained(fleet, old, request) as drained:
        drained.done()
    _end_after_retiring(fleet, old)
    try:
        successor = cold_start(fleet, target, within_s=_left_s(fleet, request))
    except (PermanentError, OSError) as error:
        cold_start(fleet, source, within_s=fleet.program.launch_deadline_s)
        raise MoveFailedError(f"the job runs as it did before, because {error}") from error
    return Moved(gap_s=drained.gap_s(successor, target.commit_interval_s), detail=drained.detail)


def _end_after_retiring(fleet: Fleet, application: Application) -> None:
    if not fleet.retire(application):
        fleet.end_for_sure(application)


def cold_start(fleet: Fleet, configuration: Configuration, *, within_s: float) -> Application:
    """Launch an application and wait for its first batches; what did not get there is ended."""
    application = fleet.launch(configuration)
    try:
        fleet.make_active(application)
        _expect_start(fleet, application, within_s=within_s)
    except BaseException:
        fleet.end_for_sure(application)
        raise
    return application


def _expect_start(fleet: Fleet, application: Application, *, within_s: float) -> None:
    if not fleet.wait_for(lambda: has_run(application), within_s=within_s, alive=(application,)):
        raise MoveFailedError(_why_not_started(application, within_s))
    fleet.set_status(JobStatus.RUNNING)
    wanted = application.configuration.executors
    fleet.wait_for(lambda: len(application.executor_ids) >= wanted, within_s=within_s, alive=(application,))


def _why_not_started(application: Application, within_s: float) -> str:
    waited = f"within {format_duration(round(within_s))}"
    if not application.greeted:
        return (
            f"the program runs, but no agent has called in {waited}: it is not loaded where Python is started with -I "
            f"or -E, or where no Spark session is made (log: {application.log})"
        )
    if application.problems:
        return f"no batch was committed {waited}: {application.problems[-1]}"
    if not application.queries:
        return f"the program made a Spark session, but started no query {waited} (log: {application.log})"
    if not any(facts.movable for facts in application.queries.values()):
        return "no query of the program can be moved; see the support page for what is observe-only"
    if not application.executor_ids:
        return f"the cluster gave no executor {waited}: see whether it has room for {application.configuration}"
    return f"no batch was committed {waited} (log: {application.log})"


# Repartition


def repartition(fleet: Fleet, request: ChangeRequest) -> Moved:
    """The queries drain, their state is cut anew, and they start again; what else differs follows by other means."""
    application, target = fleet.active, request.target
    partitions = target.state_partitions
    gap_s, detail = 0.0, ""
    if partitions is not None and partitions != application.configuration.state_partitions:
        if not fleet.ask(application, "describe")["can_repartition"]:
            raise MoveFailedError("this Spark cannot cut state anew (4.2 and newer can); nothing was stopped")
        with _drained(fleet, application, request) as drained:
            fleet.ask(
                application, "repartition", {"partitions": partitions}, within_s=max(1.0, _left_s(fleet, request))
            )
            _became(fleet, application, replace(application.configuration, state_partitions=partitions))
            _start(fleet, application, target.commit_interval_s)
            _expect_commits(fleet, application, request)
            drained.done()
        _became(fleet, application, replace(application.configuration, commit_interval_s=target.commit_interval_s))
        gap_s, detail = drained.gap_s(application, target.commit_interval_s), drained.detail
    rest = application.configuration.differs_from(target)
    if rest - {Parameter.EXECUTORS}:
        further = handover(fleet, request) if fleet.program.handover else redeploy(fleet, request)
        return Moved(gap_s=gap_s + further.gap_s, detail=detail or further.detail)
    if rest:
        live(fleet, request)
    return Moved(gap_s=gap_s, detail=detail)


def _became(fleet: Fleet, application: Application, configuration: Configuration) -> None:
    with fleet.news:
        application.configuration = configuration
        fleet.save()
        if application.key == fleet.active_key:
            fleet.tell_configuration()


def _left_s(fleet: Fleet, request: ChangeRequest) -> float:
    return request.deadline_s - fleet.clock.now_s()
