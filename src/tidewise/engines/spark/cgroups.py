"""Limits the CPU of each executor by control groups, so that more executors are more capacity on a small machine.

Executors are started by Spark's worker, which takes the Java of `spark.executorEnv.JAVA_HOME`. That is a small shell
script here: it makes a group for the executor, sets its limit, moves in and becomes the real Java. Whatever of this
fails leaves a line on standard error, and the executor starts without a limit.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Self

from tidewise.core import BadInputError, PermanentError, TemporaryError

CORES_VARIABLE = "TIDEWISE_CORES"
BOOST_VARIABLE = "TIDEWISE_BOOST_S"
BOOST_S = 20
"""A JVM starts on at least one core: at a quarter of one, that alone would take a minute."""
WARM_UP_BOOST_S = 45
"""Executors that warm up beside others may use a whole core for this long; they are charged with it."""
PERIOD_US = 100_000
LEAST_CORES = 0.01
_SHIM = Path(__file__).with_name("limited_java.sh")
_PROBE_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimits:
    """The groups of one cluster's executors: their parent folders, one per hierarchy that has to be joined.

    Version 1 keeps limits (`cpu`) and usage (`cpuacct`) apart, often at two places; version 2 keeps them in one.
    """

    version: Literal[1, 2]
    limits: Path
    usage: Path

    @classmethod
    def detect(
        cls, name: str, *, mounts: Path = Path("/proc/self/mountinfo"), groups: Path = Path("/proc/self/cgroup")
    ) -> Self | str:
        """Set up the groups of this name, or answer with the sentence why CPU cannot be limited here."""
        if not _NAME.fullmatch(name):
            raise BadInputError(f"a control group's name has letters, digits, - and _ only, not {name!r}")
        try:
            places = _places(mounts.read_text(encoding="utf-8"), groups.read_text(encoding="utf-8"))
        except OSError:
            places = []
        if not places:
            return "CPU is not limited: this system has no control groups for it"
        reasons: list[str] = []
        for place in places:
            candidate = cls(version=place.version, limits=place.limits / name, usage=place.usage / name)
            try:
                candidate._prove()
            except (OSError, subprocess.SubprocessError) as error:
                candidate.remove()
                reasons.append(_why(candidate, error))
            else:
                return candidate
        return reasons[0]

    def _prove(self) -> None:
        """Do once what the executors will do: make a group, limit it, and let a process move in."""
        for folder in self._parents():
            folder.mkdir(exist_ok=True)
        if self.version == 2:
            for folder in (self.limits.parent, self.limits):
                controllers = folder / "cgroup.subtree_control"
                if "cpu" not in controllers.read_text(encoding="utf-8").split():
                    controllers.write_text("+cpu", encoding="utf-8")
        leaves = [folder / "probe" for folder in self._parents()]
        for leaf in leaves:
            leaf.mkdir(exist_ok=True)
        self._write(self.limits / "probe", 0.5)
        moves = "; ".join(f"echo $$ > {shlex.quote(str(leaf / 'cgroup.procs'))}" for leaf in leaves)
        subprocess.run(  # noqa: S603 - our own words
            ["/bin/sh", "-e", "-c", moves], check=True, capture_output=True, timeout=_PROBE_S, text=True
        )
        for leaf in leaves:
            leaf.rmdir()

    def cpu_s(self, app_id: str, executor_id: str) -> float | None:
        """CPU time that an executor has used so far, its Python workers included; None: it has no group."""
        group = self.usage / _leaf(app_id, executor_id)
        try:
            if self.version == 1:
                return int((group / "cpuacct.usage").read_text(encoding="utf-8")) / 1e9
            stat = dict(line.split() for line in (group / "cpu.stat").read_text(encoding="utf-8").splitlines())
            return int(stat["usage_usec"]) / 1e6
        except FileNotFoundError:
            return None

    def cores(self, app_id: str, executor_id: str) -> float | None:
        """The limit that holds now; None: no limit, or no group."""
        group = self.limits / _leaf(app_id, executor_id)
        try:
            if self.version == 1:
                quota, period = (
                    (group / f"cpu.cfs_{which}_us").read_text(encoding="utf-8").strip() for which in ("quota", "period")
                )
            else:
                quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return None
        return None if quota in {"-1", "max"} else int(quota) / int(period)

    def set_cores(self, app_id: str, executor_id: str, cores: float) -> None:
        """Change the limit of a running executor; a start-up boost that is still on does not undo it."""
        if not cores >= LEAST_CORES:
            raise BadInputError(f"an executor can be limited to {LEAST_CORES:g} cores or more, not to {cores:g}")
        group = self.limits / _leaf(app_id, executor_id)
        if not group.is_dir():
            raise TemporaryError(f"executor {executor_id} of {app_id} has no control group (yet), so it has no limit")
        try:
            self._write(group, cores)
        except OSError as error:
            raise PermanentError(f"the limit of {group} cannot be changed: {error.strerror}") from error

    def set_weight(self, app_id: str, executor_id: str, weight: int) -> bool:
        """Let an executor have this weight against the others, which have 100, where CPU is short; False: no group."""
        group = self.limits / _leaf(app_id, executor_id)
        name, value = ("cpu.shares", weight * 1024 // 100) if self.version == 1 else ("cpu.weight", weight)
        try:
            (group / name).write_text(str(value), encoding="utf-8")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise PermanentError(f"the weight of {group} cannot be changed: {error.strerror}") from error
        return True

    def remove_empty(self) -> None:
        """Forget the groups of executors that are gone, and what they used."""
        for parent in self._parents():
            if parent.is_dir():
                for leaf in [one for one in parent.iterdir() if one.is_dir()]:
                    _rmdir(leaf)

    def remove(self) -> None:
        """Remove all groups of this cluster; those in which something still runs stay."""
        self.remove_empty()
        for parent in self._parents():
            if parent.is_dir():
                _rmdir(parent)

    def to_dict(self) -> dict[str, object]:
        return {"version": self.version, "limits": str(self.limits), "usage": str(self.usage)}

    @classmethod
    def from_dict(cls, value: dict[str, object]) -> Self:
        """What `to_dict` wrote."""
        return cls(
            version=1 if value["version"] == 1 else 2,
            limits=Path(str(value["limits"])),
            usage=Path(str(value["usage"])),
        )

    def _parents(self) -> tuple[Path, ...]:
        return (self.limits,) if self.limits == self.usage else (self.limits, self.usage)

    def _write(self, group: Path, cores: float) -> None:
        quota = round(cores * PERIOD_US)
        if self.version == 1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="utf-8")
            (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="utf-8")
        else:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}", encoding="utf-8")


def install_java(home: Path, *, real: Path, limits: CpuLimits | None) -> None:
    """Make `home` a JAVA_HOME for executors: its bin/java limits itself and becomes the real one."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "real_java": str(real),
        "version": "0" if limits is None else str(limits.version),
        "limits": "" if limits is None else str(limits.limits),
        "usage": "" if limits is None else str(limits.usage),
        "period_us": str(PERIOD_US),
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    program.write_text(_SHIM.read_text(encoding="utf-8").replace("# SETTINGS\n", head), encoding="utf-8")
    program.chmod(0o755)


