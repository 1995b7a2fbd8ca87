"""The plugin is named where it can do no harm, and built once."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark
from tidewise_agent import warm_up
from tidewise_agent.warm_up import PLUGIN, add_warm_up


class Conf(dict[str, str]):
    """What the agent uses of SparkConf."""

    def set(self, key: str, value: str) -> None:
        self[key] = value


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for name in ("spark-core_2.13-9.9.jar", "scala-compiler-2.13.99.jar"):
        (home / "jars" / name).touch()
    return home


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was built, by a compiler that has nothing to say."""
    targets: list[Path] = []

    def compiled(_jars: Path, target: Path) -> None:
        targets.append(target)
        target.touch()

    monkeypatch.setattr(warm_up, "_compile", compiled)
    return targets


def test_it_is_added_to_what_the_program_names(spark_home: Path, tmp_path: Path, built: list[Path]) -> None:
    conf = Conf({"spark.master": "spark://h:1", "spark.jars": "a.jar", "spark.plugins": "x.Y"})
    add_warm_up(conf, spark_home=spark_home, cache=tmp_path / "cache")
    add_warm_up(other := Conf({"spark.master": "spark://h:1"}), spark_home=spark_home, cache=tmp_path / "cache")
    assert len(built) == 1, "it is built once"
    (jar,) = (tmp_path / "cache").iterdir()
    assert conf == {"spark.master": "spark://h:1", "spark.jars": f"a.jar,{jar}", "spark.plugins": f"x.Y,{PLUGIN}"}
    assert (other["spark.jars"], other["spark.plugins"]) == (str(jar), PLUGIN)


def test_a_new_spark_gets_a_plugin_of_its_own(spark_home: Path, tmp_path: Path, built: list[Path]) -> None:
    for version in ("9.9", "9.10"):
        (spark_home / "jars" / "spark-core_2.13-9.9.jar").rename(spark_home / "jars" / f"spark-core_2.13-{version}.jar")
        add_warm_up(Conf({"spark.master": "spark://h:1"}), spark_home=spark_home, cache=tmp_path / "cache")
    assert len(built) == 2


@pytest.mark.parametrize("master", [None, "local", "local[2]", "yarn", "k8s://https://h:1"])
def test_it_keeps_to_the_clusters_it_was_tried_on(
    spark_home: Path, tmp_path: Path, built: list[Path], master: str | None
) -> None:
    conf = Conf({} if master is None else {"spark.master": master})
    add_warm_up(conf, spark_home=spark_home, cache=tmp_path)
    assert "spark.plugins" not in conf
    assert built == []


@pytest.mark.parametrize(
    ("arguments", "defaults"),
    [
        ("--jars a.jar pyspark-shell", ""),
        ("--conf spark.plugins=x.Y pyspark-shell", ""),
        ("--properties-file p pyspark-shell", ""),
        ("", "spark.eventLog.enabled true\nspark.jars  a.jar\n"),
        ("", "spark.plugins=x.Y\n"),
        ("", "  spark.jars a.jar\n"),
        ("--packages a:b:1 pyspark-shell", ""),
    ],
)
def test_jars_and_plugins_that_are_named_elsewhere_are_left_alone(
    *,
    spark_home: Path,
    tmp_path: Path,
    built: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    defaults: str,
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    conf = Conf({"spark.master": "spark://h:1"})
    add_warm_up(conf, spark_home=spark_home, cache=tmp_path / "cache")
    assert conf == {"spark.master": "spark://h:1"}
    assert built == []


def test_a_spark_without_a_compiler_is_told(spark_home: Path, tmp_path: Path) -> None:
    (spark_home / "jars" / "scala-compiler-2.13.99.jar").unlink()
    with pytest.raises(RuntimeError, match="holds no Scala compiler"):
        add_warm_up(Conf({"spark.master": "spark://h:1"}), spark_home=spark_home, cache=tmp_path)


def test_a_compiler_that_fails_is_not_asked_again(
    spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "a.scala:3: error: no\n", "")

    monkeypatch.setattr(subprocess, "run", failing)
    with pytest.raises(RuntimeError, match=r"a\.scala:3: error: no"):
        add_warm_up(Conf({"spark.master": "spark://h:1"}), spark_home=spark_home, cache=tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".failed"]
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was tried again"))
    with pytest.raises(RuntimeError, match=r"error: no \(delete .* to try again\)"):
        add_warm_up(Conf({"spark.master": "spark://h:1"}), spark_home=spark_home, cache=tmp_path / "cache")


def test_packages_make_a_list_of_jars_that_is_left_alone(spark_home: Path, tmp_path: Path, built: list[Path]) -> None:
    conf = Conf({"spark.master": "spark://h:1", "spark.jars.packages": "a:b:1"})
    add_warm_up(conf, spark_home=spark_home, cache=tmp_path)
    assert "spark.plugins" not in conf
    assert built == []


def test_jars_from_java_options_are_left_alone(
    spark_home: Path, tmp_path: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dspark.jars=a.jar")
    conf = Conf({"spark.master": "spark://h:1"})
    add_warm_up(conf, spark_home=spark_home, cache=tmp_path)
    assert "spark.plugins" not in conf
    assert built == []


def test_a_comma_would_cut_the_path_in_two(spark_home: Path, tmp_path: Path, built: list[Path]) -> None:
    conf = Conf({"spark.master": "spark://h:1"})
    with pytest.raises(RuntimeError, match="comma"):
        add_warm_up(conf, spark_home=spark_home, cache=tmp_path / "a,b")
    assert built, "it was built before the path was looked at"
    assert "spark.plugins" not in conf


@pytest.mark.xdist_group("jobs")
def test_it_is_built_by_what_comes_with_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(find_java().home))
    conf = Conf({"spark.master": "spark://h:1"})
    add_warm_up(conf, spark_home=find_spark(), cache=tmp_path)
    names = zipfile.ZipFile(conf["spark.jars"]).namelist()
    assert PLUGIN.replace(".", "/") + ".class" in names
