"""Jars are fetched once, by one process at a time, and never needed from the network again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host.processes import find
from tidewise.kafka.jars import BROKER, JarSet, resolve, spark_connector

THING = JarSet(name="thing", coordinates=("org.example:thing:1.0",), from_spark=("scala-library",))
IVY = 'for word in "$@"; do case "$word" in spark.jars.ivy=*) ivy=${word#*=};; esac; done\n'
GOOD = IVY + 'mkdir -p "$ivy/jars" "$ivy/cache"; echo jar > "$ivy/jars/org.example_thing-1.0.jar"\n'
BAD = 'echo ":: unresolved dependency: org.example#thing;1.0: not found"\nexit 1\n'
NAMES = ["org.example_thing-1.0.jar", "scala-library-2.13.18.jar"]


class FakeSpark:
    """A Spark whose spark-submit does as it is told, and counts how often it was run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for inner in ("bin", "jars"):
            (home / inner).mkdir(parents=True)
        (home / "bin" / "spark-class").touch()
        for name in ("scala-library-2.13.18.jar", "spark-core_2.13-4.3.0.jar"):
            (home / "jars" / name).write_text(name, encoding="utf-8")
        self.does(GOOD)

    def does(self, *scripts: str) -> None:
        """One script per run; the last one is for all that follow."""
        submit = self.home / "bin" / "spark-submit"
        submit.with_name("calls").unlink(missing_ok=True)
        cases = "".join(f"{number})\n{script};;\n" for number, script in enumerate(scripts[:-1], 1))
        count = 'echo "$@" >> "$(dirname "$0")/calls"\nrun=$(wc -l < "$(dirname "$0")/calls")\n'
        submit.write_text(f"#!/bin/sh\n{count}case $((run)) in\n{cases}*)\n{scripts[-1]};;\nesac\n", encoding="utf-8")
        submit.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        told = self.home / "bin" / "calls"
        return told.read_text(encoding="utf-8").splitlines() if told.exists() else []


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return FakeSpark(tmp_path / "spark")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_set_is_fetched_once_and_then_nothing_is_started(spark: FakeSpark, cache: Path) -> None:
    told: list[str] = []
    jars = resolve(THING, cache=cache, tell=told.append)
    assert [jar.name for jar in jars] == NAMES
    assert all(jar.is_file() for jar in jars)
    assert told[0] == f"Fetching org.example:thing:1.0 into {cache / 'thing-1.0'} (once) ..."
    assert "--packages org.example:thing:1.0" in spark.calls[0]
    assert not (cache / "thing-1.0" / "ivy").exists(), "the resolver's own copies are of no more use"
    spark.does(BAD)
    assert resolve(THING, cache=cache, tell=told.append) == jars
    assert spark.calls == []
    assert len(told) == 2


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "jars" / NAMES[0]).write_text("shorter or longer", encoding="utf-8"),
        lambda folder: (folder / "jars" / NAMES[0]).unlink(),
        lambda folder: (folder / "complete.json").write_text("[]", encoding="utf-8"),
        lambda folder: (folder / "complete.json").write_bytes(b"\xff"),
        lambda folder: (folder / "complete.json").unlink(),
    ],
)
def test_a_set_that_is_not_whole_is_fetched_again(spark: FakeSpark, cache: Path, harm: object) -> None:
    jars = resolve(THING, cache=cache)
    assert callable(harm)
    harm(cache / "thing-1.0")
    assert resolve(THING, cache=cache) == jars
    assert len(spark.calls) == 2
    assert jars[0].read_text(encoding="utf-8") == "jar\n"


def test_other_coordinates_of_the_same_version_are_another_set(spark: FakeSpark, cache: Path) -> None:
    resolve(THING, cache=cache)
    spark.does(GOOD + 'echo jar > "$ivy/jars/org.example_more-2.0.jar"\n')
    more = JarSet(name="thing", coordinates=(*THING.coordinates, "org.example:more:2.0"))
    assert len(resolve(more, cache=cache)) == 2
    assert len(spark.calls) == 1


