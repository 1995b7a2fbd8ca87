"""Daemons that find their port taken are started again; others are told of with what they said last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.engines.spark.cluster import LocalCluster
from tidewise.engines.spark.launcher import Launcher
from tidewise.host import daemons
from tidewise.host.daemons import Daemon, last_line, settle
from tidewise.host.java import Java
from tidewise.host.processes import reap
from tidewise.host.spark_home import find_spark

Launch = Callable[[str], Launcher]


def fake_spark(home: Path, body: str) -> Path:
    program = home / "bin" / "spark-class"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    def make(body: str) -> Launcher:
        return Launcher(
            spark=fake_spark(tmp_path / "spark", body),
            java=Java(home=tmp_path / "jdk", major=17),
            folder=tmp_path,
            properties=tmp_path / "p",
        )

    return make


@pytest.fixture
def started() -> Iterator[list[Daemon]]:
    all_started: list[Daemon] = []
    yield all_started
    for daemon in all_started:
        daemon.identity.kill()
        reap(daemon.identity)


def test_a_taken_port_is_tried_again_elsewhere(launch: Launch, started: list[Daemon]) -> None:
    body = (
        '[ -e "$SPARK_CONF_DIR.ran" ] && exec sleep 60; : > "$SPARK_CONF_DIR.ran"; echo java.net.BindException; exit 1'
    )
    launcher = launch(body)
    started.append(launcher.master())

    def again(index: int) -> Daemon:
        assert index == 0
        started.append(launcher.master())
        return started[-1]

    (settled,) = settle(started[:1], what="Spark master", ready=lambda: {one.port for one in started[1:]}, again=again)
    assert settled == started[1]
    assert settled.identity.is_alive()
    assert started[0].port != started[1].port
    assert started[0].log != started[1].log
    assert Daemon.from_dict(settled.to_dict()) == settled


def test_a_port_that_is_always_taken_ends_it(launch: Launch, started: list[Daemon]) -> None:
    launcher = launch("echo 'java.net.BindException: Address already in use'; exit 1")

    def again(_index: int) -> Daemon:
        started.append(launcher.master())
        return started[-1]

    with pytest.raises(PermanentError, match=r"ended as soon as it was started: .*Address already in use \(in .*\)"):
        settle([again(0)], what="Spark master", ready=set, again=again)
    assert len(started) == 5


def test_a_daemon_that_is_never_ready_is_told(
    launch: Launch, started: list[Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "START_S", 1.0)
    started.append(launch("echo hello; exec sleep 60").worker(3, master_url="spark://h:1", slots=2, memory_mib=512))
    with pytest.raises(TemporaryError, match=r"a Spark worker was not ready after 1 s: hello \(in .*worker-3\.log\)"):
        settle(started, what="Spark worker", ready=set, again=lambda _: started[0])


def test_the_environment_is_the_clusters_own(
    launch: Launch, started: list[Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_WORKER_CORES", "99")
    monkeypatch.setenv("KEPT", "yes")
    started.append(launch("env; exit 0").master())
    assert started[0].identity.wait_gone(deadline_s=10)
    told = dict(line.split("=", 1) for line in started[0].log.read_text(encoding="utf-8").splitlines() if "=" in line)
    assert "SPARK_WORKER_CORES" not in told
    assert told["KEPT"] == "yes"
    assert (told["SPARK_LOCAL_IP"], told["JAVA_HOME"]) == ("127.0.0.1", str(tmp_path / "jdk"))
    assert started[0].log.stat().st_mode & 0o777 == 0o600


def test_the_line_that_tells_most_is_told(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert "it wrote nothing" in last_line(log)
    log.write_text("start\nException in thread: bad\n\tat a.b\n\tat c.d\n\n", encoding="utf-8")
    assert last_line(log) == f"Exception in thread: bad (in {log})"
    log.write_text("one\ntwo\n\n", encoding="utf-8")
    assert last_line(log) == f"two (in {log})"


def test_spark_home_decides_and_must_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(BadInputError, match=r"SPARK_HOME is .* no bin/spark-class in it"):
        find_spark()
    fake_spark(tmp_path, "")
    assert find_spark() == tmp_path


def test_without_pyspark_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(BadInputError, match=r"pip install 'tidewise\[spark\]'"):
        find_spark()


def test_a_cluster_that_does_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(fake_spark(tmp_path / "spark", "echo 'Error: no good'; exit 1")))
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"'\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    folder = tmp_path / "cluster"
    with pytest.raises(PermanentError, match=r"a Spark master ended as soon as it was started: Error: no good \(in "):
        LocalCluster.up(folder)
    assert LocalCluster.find(folder) is None
    assert not (folder / "cluster.properties").exists()
