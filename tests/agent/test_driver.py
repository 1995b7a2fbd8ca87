"""The agent in real drivers: programs that know nothing of it do not notice what is done to their queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.drivers import LONG_S, TOKEN, Driver, Ear, driver, end, settled, start
from tidewise.core import PermanentError
from tidewise.engines.spark.switchboard import Switchboard
from tidewise.host.processes import wait_until
from tidewise_agent.lease import Lease

pytestmark = pytest.mark.xdist_group("jobs")

MOVE = {"within_s": 30.0, "hold_s": 60.0}


def ledger_batches(checkpoint: Path) -> list[int]:
    lines = (checkpoint / "_tidewise" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["batch"] for line in lines]


def test_a_program_that_waits_for_one_query(tmp_path: Path) -> None:
    """One driver for the whole life of a program, because each costs a JVM's start."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        f"open({str(tmp_path / 'theirs')!r}, 'w').close()\n",
        encoding="utf-8",
    )
    with driver("one_query.py", tmp_path, python_path=(own,)) as one:
        hello = one.ear.wait_for("hello")
        assert (tmp_path / "theirs").exists(), "the program's own sitecustomize did not run"
        identity = json.loads((tmp_path / "identity.json").read_text(encoding="utf-8"))
        assert (hello["pid"], hello["jvm_pid"]) == (one.process.pid, identity["jvm_pid"])
        assert hello["spark_application"] == identity["spark_application"]
        its_id = one.wait_to_say("runs").split()[1]
        check_a_restart_is_not_noticed(one)
        check_a_silent_controller_does_not_stop_it(one)
        one.cue("stop")
        assert one.wait_to_say("ended").split() == ["ended", its_id, "False", "True"]
        ended = one.ear.wait_for("terminated")
        assert (ended["query"], ended["by_program"], ended["exception"]) == (
            str(tmp_path / "checkpoint-files"),
            True,
            None,
        )
        # The thread that stops the query releases it; who waited for the query may be told first.
        another = Lease(tmp_path / "checkpoint-files" / "_tidewise", application="another")
        one.wait_until(lambda: (held := another.holder()) is not None and held.released, "the lease was not released")
        assert another.claim() > 1
        check_what_cannot_be_moved_runs(one)
        check_another_session_is_seen(one, hello["spark_application"])
        one.cue("fail")
        assert one.wait_for_end() == 1
        assert one.ear.wait_for("ending")["failure"] == "RuntimeError: the program's own failure"
        assert "RuntimeError: the program's own failure" in (tmp_path / "errors").read_text(encoding="utf-8")


def check_a_restart_is_not_noticed(one: Driver) -> None:
    described = {query["key"]: query for query in one.ask("describe")["queries"]}
    files, table = (str(one.folder / name) for name in ("checkpoint-files", "checkpoint-table"))
    assert set(described) == {files, table}
    assert (described[files]["sink"], described[files]["sink_path"]) == ("parquet", str(one.folder / "out"))
    assert (described[table]["table"], described[table]["interval_s"]) == ("t", 0.3)
    assert all(query["movable"] and query["active"] for query in described.values())
    for name in ("checkpoint-files", "checkpoint-table"):
        one.wait_for_commits(name, more=2)
    for _ in range(2):
        stopped = one.ask("drain", MOVE)["queries"]
        assert set(stopped) == {files, table}
        assert not any(query["cut"] for query in stopped.values()), stopped
        assert {query["how"] for query in stopped.values()} <= {"between-batches", "idle"}
        last = one.commits("checkpoint-files")[-1]
        assert stopped[files]["last_batch"] == last
        settled(0.5)
        assert one.commits("checkpoint-files")[-1] == last, "it went on though it was drained"
        assert set(one.ask("start")["started"]) == {files, table}
        assert one.ask("start")["started"] == [], "what runs was started again"
        for name in ("checkpoint-files", "checkpoint-table"):
            one.wait_for_commits(name, more=2)
    assert one.process.poll() is None
    assert not any(line.startswith("ended") for line in one.told), "the program noticed the restart"
    assert one.ear.of_kind("terminated") == []
    batches = ledger_batches(one.folder / "checkpoint-files")
    assert batches == list(range(len(batches)))


def check_a_silent_controller_does_not_stop_it(one: Driver) -> None:
    one.ask("drain", {"within_s": 30.0, "hold_s": 1.0})
    problem = one.ear.wait_for("problem")
    assert problem["code"] == "went-on-alone"
    one.wait_for_commits("checkpoint-files", more=1)


def check_what_cannot_be_moved_runs(one: Driver) -> None:
    one.wait_to_say("now")
    assert [line for line in one.told if line.startswith(("loose", "batch", "now"))] == [
        "loose False True",
        "batch 0 2",
        "now True False",
    ]
    described = {message["key"]: message for message in one.ear.of_kind("query")}
    assert described["loose"]["movable"] is False
    assert described["loose"]["checkpoint"] is None
    problem = one.ear.wait_for("problem", lambda message: message["code"] == "no-checkpoint")
    assert 'give its writer .option("checkpointLocation"' in problem["sentence"]
    now = described[str(one.folder / "checkpoint-now")]
    assert (now["movable"], now["trigger"], now["interval_s"]) == (False, {"availableNow": True}, None)
    assert one.ear.wait_for("progress", lambda message: message["query"] == now["key"])


