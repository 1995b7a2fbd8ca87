"""The CPU of executors is limited where that can be done, and they start where it cannot."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewise.core import BadInputError, TemporaryError
from tidewise.engines.spark.cgroups import CpuLimits, install_java, limit_environment
from tidewise.host.processes import find, wait_until

ECHO = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


def java_for(home: Path, real: str, limits: CpuLimits | None) -> Path:
    program = home / "real"
    program.write_text(real, encoding="utf-8")
    program.chmod(0o755)
    install_java(home / "java", real=program, limits=limits)
    return home / "java" / "bin" / "java"


def environment(cores: float, boost_s: int = 0) -> dict[str, str]:
    return dict(os.environ) | limit_environment(cores, boost_s=boost_s)


def fake_tree(folder: Path, version: int) -> CpuLimits:
    """Plain folders and files in the place of a kernel's: what is written to them can be read back."""
    limits, usage = folder / "limits", folder / "usage"
    for parent in (limits, usage):
        (parent / "app-1.0").mkdir(parents=True)
    return CpuLimits(version=1 if version == 1 else 2, limits=limits, usage=usage if version == 1 else limits)


@pytest.fixture
def real_limits() -> Iterator[CpuLimits]:
    detected = CpuLimits.detect(f"tidewise-test-{secrets.token_hex(4)}")
    if isinstance(detected, str):
        pytest.skip(detected)
    yield detected
    assert wait_until(lambda: remove(detected), deadline_s=10)


def remove(limits: CpuLimits) -> bool:
    limits.remove()
    return not limits.limits.exists() and not limits.usage.exists()


def test_a_busy_process_gets_its_quarter_and_no_more(real_limits: CpuLimits, tmp_path: Path) -> None:
    busy = f"#!/bin/sh\nexec {sys.executable} -c 'while True: pass' \"$@\"\n"
    java = java_for(tmp_path, busy, real_limits)
    arguments = [str(java), "-Xmx1g", "Main", "--executor-id", "3", "--app-id", "app-7"]
    process = subprocess.Popen(arguments, env=environment(0.25))
    try:
        assert wait_until(lambda: (real_limits.cpu_s("app-7", "3") or 0.0) > 0.1, deadline_s=30)
        assert real_limits.cores("app-7", "3") == 0.25
        before_s, since_s = real_limits.cpu_s("app-7", "3"), time.monotonic()
        time.sleep(2.0)
        after_s = real_limits.cpu_s("app-7", "3")
        assert before_s is not None
        assert after_s is not None
        assert (after_s - before_s) / (time.monotonic() - since_s) < 0.32
        real_limits.set_cores("app-7", "3", 0.05)
        assert real_limits.cores("app-7", "3") == 0.05
        real_limits.remove_empty()
        assert real_limits.cores("app-7", "3") == 0.05, "a group in use stays"
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: remove(real_limits), deadline_s=10)
    assert real_limits.cpu_s("app-7", "3") is None
    assert real_limits.cores("app-7", "3") is None


@pytest.mark.parametrize("slowed", [False, True])
def test_the_boost_ends_and_leaves_a_later_limit_alone(real_limits: CpuLimits, tmp_path: Path, slowed: bool) -> None:
    java = java_for(tmp_path, "#!/bin/sh\nexec sleep 30\n", real_limits)
    arguments = [str(java), "--app-id", "app-1", "--executor-id", "0"]
    process = subprocess.Popen(arguments, env=environment(0.5, boost_s=2))
    try:
        assert wait_until(lambda: real_limits.cores("app-1", "0") == 1.0, deadline_s=10)
        if slowed:
            real_limits.set_cores("app-1", "0", 0.1)
            assert wait_until(lambda: not helpers(java), deadline_s=15)
            assert real_limits.cores("app-1", "0") == 0.1
        else:
            assert wait_until(lambda: real_limits.cores("app-1", "0") == 0.5, deadline_s=15)
    finally:
        process.kill()
        process.wait()
    assert wait_until(lambda: not helpers(java), deadline_s=10)


def test_what_ends_the_boost_ends_with_its_executor(real_limits: CpuLimits, tmp_path: Path) -> None:
    java = java_for(tmp_path, "#!/bin/sh\nexec sleep 30\n", real_limits)
    process = subprocess.Popen([java], env=environment(0.5, boost_s=600))
    assert wait_until(lambda: helpers(java) == 1, deadline_s=10)
    process.kill()
    process.wait()
    assert wait_until(lambda: not helpers(java), deadline_s=10)


def helpers(java: Path) -> int:
    return len(find(lambda argv: str(java) in argv and "--tighten" in argv))


