"""A job file that is wrong is refused with its line and what to write instead; nothing is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.experiments.jobs import GOOD, write_job
from tidewise.core import BadInputError, Mechanism
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.experiments.job_file import JobFile


def test_a_good_file_says_what_to_run_and_what_it_may_become(tmp_path: Path) -> None:
    job = JobFile(write_job(tmp_path))
    assert job.program.command == (sys.executable, "small.py", "--fast")
    assert job.program.folder == tmp_path
    assert job.program.environment == {"MODE": "test"}
    assert job.program.conf == {"spark.sql.streaming.minBatchesToRetain": "50", "spark.ui.enabled": "false"}
    assert job.program.most_executors == 4
    assert job.start.executors == 2
    assert job.start.memory_mib_per_executor == 1024
    assert job.table.latency is LatencyChoice.EVENT_TIME
    assert (job.label, job.policy().name) == ("reactive", "reactive")
    assert Mechanism.HANDOVER in {cost.mechanism for cost in job.space.changes}
    assert "environment" not in job.resolved()


def test_another_policy_takes_the_place_of_the_one_in_the_file(tmp_path: Path) -> None:
    assert JobFile(write_job(tmp_path), policy="static").label == "static"
    with pytest.raises(BadInputError, match="no policy 'statick'"):
        JobFile(write_job(tmp_path), policy="statick")


def test_how_each_thing_would_change_is_told_with_the_reason(tmp_path: Path) -> None:
    told = JobFile(write_job(tmp_path)).changes()
    assert told == [
        "executors: live, while the job runs on",
        "cores or memory: handover to a second application that is warm",
    ]
    told = JobFile(write_job(tmp_path, GOOD.replace("handover = true", "handover = false"))).changes()
    assert "cores or memory: cold restart, because handover is not allowed" in told[1]
    fixed = GOOD.replace('"1..4"', "2").replace('["1GiB", "2GiB"]', '"1GiB"')
    fixed = fixed.replace('policy = "reactive"\ntarget_cpu = 0.5\n', 'policy = "static"\n')
    assert JobFile(write_job(tmp_path, fixed)).changes() == [
        "nothing can be changed: every key of [space] has one value"
    ]


def test_state_is_cut_anew_only_where_the_space_has_several_counts(tmp_path: Path) -> None:
    several = GOOD.replace('commit_interval = "1s"', 'commit_interval = "1s"\nstate_partitions = [4, 8]')
    assert JobFile(write_job(tmp_path, several)).repartitions
    one = GOOD.replace('commit_interval = "1s"', 'commit_interval = "1s"\nstate_partitions = 4')
    assert not JobFile(write_job(tmp_path, one)).repartitions


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ("handover = true", "handovr = true", 4, "unknown key 'handovr'; did you mean 'handover'"),
        ('name = "small"', 'name = "a/b"', 1, "names a folder as well"),
        ('program = "small.py"', 'program = "gone.py"', 2, "there is no program"),
        ('program = "small.py"', 'program = "small.py"\ncommand = ["x"]', 2, "write either program"),
        ('program = "small.py"', "", 1, "write either program"),
        ('program = "small.py"', "command = []", 2, "command is empty"),
        ('program = "small.py"', 'command = ["x"]\npython = "python3"', 3, "name the interpreter in `command`"),
        ('program = "small.py"', 'program = "small.py"\npython = "no-such-python"', 3, "no interpreter"),
        ('program = "small.py"', 'program = "small.py"\nfolder = "gone"', 3, "there is no folder"),
        ("handover = true", "standby = true", 4, "it needs handover = true"),
        (
            'policy = "reactive"\ntarget_cpu = 0.5',
            'policy = "demeter"\nparallelism = [99]',
            34,
            "policy 'demeter' cannot work here: no configuration of the space has a parallelism of",
        ),
        ("handover = true", 'handover = "yes"', 4, "handover must be true or false"),
        ('latency = "event-time"', 'latency = "eventtime"', 6, "latency"),
        ("workers = 1", "workers = 0", 12, "workers"),
        ("workers = 1", 'master = "yarn"', 12, 'or write "local"'),
        ("workers = 1", 'master = "spark://127.0.0.1:7077"\nworkers = 1', 13, "workers is for a local cluster"),
        ("workers = 1", 'ui = "http://127.0.0.1:8080"', 12, "a local one tells its own"),
        ("workers = 1", "slots = 1\nworker = 1", 13, "unknown key 'worker'; did you mean 'workers'"),
        ("workers = 1", 'memory = "1536MiB"', 20, "fits on no worker of 1536 MiB"),
        ('"spark.ui.enabled" = false', '"spark.executor.cores" = 2', 16, "set by Tidewise"),
        ('"spark.ui.enabled" = false', 'spark.master = "local[2]"', 16, "set by Tidewise"),
        ('"spark.ui.enabled" = false', '"sparc.x" = 2', 16, "they begin with 'spark.'"),
        ('executors = "1..4"', 'executors = "4..1"', 19, "holds nothing"),
        ('["1GiB", "2GiB"]', '["512MiB", "1GiB"]', 20, "at least 728 MiB"),
        ('["1GiB", "2GiB"]', "2048", 20, "has no unit"),
        ('commit_interval = "1s"', "commit_interval = 1", 21, "unit"),
        ('commit_interval = "1s"', 'commit_interval = "1s"\nslots_per_executor = 32', 22, "fits on no worker of 16"),
        ("executors = 2", "executors = 9", 23, "is not in the space"),
        ('latency_p95 = "3s"', "", 27, "promise something"),
        ('decide_every = "5s"', 'decide_every = "500ms"', 32, "at least 1s"),
        ('decide_every = "5s"', 'decide_every = "5s"\nquota_cores = 1.0', 33, "the quota is less"),
        ('policy = "reactive"', 'policy = "reactiv"', 34, "did you mean 'reactive'"),
        ('policy = "reactive"\ntarget_cpu = 0.5', 'policy = "best-fixed"', 34, "has to know the load to come"),
        ("target_cpu = 0.5", "target_cpu = 7", 34, "target_cpu"),
        ("target_cpu = 0.5", 'mechanism = "operator-upgrade"', 34, "this job offers only"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, line: int, sentence: str) -> None:
    assert GOOD.count(old) == 1
    path = write_job(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadInputError) as refused:
        JobFile(path)
    assert sentence in str(refused.value)
    assert f"job.toml, line {line}:" in str(refused.value)


def test_where_cpu_cannot_be_limited_several_values_are_refused_and_one_is_told(tmp_path: Path) -> None:
    far = GOOD.replace("workers = 1", 'master = "spark://127.0.0.1:7077"')
    several = far.replace('executors = "1..4"', 'executors = "1..4"\ncores_per_executor = [0.5, 1.0]')
    with pytest.raises(BadInputError, match=r"line 20: .*several values make no difference"):
        JobFile(write_job(tmp_path, several))
    job = JobFile(write_job(tmp_path, far))
    assert "is what is charged" in str(job.cpu_note("CPU is not limited here"))
    assert job.cpu_note(None) is None


def test_the_checkpoint_is_a_place_on_this_machine_or_none(tmp_path: Path) -> None:
    near = GOOD.replace("handover = true", 'checkpoint = "cp"')
    assert JobFile(write_job(tmp_path, near)).checkpoint == tmp_path / "cp"
    far = GOOD.replace("handover = true", 'checkpoint = "s3://bucket/cp"')
    assert JobFile(write_job(tmp_path, far)).checkpoint is None
