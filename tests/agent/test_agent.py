"""What the agent does with a query, tried on a stand-in for the JVM: leases, standbys, and programs that try again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidewise_agent import hooks
from tidewise_agent.agent import Agent, most_work_first
from tidewise_agent.lease import Lease, LeaseRefusedError
from tidewise_agent.queries import Recipe
from tidewise_agent.spec import AgentSpec


class JavaQuery:
    def __init__(self, number: int) -> None:
        self.number = number
        self.active = True

    def runId(self) -> JavaQuery:  # noqa: N802 -- Java's name
        return self

    def toString(self) -> str:  # noqa: N802 -- Java's name
        return f"run-{self.number}"

    def isActive(self) -> bool:  # noqa: N802 -- Java's name
        return self.active

    def stop(self) -> None:
        self.active = False


class JavaWriter:
    """Starts queries, or fails as it is told to."""

    def __init__(self) -> None:
        self.started: list[JavaQuery] = []
        self.failure: Exception | None = None

    def trigger(self, _trigger: object) -> JavaWriter:
        return self

    def start(self) -> JavaQuery:
        if self.failure is not None:
            raise self.failure
        self.started.append(JavaQuery(len(self.started)))
        return self.started[-1]


class StreamingQuery:
    def __init__(self, jsq: JavaQuery) -> None:
        self._jsq = jsq


class Conf(dict[str, str]):
    """Settings of a session."""


class Session:
    def __init__(self, **conf: str) -> None:
        self.conf = Conf(conf)


class Writer:
    def __init__(self, **conf: str) -> None:
        self._spark = Session(**conf)
        self._jwrite = JavaWriter()
        self._sq = StreamingQuery


class Jvm:
    """As much of a driver's JVM as starting and draining asks for."""

    def pid(self) -> int:
        return os.getpid()

    def trigger(self, interval_s: float) -> float:
        return interval_s

    def interval_s(self, _text: str) -> float:
        return 1.0

    def listen(self, _session: object, _listener: object) -> None:
        pass

    def can_end_after_batch(self, _query: JavaQuery) -> bool:
        return False

    def logged_and_committed(self, _query: JavaQuery) -> tuple[int, int]:
        return 3, 3


MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(tmp_path: Path) -> MakeAgent:
    def make(application: str = "a", **settings: Any) -> Agent:  # noqa: ANN401 -- of the agent
        spec = AgentSpec(
            application=application,
            host="127.0.0.1",
            port=9,
            token="t",  # noqa: S106 -- made up
            state_folder=str(tmp_path),
            identity_file=str(tmp_path / "identity.json"),
            **settings,
        )
        agent = Agent(spec)
        agent._jvm = Jvm()  # type: ignore[assignment]  # a stand-in
        return agent

    return make


def recipe(checkpoint: Path | None, **more: Any) -> Recipe:  # noqa: ANN401 -- of the recipe
    options = {} if checkpoint is None else {"checkpointlocation": str(checkpoint)}
    return Recipe(options=options, **more)


def told(agent: Agent, kind: str) -> list[dict[str, Any]]:
    return [message for message in agent._link._outgoing if message["kind"] == kind]


def test_a_refused_query_may_be_tried_again_and_needs_the_lease_again(make_agent: MakeAgent, tmp_path: Path) -> None:
    other = Lease(tmp_path / "c" / "_tidewise", application="other")
    other.claim()
    agent, writer = make_agent(), Writer()
    for _ in range(2):
        with pytest.raises(LeaseRefusedError):
            agent.start_query(writer, recipe(tmp_path / "c"))
        assert not hasattr(writer, "_tidewise_query"), "the next try would go past the agent"
    assert writer._jwrite.started == []
    other.release()
    agent.start_query(writer, recipe(tmp_path / "c"))
    assert len(writer._jwrite.started) == 1