@pytest.mark.parametrize(
    ("cores", "quota"),
    [("0.25000", 25000), ("2", 200000), ("1.5", 150000), (".08", 8000), ("3.", 300000), ("0.00001", 1000)],
)
@pytest.mark.parametrize("version", [1, 2])
def test_cores_become_a_quota(tmp_path: Path, cores: str, quota: int, version: int) -> None:
    limits = fake_tree(tmp_path, version)
    java = java_for(tmp_path, ECHO, limits)
    arguments = ["a b", "--app-id", "app-1", "--executor-id", "0"]
    done = subprocess.run(
        [java, *arguments],
        env=dict(os.environ) | {"TIDEWISE_CORES": cores, "TIDEWISE_BOOST_S": "0"},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.splitlines() == arguments
    assert done.stderr == ""
    assert limits.cores("app-1", "0") == quota / 100_000


@pytest.mark.parametrize("version", [1, 2])
def test_limits_and_usage_are_read_from_both_versions(tmp_path: Path, version: int) -> None:
    limits = fake_tree(tmp_path, version)
    limits.set_cores("app-1", "0", 0.5)
    assert limits.cores("app-1", "0") == 0.5
    if version == 1:
        (limits.limits / "app-1.0" / "cpu.cfs_quota_us").write_text("-1\n", encoding="utf-8")
        (limits.usage / "app-1.0" / "cpuacct.usage").write_text("1500000000\n", encoding="utf-8")
    else:
        (limits.limits / "app-1.0" / "cpu.max").write_text("max 100000\n", encoding="utf-8")
        (limits.limits / "app-1.0" / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n", encoding="utf-8")
    assert limits.cores("app-1", "0") is None
    assert limits.cpu_s("app-1", "0") == 1.5
    assert limits.cpu_s("app-1", "9") is None
    with pytest.raises(TemporaryError, match="executor 9 of app-1 has no control group"):
        limits.set_cores("app-1", "9", 1.0)
    with pytest.raises(BadInputError, match=r"0\.01 cores or more, not to 0"):
        limits.set_cores("app-1", "0", 0.0)
    assert CpuLimits.from_dict(limits.to_dict()) == limits


@pytest.mark.parametrize(
    ("cores", "said"),
    [("a lot", "not a number"), ("1.2.3", "not a number"), ("0.5", "its group cannot be made")],
)
def test_a_failure_leaves_a_line_and_the_program_starts(tmp_path: Path, cores: str, said: str) -> None:
    limits = CpuLimits(version=1, limits=tmp_path / "absent" / "a", usage=tmp_path / "absent" / "b")
    java = java_for(tmp_path, ECHO, limits)
    done = subprocess.run(
        [java, "x"],
        env=dict(os.environ) | {"TIDEWISE_CORES": cores},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert said in done.stderr.splitlines()[-1]
    assert "the CPU of this executor is not limited" in done.stderr


@pytest.mark.parametrize("limited", [False, True])
def test_without_a_wish_nothing_is_limited_or_said(tmp_path: Path, limited: bool) -> None:
    java = java_for(tmp_path, ECHO, fake_tree(tmp_path, 1) if limited else None)
    cores = {} if limited else {"TIDEWISE_CORES": "0.5"}
    done = subprocess.run(
        [java, "x"], env=dict(os.environ) | cores, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")


def mounted(folder: Path, *lines: str) -> dict[str, Path]:
    mounts, groups = folder / "mountinfo", folder / "cgroup"
    mounts.write_text("".join(f"30 20 0:1 / {line}\n" for line in lines), encoding="utf-8")
    groups.write_text("2:cpu:/\n1:cpuacct:/\n0::/mine\n", encoding="utf-8")
    return {"mounts": mounts, "groups": groups}


def test_without_control_groups_a_sentence_says_so(tmp_path: Path) -> None:
    assert CpuLimits.detect("x", **mounted(tmp_path)) == (
        "CPU is not limited: this system has no control groups for it"
    )
    missing = tmp_path / "nowhere"
    assert "no control groups" in str(CpuLimits.detect("x", mounts=missing, groups=missing))


def test_a_tree_that_takes_no_groups_is_named(tmp_path: Path) -> None:
    # A plain folder is no kernel's tree: groups can be made, but processes cannot be counted and groups not removed.
    (tmp_path / "tree" / "mine").mkdir(parents=True)
    (tmp_path / "tree" / "mine" / "cgroup.subtree_control").write_text("", encoding="utf-8")
    told = CpuLimits.detect("x", **mounted(tmp_path, f"{tmp_path}/tree rw - cgroup2 cgroup2 rw"))
    assert isinstance(told, str)
    assert told.startswith(f"CPU is not limited: control groups (version 2) cannot be made in {tmp_path}/tree/mine (")
    assert "as root" in told


def test_a_name_that_leads_elsewhere_is_refused() -> None:
    with pytest.raises(BadInputError, match="letters, digits"):
        CpuLimits.detect("../x")


@pytest.mark.parametrize(("version", "name", "written"), [(1, "cpu.shares", "102"), (2, "cpu.weight", "10")])
def test_a_weight_is_written_as_the_version_has_it(tmp_path: Path, version: int, name: str, written: str) -> None:
    limits = fake_tree(tmp_path, version)
    assert limits.set_weight("app-1", "0", 10)
    assert (limits.limits / "app-1.0" / name).read_text(encoding="utf-8") == written
    assert not limits.set_weight("app-1", "9", 10), "an executor without a group has no weight"