def limit_environment(cores: float, *, boost_s: int = BOOST_S) -> dict[str, str]:
    """The environment by which an executor's Java knows its limit."""
    if not cores >= LEAST_CORES:
        raise BadInputError(f"an executor can be limited to {LEAST_CORES:g} cores or more, not to {cores:g}")
    return {CORES_VARIABLE: f"{cores:.5f}", BOOST_VARIABLE: str(boost_s)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where groups could be made."""

    version: Literal[1, 2]
    limits: Path
    usage: Path


def _places(mounts: str, groups: str) -> list[_Place]:
    """Where groups could be made, best first; version 1 wins where it holds the CPU controller."""
    own = {
        controller: path
        for line in groups.splitlines()
        for _, controllers, path in [line.split(":", 2)]
        for controller in controllers.split(",")
    }
    roots: dict[str, Path] = {}
    unified: Path | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(before.split()[4].replace("\\040", " "))
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            unified = unified or _below(mount, own.get("", "/"))
        elif kind == "cgroup":
            for controller in set(options.split(",")) & {"cpu", "cpuacct"}:
                roots.setdefault(controller, _below(mount, own.get(controller, "/")))
    if "cpu" in roots:
        return [_Place(version=1, limits=roots["cpu"], usage=roots.get("cpuacct", roots["cpu"]))]
    if unified is None:
        return []
    # A group that holds processes cannot share out its CPU among groups below it; its parent mostly can.
    candidates = [unified, *unified.parents]
    return [
        _Place(version=2, limits=one, usage=one) for one in candidates if (one / "cgroup.subtree_control").is_file()
    ]


def _below(mount: Path, path: str) -> Path:
    """Our own group's folder; a container may see its group's path, but only its own part of the tree."""
    inside = mount / PurePosixPath(path).relative_to("/")
    return inside if inside.is_dir() else mount


def _leaf(app_id: str, executor_id: str) -> str:
    return f"{app_id}.{executor_id}"


def _rmdir(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:  # something runs in it (again), or it is gone already: both are fine
        return


def _why(candidate: CpuLimits, error: OSError | subprocess.SubprocessError) -> str:
    told = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "a process cannot be moved there"
    return (
        f"CPU is not limited: control groups (version {candidate.version}) cannot be made in "
        f"{candidate.limits.parent} ({told}); as root, or with that folder delegated to you, they could"
    )
