"""Lets executors that join warm up before Spark gives them tasks, by a small plugin for Spark.

It is built by the Scala compiler that comes with Spark, once for each version of it. Where it cannot be built, or where
settings that the agent does not see name jars or plugins of their own, executors join cold, as without it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidewise_agent.files import write_whole

PLUGIN = "org.apache.spark.tidewise.WarmUp"
_SOURCE = Path(__file__).with_name("executor_warm_up.scala")
_BUILD_WITHIN_S = 60.0
_LISTS = ("spark.jars", "spark.plugins")
_ARGUMENTS = ("--jars", "--packages", "--properties-file", *_LISTS)


def add_warm_up(conf: Any, *, spark_home: Path, cache: Path) -> None:
    """Name the plugin in these settings of an application to come; OSError or RuntimeError where it cannot be built.

    Only for a JVM that is still to be started: one that runs would not find the plugin, and make no context.
    """
    if not str(conf.get("spark.master", "")).startswith("spark://") or _named_elsewhere(conf, spark_home):
        return
    jar = _built(spark_home, cache)
    if "," in str(jar):
        raise RuntimeError(f"{jar} has a comma in it, which separates jars")
    for name, value in zip(_LISTS, (str(jar), PLUGIN), strict=True):
        given = conf.get(name, "")
        conf.set(name, f"{given},{value}" if given else value)


def _named_elsewhere(conf: Any, spark_home: Path) -> bool:
    """Whether Spark makes lists of its own, from packages, files or its command line, which ours would replace."""
    if conf.get("spark.jars.packages", ""):
        return True
    given = " ".join(os.environ.get(name, "") for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"))
    if any(word in given for word in _ARGUMENTS):
        return True
    return any(line.lstrip().startswith(_LISTS) for line in _defaults(spark_home))


def _defaults(spark_home: Path) -> Iterator[str]:
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    try:
        yield from (folder / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return


def _built(spark_home: Path, cache: Path) -> Path:
    """The plugin for this Spark; programs that start at the same time may each build it, and the last one stays."""
    jars = spark_home / "jars"
    patterns = ("spark-core_*.jar", "scala-compiler-*.jar")
    versions = sorted(path.name for pattern in patterns for path in jars.glob(pattern))
    if len(versions) != 2:
        raise RuntimeError(f"{jars} holds no Scala compiler")
    digest = hashlib.sha256("\n".join([*versions, _SOURCE.read_text(encoding="utf-8")]).encode()).hexdigest()[:16]
    jar = cache / f"warm-up-{digest}.jar"
    failed = cache / f"warm-up-{digest}.failed"
    if failed.exists():
        # Once is enough: every driver that starts would wait for it.
        raise RuntimeError(f"{failed.read_text(encoding='utf-8').strip()} (delete {failed} to try again)")
    if not jar.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f".warm-up-{digest}-{os.getpid()}.jar"
        try:
            _compile(jars, unfinished)
            unfinished.replace(jar)
        except RuntimeError as error:
            write_whole(failed, f"{error}\n")
            raise
        finally:
            unfinished.unlink(missing_ok=True)
    return jar


def _compile(jars: Path, target: Path) -> None:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    compiler = ["scala.tools.nsc.Main", "-usejavacp", "-d", str(target), str(_SOURCE)]
    try:
        done = subprocess.run(  # noqa: S603 -- our own words
            [java, "-Xmx512m", "-cp", f"{jars}/*", *compiler],
            capture_output=True,
            text=True,
            timeout=_BUILD_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the compiler was not done within {_BUILD_WITHIN_S:.0f} s") from error
    if done.returncode != 0 or not target.exists():
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise RuntimeError(lines[0] if lines else f"the compiler ended with {done.returncode}")