def test_a_start_that_fails_lets_the_lease_go(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent, writer = make_agent(), Writer()
    writer._jwrite.failure = ValueError("Spark says no")
    with pytest.raises(ValueError, match="Spark says no"):
        agent.start_query(writer, recipe(tmp_path / "c"))
    assert agent.queries == []
    Lease(tmp_path / "c" / "_tidewise", application="other").claim()


def test_what_the_program_starts_anew_takes_the_place_of_what_has_ended(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent, first, second = make_agent(), Writer(), Writer()
    agent.start_query(first, recipe(tmp_path / "c"))
    first._jwrite.started[0].stop()
    agent.start_query(second, recipe(tmp_path / "c"))
    assert [query.writer for query in agent.queries] == [second]
    second._jwrite.started[0].stop()
    agent._start()
    assert len(second._jwrite.started) == 1, "what has ended by itself is the program's to start again"
    agent.queries[0].waits = True  # as after a drain
    agent._start()
    assert (len(first._jwrite.started), len(second._jwrite.started)) == (1, 2), "two queries on one checkpoint"


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"once": True}, {"continuous": "1 second"}])
def test_a_standby_refuses_what_cannot_be_moved(
    make_agent: MakeAgent, tmp_path: Path, trigger: dict[str, object]
) -> None:
    agent = make_agent(standby=True)
    for one in (recipe(tmp_path / "c", trigger=trigger), recipe(None, name="loose")):
        writer = Writer()
        with pytest.raises(RuntimeError, match=r"cannot be moved .* write its sink a second time"):
            agent.start_query(writer, one)
        assert writer._jwrite.started == []


@pytest.mark.parametrize(("formats", "cleans"), [({"socket"}, False), ({"json"}, True)])
def test_a_standby_refuses_sources_that_cannot_be_read_twice(
    make_agent: MakeAgent, tmp_path: Path, formats: set[str], cleans: bool
) -> None:
    agent = make_agent(standby=True)
    agent.source_formats, agent.cleans_sources = formats, cleans
    with pytest.raises(RuntimeError, match="replayable_sources"):
        agent.start_query(Writer(), recipe(tmp_path / "c"))