def test_a_fault_that_passes_costs_one_more_attempt(spark: FakeSpark, cache: Path) -> None:
    spark.does(BAD, GOOD)
    told: list[str] = []
    assert len(resolve(THING, cache=cache, tell=told.append, pause_s=0.01)) == 2
    assert len(spark.calls) == 2
    assert "once more in 0.01 s" in told[1]


def test_a_failure_names_the_coordinates_the_log_and_the_second_way(spark: FakeSpark, cache: Path) -> None:
    spark.does(BAD)
    with pytest.raises(TemporaryError) as failed:
        resolve(THING, cache=cache, pause_s=0.01)
    folder = cache / "thing-1.0"
    assert str(failed.value) == (
        "org.example:thing:1.0 could not be fetched by Spark's resolver: unresolved dependency: "
        f"org.example#thing;1.0: not found (in {folder / 'resolve.log'}); try again with a network, or put the jars "
        f"into {folder / 'by-hand'} yourself, for example by Maven: see docs/kafka.md"
    )
    assert len(spark.calls) == 2
    assert (folder / "resolve.log").read_text(encoding="utf-8").count("unresolved") == 2


def test_a_resolver_that_hangs_is_ended_at_the_deadline(spark: FakeSpark, cache: Path) -> None:
    spark.does("sleep 1234\n")
    with pytest.raises(TemporaryError, match="the time was up before it had ended"):
        resolve(THING, cache=cache, deadline_s=1.0)
    assert not find(lambda argv: argv == ("sleep", "1234"))
    assert len(spark.calls) == 1


def test_a_resolver_that_is_content_with_nothing_is_not_believed(spark: FakeSpark, cache: Path) -> None:
    spark.does(IVY + 'mkdir -p "$ivy/jars"\n')
    with pytest.raises(PermanentError, match=r"no jar of org\.example:thing:1\.0"):
        resolve(THING, cache=cache)
    assert not (cache / "thing-1.0" / "complete.json").exists()


def test_jars_put_there_by_hand_are_taken_as_they_are(spark: FakeSpark, cache: Path) -> None:
    spark.does(BAD)
    folder = cache / "thing-1.0" / "by-hand"
    folder.mkdir(parents=True)
    (folder / "any.jar").touch()
    assert resolve(THING, cache=cache) == (folder / "any.jar",)
    assert spark.calls == []


def test_two_processes_fetch_once(spark: FakeSpark, cache: Path) -> None:
    spark.does("sleep 0.5\n" + GOOD)
    program = (
        "import sys; from pathlib import Path; from tidewise.kafka.jars import JarSet, resolve\n"
        f"print(len(resolve(JarSet(name='thing', coordinates={THING.coordinates!r}, from_spark=('scala-library',)),"
        f" cache=Path({str(cache)!r}))))"
    )
    both = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in both] == ["2\n", "2\n"]
    assert len(spark.calls) == 1


def test_who_waits_for_another_process_is_told_and_not_forever(spark: FakeSpark, cache: Path) -> None:
    spark.does("sleep 3\n" + GOOD)
    other = threading.Thread(target=lambda: resolve(THING, cache=cache))
    other.start()
    while not spark.calls:
        time.sleep(0.01)
    told: list[str] = []
    with pytest.raises(TemporaryError, match=r"another process was still fetching org\.example:thing:1\.0"):
        resolve(THING, cache=cache, tell=told.append, deadline_s=0.3)
    assert told == ["Another process fetches org.example:thing:1.0; waiting for it ..."]
    other.join(timeout=60)
    assert len(resolve(THING, cache=cache)) == 2
    assert len(spark.calls) == 1


@pytest.mark.usefixtures("spark")
def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match=r"cannot be kept in .*file.*let TIDEWISE_CACHE name a folder"):
        resolve(THING, cache=tmp_path / "file")


@pytest.mark.parametrize("coordinates", [(), ("kafka",), ("a:b",), ("a:b:1,c:d:2",), ("a:b:../x",)])
def test_what_are_no_coordinates_is_refused(coordinates: tuple[str, ...]) -> None:
    with pytest.raises(BadInputError, match="coordinates"):
        JarSet(name="x", coordinates=coordinates)


