"""A real cluster on this machine: applications run on it within their limits, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidewise.core import BadInputError
from tidewise.engines.spark.cluster import STATE_FILE, ClusterState, LocalCluster
from tidewise.host.private_files import write_properties
from tidewise.host.processes import ProcessIdentity, find, wait_until

pytestmark = pytest.mark.xdist_group("spark")
LONG_S = 120.0

PROGRAM = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(10).count()
print("application", spark.sparkContext.applicationId, flush=True)
for line in sys.stdin:
    spark.range(20_000_000).selectExpr("sum(hash(id, id * 2))").collect()
    print("done", flush=True)
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "here"
    running = LocalCluster.up(folder, workers=2, slots_per_worker=3, memory_mib_per_worker=2048)
    limits = running.cpu_limits
    try:
        yield running
    finally:
        running.down()
    assert processes_of(folder) == []
    assert LocalCluster.find(folder) is None
    assert limits is None or not limits.limits.exists()
    running.down()  # again, and nothing happens


def processes_of(folder: Path) -> list[ProcessIdentity]:
    return [one.identity for one in find(lambda argv: any(str(folder) in word for word in argv))]


@contextmanager
def application(cluster: LocalCluster, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """One executor at a quarter of a core; each line on its input is a job."""
    sizes = {"spark.cores.max": "1", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
    properties = tmp_path / "application.properties"
    write_properties(properties, cluster.conf(cores=0.25, boost_s=3) | sizes)
    environment = dict(os.environ) | {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield answer(process, "application"), process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def answer(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(word), line
    return line.removeprefix(word).strip()


def test_a_cluster_is_ready_when_it_is_up_and_another_process_finds_it(cluster: LocalCluster) -> None:
    cluster.check()
    capacity = cluster.capacity()
    assert capacity is not None
    assert (len(capacity.workers), capacity.cores_free, capacity.memory_mib_free) == (2, 6, 4096)
    assert cluster.fits(count=2, slots=3, memory_mib=2048) is True
    assert cluster.fits(count=1, slots=4, memory_mib=512) is False
    assert cluster.blind_spot() is None
    found = LocalCluster.find(cluster.folder)
    assert found is not None
    assert found.is_running
    assert found.conf(cores=1.0) == cluster.conf(cores=1.0)
    assert found.worker_processes == cluster.worker_processes
    assert all(process.is_alive() for process in (*cluster.worker_processes, cluster.master_process))
    for name in (STATE_FILE, "cluster.properties"):
        assert (cluster.folder / name).stat().st_mode & 0o777 == 0o600
    with pytest.raises(BadInputError, match=r"a cluster runs in .* already"):
        LocalCluster.up(cluster.folder)


def test_an_executor_keeps_to_its_limit_and_its_application_is_known_to_be_gone(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with application(cluster, tmp_path) as (app_id, process):
        assert cluster.is_gone(app_id) is False
        (executor,) = cluster.executor_processes(app_id)
        assert executor.executor_id == "0"
        assert executor.identity is not None
        assert executor.identity.is_alive()
        secret = cluster.conf(cores=1.0)["spark.authenticate.secret"]
        assert not find(lambda argv: any(secret in word for word in argv)), "anybody can read command lines"
        limits = cluster.cpu_limits
        if limits is not None:
            assert wait_until(lambda: limits.cores(app_id, "0") == 0.25, deadline_s=LONG_S)
            before_s, since_s = limits.cpu_s(app_id, "0"), time.monotonic()
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            answer(process, "done")
            used_s = (limits.cpu_s(app_id, "0") or 0.0) - (before_s or 0.0)
            # A period may be used up right at either end.
            assert 0.1 < used_s <= 0.25 * (time.monotonic() - since_s) * 1.1 + 0.05
        executor.identity.signal(signal.SIGSTOP)
        assert wait_until(executor.identity.is_stopped, deadline_s=10)
        os.killpg(process.pid, signal.SIGKILL)
        assert cluster.is_gone(app_id) is False, "a frozen executor could still write"
        assert executor.identity.kill()
        assert wait_until(lambda: cluster.is_gone(app_id) is True, deadline_s=LONG_S)
        assert cluster.executor_processes(app_id) == ()


def test_a_dead_worker_is_started_anew(cluster: LocalCluster) -> None:
    old = cluster.worker_processes[1]
    assert old.kill()
    new = cluster.restart_worker(1)
    assert new.is_alive()
    assert not old.is_alive()
    assert cluster.worker_processes[1] == new
    found = LocalCluster.find(cluster.folder)
    assert found is not None
    assert found.worker_processes == cluster.worker_processes
    with pytest.raises(BadInputError, match="workers 0 to 1, not 2"):
        cluster.restart_worker(2)


@pytest.mark.soak
def test_down_ends_what_is_frozen_and_an_application_that_runs(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    cluster = LocalCluster.up(folder, workers=1, slots_per_worker=1, memory_mib_per_worker=1024)
    limits = cluster.cpu_limits
    try:
        with application(cluster, tmp_path) as (app_id, _):
            (executor,) = cluster.executor_processes(app_id)
            assert executor.identity is not None
            executor.identity.signal(signal.SIGSTOP)
            cluster.worker_processes[0].signal(signal.SIGSTOP)
            found = LocalCluster.find(folder)
            assert found is not None
            found.down()
            assert not executor.identity.is_alive()
            assert processes_of(folder) == []
            assert limits is None or not limits.limits.exists()
            assert cluster.is_gone(app_id) is True
    finally:
        cluster.down()


def test_impossible_sizes_are_refused_before_anything_starts(tmp_path: Path) -> None:
    for sizes in ({"workers": 0}, {"slots_per_worker": 0}, {"memory_mib_per_worker": 100}):
        with pytest.raises(BadInputError, match="1 worker or more"):
            LocalCluster.up(tmp_path / "x", **sizes)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(BadInputError, match="cannot be kept in"):
        LocalCluster.up(tmp_path / "file")
    assert not (tmp_path / "x").exists()


def test_a_state_that_is_none_is_told(tmp_path: Path, cluster: LocalCluster) -> None:
    assert LocalCluster.find(tmp_path) is None
    good = json.loads((cluster.folder / STATE_FILE).read_text(encoding="utf-8"))
    assert ClusterState.from_dict(good).to_dict() == good
    for text in ("", "[]", "{}", json.dumps(good | {"format": 99}), json.dumps(good | {"master": {"process": {}}})):
        (tmp_path / STATE_FILE).write_text(text, encoding="utf-8")
        with pytest.raises(BadInputError, match="not the state of a cluster of this version"):
            LocalCluster.find(tmp_path)