class CopyWriter(Writer):
    """A writer whose frame can be written elsewhere, as a warm-up does."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere = ElsewhereWriter()
        self._df = self

    @property
    def writeStream(self) -> CopyWriter:  # noqa: N802 -- PySpark's name
        made = CopyWriter()
        made._jwrite = self.elsewhere
        return made


class ElsewhereWriter(JavaWriter):
    def __init__(self) -> None:
        super().__init__()
        self.triggers: list[object] = []
        self.options: dict[str, str] = {}

    def format(self, name: str) -> ElsewhereWriter:
        self.options["format"] = name
        return self

    def option(self, key: str, value: str) -> ElsewhereWriter:
        self.options[key] = value
        return self

    def outputMode(self, _mode: str) -> ElsewhereWriter:  # noqa: N802 -- Java's name
        return self

    def trigger(self, trigger: object) -> ElsewhereWriter:
        self.triggers.append(trigger)
        return self


def _committed(checkpoint: Path) -> Path:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
        (checkpoint / log / "0").write_text("v1", encoding="utf-8")
    return checkpoint


def test_a_copy_works_on_a_clone_at_its_own_interval_and_tells_all(make_agent: MakeAgent, tmp_path: Path) -> None:
    checkpoint = _committed(tmp_path / "c")
    agent, writer = make_agent(standby=True, copy="first", commit_interval_s=7.0), CopyWriter()
    agent.start_query(writer, recipe(checkpoint, format="kafka"))
    scratch = checkpoint / "_tidewise" / "copy-first"
    assert writer._jwrite.started == [], "the program's own query was started"
    assert writer.elsewhere.options == {"format": "noop", "checkpointLocation": str(scratch)}
    assert writer.elsewhere.triggers == [7.0]
    assert (scratch / "commits" / "0").exists()
    assert Lease(checkpoint / "_tidewise", application="onlooker").holder() is None
    agent.progressed('{"runId": "run-0", "batchId": 1, "numInputRows": 5}')
    agent.idle("run-0")
    agent.terminated("run-0", "it broke")
    assert [message["query"] for kind in ("progress", "idle", "terminated") for message in told(agent, kind)] == (
        3 * [str(checkpoint)]
    )
    assert told(agent, "warm") == []
    assert not (checkpoint / "_tidewise" / "ledger.jsonl").exists(), "what a copy commits is not the job's"
    with pytest.raises(RuntimeError, match="a copy is only measured"):
        agent._handle("start", {})


def test_a_copy_that_comes_back_goes_on_from_where_it_was(make_agent: MakeAgent, tmp_path: Path) -> None:
    checkpoint = _committed(tmp_path / "c")
    make_agent("a-1", standby=True, copy="a-1").start_query(CopyWriter(), recipe(checkpoint, format="kafka"))
    scratch = checkpoint / "_tidewise" / "copy-a-1"
    (scratch / "commits" / "1").write_text("its own", encoding="utf-8")
    # Its first driver is dead and known to be; the scratch checkpoint is not cleared up with it.
    again = make_agent("a-2", standby=True, copy="a-1", gone=("a-1",))
    again.start_query(CopyWriter(), recipe(checkpoint, format="kafka"))
    assert (scratch / "commits" / "1").read_text(encoding="utf-8") == "its own"
    warm = make_agent("a-3", standby=True)
    warm.start_query(CopyWriter(), recipe(checkpoint, format="kafka"))
    assert scratch.is_dir(), "a successor that warms up has thrown a copy's checkpoint away"
    assert (tmp_path / "scratch.txt").read_text(encoding="utf-8").splitlines() == [
        *2 * [str(scratch)],
        str(checkpoint / "_tidewise" / "warm-a-3"),
    ]


@pytest.mark.parametrize("copy", ["a-1", None])
def test_a_copy_or_a_standby_starts_no_writer_twice(
    make_agent: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: str | None
) -> None:
    agent, writer = make_agent(standby=True, copy=copy), CopyWriter()
    writer._tidewise_recipe = recipe(_committed(tmp_path / "c"), format="kafka")  # type: ignore[attr-defined]  # a hook's
    monkeypatch.setattr(hooks, "_agent", lambda: agent)
    plainly: list[str] = []

    def start() -> object:
        return hooks._start(writer, lambda: plainly.append("the program's own query"))

    start()
    writer.elsewhere.started[0].stop()  # it has failed, and the program tries again
    with pytest.raises(RuntimeError, match="starts no writer a second time"):
        start()
    assert plainly == [], "the sink of the job was written without a lease"
    assert [message["code"] for message in told(agent, "problem")] == ["query-not-started"]
    agent.standby = False  # it has taken over; a copy never does
    if copy is None:
        start()
        assert plainly == ["the program's own query"]
    else:
        with pytest.raises(RuntimeError, match="starts no writer a second time"):
            start()


def test_a_copy_leaves_when_its_time_is_over_though_it_never_had_a_context(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    monkeypatch.setattr("tidewise_agent.agent.os._exit", lambda _code: left.set())
    # A day: by then this process, which it would end, has long ended by itself.
    make_agent(standby=True, copy="a-1", ends_unix_s=time.time() + 86_400.0)
    assert not left.wait(timeout=0.3)
    agent = make_agent(standby=True, copy="a-1", ends_unix_s=time.time() - 5.0)
    agent._jvm = None
    assert left.wait(timeout=10.0)


@pytest.mark.parametrize(("formats", "why"), [({"json"}, None), ({"socket"}, "may not be read a second time")])
def test_a_job_says_beforehand_whether_it_may_be_copied(
    make_agent: MakeAgent, tmp_path: Path, formats: set[str], why: str | None
) -> None:
    agent = make_agent()
    agent.source_formats = formats
    agent.start_query(Writer(), recipe(tmp_path / "c"))
    (message,) = told(agent, "query")
    assert (message["why_alone"] is None) if why is None else (why in message["why_alone"])


_JOINS_GROUP = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}


def test_two_applications_may_not_join_one_consumer_group(make_agent: MakeAgent, tmp_path: Path) -> None:
    standby, writer = make_agent(standby=True), Writer(**_JOINS_GROUP)
    standby.source_formats, standby.kafka_group = {"kafka"}, "orders"
    with pytest.raises(RuntimeError, match=r"kafka\.group\.id to 'orders' .* leave out the one or the other"):
        standby.start_query(writer, recipe(tmp_path / "c"))
    assert writer._jwrite.started == []
    # The job itself runs, and says beforehand that it will have no successor.
    alone = make_agent()
    alone.source_formats, alone.kafka_group = {"kafka"}, "orders"
    alone.start_query(Writer(**_JOINS_GROUP), recipe(tmp_path / "c"))
    assert [message["code"] for message in told(alone, "problem")] == ["kafka-group-shared"]


@pytest.mark.parametrize(("group", "conf"), [("orders", {}), (None, _JOINS_GROUP)])
def test_where_no_driver_joins_a_group_or_each_its_own_nothing_is_said(
    make_agent: MakeAgent, tmp_path: Path, group: str | None, conf: dict[str, str]
) -> None:
    agent = make_agent()
    agent.source_formats, agent.kafka_group = {"kafka"}, group
    agent.start_query(Writer(**conf), recipe(tmp_path / "c"))
    assert told(agent, "problem") == []


def test_once_it_has_taken_over_a_standby_starts_queries_for_good(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent, writer = make_agent(standby=True), Writer()
    agent._start(gone=("dead",))
    agent.start_query(writer, recipe(tmp_path / "c"))
    assert len(writer._jwrite.started) == 1
    assert agent.queries[0].warming is False


def test_a_drained_query_goes_on_and_the_lease_with_it(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent, writer = make_agent(), Writer()
    user_object = agent.start_query(writer, recipe(tmp_path / "c"))
    lease = agent.queries[0].lease
    assert lease is not None
    lease.check()
    stopped = agent._drain(within_s=1.0, hold_s=60.0)["queries"][str(tmp_path / "c")]
    assert (stopped["how"], stopped["cut"], stopped["last_batch"]) == ("stopped", False, 3)
    assert agent.queries[0].moving
    with pytest.raises(LeaseRefusedError):
        lease.check()
    assert agent._start(commit_interval_s=7.0) == {"started": [str(tmp_path / "c")]}
    lease.check()
    assert user_object._jsq is writer._jwrite.started[1], "the program holds the query that was stopped"
    assert agent.queries[0].interval_s == 7.0
    assert not agent.queries[0].moving
    assert agent._hold is None


def test_all_queries_start_or_none(make_agent: MakeAgent, tmp_path: Path) -> None:
    agent, first, second = make_agent(), Writer(), Writer()
    agent.start_query(first, recipe(tmp_path / "one"))
    agent.start_query(second, recipe(tmp_path / "two"))
    agent._drain(within_s=1.0, hold_s=60.0)
    second._jwrite.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        agent._start()
    assert not first._jwrite.started[-1].active
    for name in ("one", "two"):
        holder = Lease(tmp_path / name / "_tidewise", application="onlooker").holder()
        assert holder is not None
        assert holder.released
    second._jwrite.failure = None
    assert len(agent._start()["started"]) == 2


def test_without_a_query_that_can_be_moved_a_drain_is_refused(make_agent: MakeAgent) -> None:
    agent = make_agent()
    agent.start_query(Writer(), recipe(None, name="loose"))
    with pytest.raises(RuntimeError, match="no query that can be moved"):
        agent._drain(within_s=1.0, hold_s=60.0)
    assert [message["code"] for message in told(agent, "problem")] == ["no-checkpoint"]


def test_a_session_that_is_only_watched_needs_no_lease(make_agent: MakeAgent, tmp_path: Path) -> None:
    Lease(tmp_path / "c" / "_tidewise", application="other").claim()
    agent, writer = make_agent(lease=False), Writer()
    agent.start_query(writer, recipe(tmp_path / "c"))
    assert agent.queries[0].lease is None
    assert len(writer._jwrite.started) == 1


def test_an_unknown_operation_is_refused(make_agent: MakeAgent) -> None:
    with pytest.raises(ValueError, match="knows no operation 'fly'"):
        make_agent()._handle("fly", {})


def test_state_is_left_alone_where_this_spark_cannot_cut_it_anew(make_agent: MakeAgent, tmp_path: Path) -> None:
    class OldJvm(Jvm):
        spark_version = "3.5.9"

        def can_repartition_state(self, _session: object) -> bool:
            return False

    agent, writer = make_agent(), Writer()
    agent._jvm = OldJvm()  # type: ignore[assignment]  # a stand-in
    (tmp_path / "c" / "state").mkdir(parents=True)
    agent.start_query(writer, recipe(tmp_path / "c"))
    agent._drain(within_s=1.0, hold_s=60.0)
    with pytest.raises(RuntimeError, match=r"Spark 3.5.9 cannot cut state anew .* leave state_partitions as it is"):
        agent._repartition(partitions=4)
    assert agent._start()["started"] == [str(tmp_path / "c")]


def test_whoever_did_most_is_kept_and_among_equals_the_older_one() -> None:
    assert most_work_first(["10", "9", "2"], {}) == ["2", "9", "10"]
    assert most_work_first(["0", "1", "2"], {"2": 900.0, "0": 500.0, "1": 500.0}) == ["2", "0", "1"]
    assert most_work_first(["0", "1"], {"0": 500.0, "7": 900.0}) == ["0", "1"]