def check_another_session_is_seen(one: Driver, first_application: str) -> None:
    assert one.wait_to_say("again").split() == ["again", "True"]
    hello = one.ear.wait_for("hello", lambda message: message["spark_application"] != first_application)
    assert hello["application"] == "app"
    key = str(one.folder / "checkpoint-again")
    one.ear.wait_for("progress", lambda message: message["query"] == key)
    assert [query["key"] for query in one.ask("describe")["queries"]] == [key]
    assert len(one.ear.of_kind("hello")) == 2, "lines are lost and made anew"


@pytest.mark.soak
def test_a_program_that_waits_for_any_of_two_queries(tmp_path: Path) -> None:
    with driver("two_queries.py", tmp_path, commit_interval_s=0.2, conf={"spark.sql.shuffle.partitions": "1"}) as one:
        assert one.wait_to_say("waits") == "waits 2"
        for name in ("counted", "kept"):
            one.wait_for_commits(name, more=2)  # in an hour, by the program's own trigger
        check_workers_have_no_agent(one)
        for _ in range(2):
            stopped = one.ask("drain", MOVE)["queries"]
            assert set(stopped) == {str(tmp_path / "counted"), str(tmp_path / "kept")}
            one.ask("start", {"commit_interval_s": 0.5})
            one.wait_for_commits("kept", more=2)
        assert {query["interval_s"] for query in one.ask("describe")["queries"]} == {0.5}
        check_the_job_outlives_the_controller(one)
        assert not any(line.startswith("one has ended") for line in one.told), "the program noticed a move"
        check_a_fenced_owner_does_not_write(one)


def check_workers_have_no_agent(one: Driver) -> None:
    workers = one.folder / "workers"
    assert wait_until(lambda: any(workers.iterdir()), deadline_s=LONG_S)
    assert {path.read_text(encoding="utf-8") for path in workers.iterdir()} == {"False"}
    assert len(one.ear.of_kind("hello")) == 1, "something besides the program called in"
    progress = json.loads(one.ear.wait_for("progress", lambda told: told["query"].endswith("counted"))["progress"])
    state = progress["stateOperators"][0]
    assert state["numShufflePartitions"] == 1, "the program's own value of a setting won"


def check_the_job_outlives_the_controller(one: Driver) -> None:
    scaled = one.ask("describe", request_id="r-1")
    port = one.board.port
    one.board.close()
    one.wait_for_commits("kept", more=2)
    ear = Ear()
    one.board, one.ear = Switchboard(token=TOKEN, port=port, heard=ear), ear
    hello = ear.wait_for("hello")
    assert {query["key"] for query in hello["queries"]} == {str(one.folder / "counted"), str(one.folder / "kept")}
    assert one.ask("describe", request_id="r-1") == scaled, "the same request was carried out a second time"
    ear.wait_for("progress")
    with pytest.raises(PermanentError, match="knows no operation 'fly'"):
        one.ask("fly")


def check_a_fenced_owner_does_not_write(one: Driver) -> None:
    successor = Lease(one.folder / "kept" / "_tidewise", application="successor")
    successor.claim(gone=frozenset({"app"}))
    # A batch that had been let through may still be written; from the next one on nothing is.
    assert wait_until(lambda: one.process.poll() is not None, deadline_s=LONG_S), "the program did not end"
    written = (one.folder / "batches").read_text(encoding="utf-8").splitlines()
    failure = one.ear.wait_for("ending")["failure"]
    assert failure.startswith("StreamingQueryException")
    assert "no longer holds the checkpoint" in failure
    committed = one.commits("kept")
    assert len(written) == len(committed), "a batch was written and not committed"
    assert int(written[-1].split()[0]) == committed[-1]
    holder = successor.holder()
    assert holder is not None
    assert (holder.application, holder.released) == ("successor", False)
    successor.check()


@pytest.mark.parametrize(
    "how",
    ["no controller", *(pytest.param(how, marks=pytest.mark.soak) for how in ("missing spec", "isolated"))],
)
def test_a_program_without_its_agent_does_what_it_always_does(tmp_path: Path, how: str) -> None:
    flags = ("-I",) if how == "isolated" else ()
    if how == "no controller":
        refuse_everybody(tmp_path)
    process = start("finite.py", tmp_path, flags=flags)
    try:
        said, _ = process.communicate(timeout=LONG_S)
    finally:
        end(process)
    assert said.splitlines() == ["batch 0 [1, 2]", "ended True None"], (tmp_path / "errors").read_text()
    assert process.returncode == 0
    errors = (tmp_path / "errors").read_text(encoding="utf-8")
    assert ("tidewise" in errors) == (how == "missing spec")
    assert (tmp_path / "checkpoint" / "_tidewise").exists() == (how == "no controller")


def refuse_everybody(folder: Path) -> None:
    """Settings that lead to a port where nobody is."""
    from tidewise_agent.spec import AgentSpec  # noqa: PLC0415 -- for this alone

    board = Switchboard(token=TOKEN, heard=Ear())
    board.close()
    AgentSpec(
        application="app",
        host=board.host,
        port=board.port,
        token=TOKEN,
        state_folder=str(folder),
        identity_file=str(folder / "identity.json"),
    ).write(folder / "agent.json")