def test_the_connector_is_of_the_version_of_spark(spark: FakeSpark) -> None:
    assert spark_connector().coordinates == (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0",
        "org.apache.spark:spark-avro_2.13:4.3.0",
    )
    assert spark_connector().folder(Path("/c")).name == "spark-connector-4.3.0"
    assert BROKER.folder(Path("/c")).name == f"broker-{BROKER.version}"
    (spark.home / "jars" / "spark-core_2.13-4.3.0.jar").unlink()
    with pytest.raises(BadInputError, match="which Spark this is cannot be told"):
        spark_connector()


def test_make_is_told_what_is_fetched_and_why_not(spark: FakeSpark, cache: Path) -> None:
    spark.does(IVY + f'mkdir -p "$ivy/jars"; cd "$ivy/jars"; touch {" ".join(_file_names(BROKER))}\n', BAD)
    for told in (True, False):  # the second time, the broker's are there
        done = subprocess.run(
            [sys.executable, "-c", "from tidewise.kafka.jars import main; raise SystemExit(main(pause_s=0.01))"],
            env=dict(os.environ) | {"TIDEWISE_CACHE": str(cache)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        assert (f"are in {BROKER.folder(cache) / 'jars'}" in done.stdout) == told
        assert "spark-sql-kafka" in done.stderr
    assert json.loads((BROKER.folder(cache) / "complete.json").read_text(encoding="utf-8"))["format"] == 1


def test_the_documented_second_way_fetches_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
    named = re.findall(
        r"<groupId>(.+)</groupId>\s*<artifactId>(.+)</artifactId>\s*<version>(.+)</version>\s*</dependency>", page
    )
    assert tuple(":".join(one) for one in named) == BROKER.coordinates
    assert f"tidewise/broker-{BROKER.version}/by-hand" in page


def _file_names(jar_set: JarSet) -> list[str]:
    parts = [one.split(":") for one in jar_set.coordinates]
    return [f"{group}_{artifact}-{version}.jar" for group, artifact, version in parts]


OTHERS = JarSet(
    name="thing",
    coordinates=("org.example:thing:2.0",),
    instead=(
        JarSet(name="thing", coordinates=("org.example:thing:1.0",), excluding=("org.example:part",)),
        JarSet(name="part", coordinates=("org.example:thing:1.0",)),
    ),
)


def test_other_sets_do_where_the_first_cannot_be_fetched_and_are_remembered(spark: FakeSpark, cache: Path) -> None:
    told: list[str] = []
    spark.does(BAD, GOOD)
    jars = resolve(OTHERS, cache=cache, tell=told.append, pause_s=0.0)
    folders = [cache / "thing-1.0" / "jars", cache / "part-1.0" / "jars"]
    assert [(jar.parent, jar.name) for jar in jars] == [(folder, NAMES[0]) for folder in folders]
    assert any("org.example:thing:2.0 could not be fetched" in one and "trying org.example" in one for one in told)
    assert len(spark.calls) == 3, "the first is tried once, not twice"
    assert ["--exclude-packages org.example:part" in call for call in spark.calls] == [False, True, False]
    spark.does(BAD)
    assert resolve(OTHERS, cache=cache) == jars
    assert spark.calls == []


def test_where_the_others_cannot_be_fetched_either_the_first_is_told_of(spark: FakeSpark, cache: Path) -> None:
    spark.does(BAD)
    with pytest.raises(TemporaryError, match=r"^org.example:thing:2.0 could not be fetched"):
        resolve(OTHERS, cache=cache, pause_s=0.0)


def test_the_first_is_taken_where_it_is_there(spark: FakeSpark, cache: Path) -> None:
    spark.does(GOOD.replace("1.0", "2.0"))
    assert [jar.name for jar in resolve(OTHERS, cache=cache)] == ["org.example_thing-2.0.jar"]
    assert len(spark.calls) == 1
