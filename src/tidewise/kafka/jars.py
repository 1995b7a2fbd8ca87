"""Sets of jars by their Maven coordinates, fetched once by Spark's own resolver: no build tool is needed.

Each set has a folder of its own in the cache, because the broker and Spark's connector need different clients.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidewise.core import BadInputError, PermanentError, TemporaryError, TidewiseError
from tidewise.host.cache import cache_folder
from tidewise.host.daemons import HOST
from tidewise.host.java import find_java
from tidewise.host.private_files import write_private
from tidewise.host.processes import wait_until
from tidewise.host.spark_home import find_spark

Tell = Callable[[str], None]
"""Takes a sentence for whoever waits."""

RESOLVE_S = 600.0
"""Some 50 MB over a slow line; a healthy line takes half a minute."""
_MARKER = "complete.json"
_FORMAT = 1
_JARS = "jars"
_BY_HAND = "by-hand"
_LOG = "resolve.log"
_ATTEMPTS = 2
_PAUSE_S = 5.0
_LEAST_ATTEMPT_S = 10.0
"""An attempt with less time than this would be cut before it could succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that belong on one class path: what is named here, and all that it needs."""

    name: str
    coordinates: tuple[str, ...]
    """`group:artifact:version`; the set is of the version of the first."""
    from_spark: tuple[str, ...] = ()
    """Artifacts that the resolver always leaves out, because Spark has them: taken from there."""
    excluding: tuple[str, ...] = ()
    """`group:artifact` of what the others ask for, and must not come with them."""
    instead: tuple[JarSet, ...] = ()
    """Sets that together do the same, where this one cannot be fetched."""

    def __post_init__(self) -> None:
        for each in self.coordinates:
            if not re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", each):
                raise BadInputError(f"{each!r} are not the coordinates of a jar: write group:artifact:version")
        if not self.coordinates:
            raise BadInputError(f"the set of jars {self.name!r} is empty: name the coordinates of one at least")

    @property
    def version(self) -> str:
        return self.coordinates[0].rpartition(":")[2]

    def folder(self, cache: Path | None = None) -> Path:
        """Where this set is kept."""
        return (cache or cache_folder()).absolute() / f"{self.name}-{self.version}"


BROKER = JarSet(
    name="broker",
    coordinates=("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"),
    from_spark=("scala-library",),
)
"""A Kafka broker, and what writes its log."""


_COME_WITH_SPARK = (
    "org.apache.kafka:kafka-clients",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.slf4j:slf4j-api",
    "org.xerial.snappy:snappy-java",
    "com.google.code.findbugs:jsr305",
)
"""With Spark itself, or with its connector."""


def spark_connector() -> JarSet:
    """What Spark needs to read from and write to Kafka, and to decode Avro; of the version of Spark that is here."""
    jars = find_spark() / "jars"
    found = [re.fullmatch(r"spark-core_(\d+\.\d+)-(.+)\.jar", path.name) for path in jars.glob("spark-core_*.jar")]
    versions = [one.groups() for one in found if one is not None]
    if len(versions) != 1:
        raise BadInputError(
            f"which Spark this is cannot be told: {jars} holds {len(versions)} jars spark-core_*, not 1; "
            f"install PySpark anew or correct SPARK_HOME"
        )
    ((scala, version),) = versions
    instead: tuple[JarSet, ...] = ()
    if version.startswith("4.3."):
        # Not every repository has all parts of the newest version; these were tried with Spark 4.3.0, in real-time
        # mode too. The one part asks for a version of the other that is missing, so each comes by itself.
        tokens = f"org.apache.spark:spark-token-provider-kafka-0-10_{scala}"
        named = (f"org.apache.spark:spark-sql-kafka-0-10_{scala}:4.2.0", f"org.apache.spark:spark-avro_{scala}:4.1.1")
        instead = (
            JarSet(name="spark-connector", coordinates=named, excluding=(tokens,)),
            JarSet(name="spark-connector-tokens", coordinates=(f"{tokens}:4.0.0",), excluding=_COME_WITH_SPARK),
        )
    return JarSet(
        name="spark-connector",
        coordinates=(
            f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}",
            f"org.apache.spark:spark-avro_{scala}:{version}",
        ),
        instead=instead,
    )


def connector_conf(*, tell: Tell = lambda _: None) -> dict[str, str]:
    """The Spark settings that give a program the connector."""
    return {"spark.jars": ",".join(str(jar) for jar in resolve(spark_connector(), tell=tell))}


def resolve(
    jar_set: JarSet,
    *,
    cache: Path | None = None,
    tell: Tell = lambda _: None,
    deadline_s: float = RESOLVE_S,
    pause_s: float = _PAUSE_S,
) -> tuple[Path, ...]:
    """All jars of a set; fetched if they are not in the cache, else nothing is started and no network is needed.

    Jars that somebody put into the folder `by-hand` of the set are taken as they are. TemporaryError when they
    cannot be fetched now: after a second attempt `pause_s` later, or at the deadline. Where other sets do `instead`,
    those are taken after the first attempt, and from then on.
    """
    folder = jar_set.folder(cache)
    end_s = time.monotonic() + deadline_s
    found = _by_hand(folder) or _complete(folder, jar_set) or _instead(jar_set, cache)
    if found:
        return found
    if jar_set.instead:
        return _resolve_or_instead(jar_set, cache=cache, tell=tell, end_s=end_s, pause_s=pause_s)
    return _resolve(jar_set, folder, tell=tell, end_s=end_s, pause_s=pause_s, attempts=_ATTEMPTS)


def _instead(jar_set: JarSet, cache: Path | None) -> tuple[Path, ...]:
    """What was fetched in the place of this set; none when a part of it is missing."""
    parts = [_complete(one.folder(cache), one) for one in jar_set.instead]
    return tuple(jar for part in parts for jar in part) if all(parts) else ()


def _resolve_or_instead(
    jar_set: JarSet, *, cache: Path | None, tell: Tell, end_s: float, pause_s: float
) -> tuple[Path, ...]:
    try:
        return _resolve(jar_set, jar_set.folder(cache), tell=tell, end_s=end_s, pause_s=pause_s, attempts=1)
    except TemporaryError as error:
        others = " and ".join(_named(one) for one in jar_set.instead)
        tell(f"{_named(jar_set)} could not be fetched ({_reason(jar_set.folder(cache) / _LOG)}); trying {others} ...")
        try:
            parts = [
                resolve(one, cache=cache, tell=tell, deadline_s=end_s - time.monotonic(), pause_s=pause_s)
                for one in jar_set.instead
            ]
        except TemporaryError:
            raise error from None
        return tuple(jar for part in parts for jar in part)


def _resolve(
    jar_set: JarSet, folder: Path, *, tell: Tell, end_s: float, pause_s: float, attempts: int
) -> tuple[Path, ...]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder, jar_set, end_s=end_s, tell=tell) as lock:
            # Somebody else may have fetched them while we waited.
            return _complete(folder, jar_set) or _fetch(
                jar_set, folder, lock=lock, end_s=end_s, pause_s=pause_s, attempts=attempts, tell=tell
            )
    except OSError as error:
        raise BadInputError(
            f"jars cannot be kept in {folder}: {error.strerror}; let TIDEWISE_CACHE name a folder that can be written"
        ) from error


def _by_hand(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted((folder / _BY_HAND).glob("*.jar")))


def _complete(folder: Path, jar_set: JarSet) -> tuple[Path, ...]:
    """The jars that the marker vouches for; none when one is missing or another size than it was."""
    try:
        told = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
        if told["format"] != _FORMAT or told["coordinates"] != list(jar_set.coordinates):
            return ()
        jars = {folder / _JARS / str(name): int(size) for name, size in told["jars"].items()}
        is_whole = all(jar.stat().st_size == size for jar, size in jars.items())
    except (OSError, KeyError, TypeError, ValueError, AttributeError):
        return ()  # whatever is wrong with it, fetching anew mends it, or tells what cannot be mended
    return tuple(sorted(jars)) if is_whole else ()


@contextmanager
def _locked(folder: Path, jar_set: JarSet, *, end_s: float, tell: Tell) -> Iterator[int]:
    """Hold the folder against other processes; the system lets go of it when all who hold it have ended."""
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)

    def is_ours() -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        if not is_ours():
            tell(f"Another process fetches {_named(jar_set)}; waiting for it ...")
            if not wait_until(is_ours, deadline_s=end_s - time.monotonic(), poll_s=0.1):
                raise TemporaryError(
                    f"another process was still fetching {_named(jar_set)} into {folder} when the time was up: "
                    f"try again, or look at {folder / _LOG}"
                )
        yield lock
    finally:
        os.close(lock)


def _fetch(
    jar_set: JarSet, folder: Path, *, lock: int, end_s: float, pause_s: float, attempts: int, tell: Tell
) -> tuple[Path, ...]:
    spark, java = find_spark(), find_java()
    (folder / _MARKER).unlink(missing_ok=True)
    log = folder / _LOG
    log.unlink(missing_ok=True)
    # How this machine reaches the repositories (a proxy, a mirror) is in the user's own settings of Spark and Java.
    environment = dict(os.environ) | {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": HOST,
    }
    tell(f"Fetching {_named(jar_set)} into {folder} (once) ...")
    for attempt in range(1, attempts + 1):
        if _submit(jar_set, folder, spark, environment=environment, log=log, lock=lock, end_s=end_s):
            return _keep(jar_set, folder, spark, tell=tell)
        if attempt == attempts or end_s - time.monotonic() < pause_s + _LEAST_ATTEMPT_S:
            break
        tell(f"That failed (see {log}); once more in {pause_s:g} s ...")
        time.sleep(pause_s)
    raise TemporaryError(
        f"{_named(jar_set)} could not be fetched by Spark's resolver: {_reason(log)} (in {log}); try again with a "
        f"network, or put the jars into {folder / _BY_HAND} yourself, for example by Maven: see docs/kafka.md"
    )


def _submit(
    jar_set: JarSet,
    folder: Path,
    spark: Path,
    *,
    environment: Mapping[str, str],
    log: Path,
    lock: int,
    end_s: float,
) -> bool:
    """Let Spark resolve the set on the way to a program that does nothing; whether it could, before the deadline."""
    argv = [
        str(spark / "bin" / "spark-submit"),
        *("--master", "local[1]"),
        *("--conf", f"spark.jars.ivy={folder / 'ivy'}"),
        *("--packages", ",".join(jar_set.coordinates)),
        *(("--exclude-packages", ",".join(jar_set.excluding)) if jar_set.excluding else ()),
        *("--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"),
    ]
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the Spark that the user has installed
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # It holds the lock with us: should we be killed, nobody writes there until it has ended as well.
                pass_fds=(lock,),
            )
        except OSError as error:
            raise BadInputError(f"{argv[0]} cannot be run: {error.strerror}; install PySpark anew") from error
        try:
            code = process.wait(timeout=max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            output.write(b"\nthe time was up before it had ended\n")
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return code == 0


def _keep(jar_set: JarSet, folder: Path, spark: Path, *, tell: Tell) -> tuple[Path, ...]:
    """Move what was fetched to its place, and say last that it is all there."""
    fetched = folder / "ivy" / "jars"
    names = {path.name for path in fetched.glob("*.jar")}
    for coordinates in jar_set.coordinates:
        group, artifact, version = coordinates.split(":")
        if f"{group}_{artifact}-{version}.jar" not in names:
            raise PermanentError(
                f"Spark's resolver told of no error, but there is no jar of {coordinates} in {fetched}: "
                f"see {folder / _LOG}"
            )
    for artifact in jar_set.from_spark:
        found = sorted((spark / "jars").glob(f"{artifact}-*.jar"))
        if not found:
            raise BadInputError(
                f"there is no {artifact} in {spark / 'jars'}: install PySpark anew or correct SPARK_HOME"
            )
        shutil.copyfile(found[-1], fetched / found[-1].name)
    jars = folder / _JARS
    shutil.rmtree(jars, ignore_errors=True)
    fetched.replace(jars)
    kept = sorted(jars.glob("*.jar"))
    sizes = {jar.name: jar.stat().st_size for jar in kept}
    told = {"format": _FORMAT, "coordinates": list(jar_set.coordinates), "jars": sizes}
    write_private(folder / _MARKER, json.dumps(told, indent=2) + "\n")
    shutil.rmtree(folder / "ivy", ignore_errors=True)  # the resolver's own copies: as large again, and of no more use
    tell(f"{len(kept)} jars ({sum(sizes.values()) / 2**20:.0f} MiB) are in {jars}.")
    return tuple(kept)


def _reason(log: Path) -> str:
    """The line of the resolver's log that tells most."""
    lines = [line.strip(" \t:") for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    for sign in ("time was up", "unresolved dependency", "download failed", "Exception", "Error"):
        telling = next((line for line in lines if sign in line), None)
        if telling is not None:
            return telling[:300]
    return next((line[:300] for line in reversed(lines) if line), "it wrote nothing")


def _named(jar_set: JarSet) -> str:
    return " and ".join(jar_set.coordinates)


def main(*, pause_s: float = _PAUSE_S) -> int:
    """Fetch everything that a broker and Spark's connector need; says nothing where it is there."""

    def tell(sentence: str) -> None:
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()

    try:
        for jar_set in (BROKER, spark_connector()):
            resolve(jar_set, tell=tell, pause_s=pause_s)
    except TidewiseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
