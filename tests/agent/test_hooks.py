"""How the agent gets into a program, tried on a stand-in for PySpark: it fails open, whatever it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidewise_agent
from tidewise_agent import hooks
from tidewise_agent.spec import OWNER_VARIABLE, SPEC_VARIABLE, AgentSpec

AGENT_PATH = Path(tidewise_agent.__file__).parent / "path"

CONTEXT = """
class SparkConf:
    def __init__(self): self.values = {}
    def set(self, key, value): self.values[key] = value
class SparkContext:
    on_the_command_line = None
    @classmethod
    def _ensure_initialized(cls, instance=None, gateway=None, conf=None):
        cls.on_the_command_line = cls.on_the_command_line or dict(conf.values)
    def __init__(self, master=None, appName=None, conf=None):
        self.given = (master, appName, conf.values if conf is not None else None)
"""
READWRITER = """
class _Chain:
    def __init__(self): self.calls = []
    def _note(self, *call): self.calls.append(call); return self
class DataStreamReader(_Chain):
    def format(self, source): return self._note("format", source)
    def option(self, key, value): return self._note("option", key, value)
    def options(self, **options): return self._note("options", options)
    def load(self, path=None, format=None, schema=None, **options): return self._note("load", path, format)
    def json(self, path): return self._note("json", path)
class DataStreamWriter(_Chain):
    def format(self, source): return self._note("format", source)
    def outputMode(self, outputMode): return self._note("outputMode", outputMode)
    def queryName(self, queryName): return self._note("queryName", queryName)
    def partitionBy(self, *cols): return self._note("partitionBy", *cols)
    def option(self, key, value): return self._note("option", key, value)
    def options(self, **options): return self._note("options", options)
    def trigger(self, *, processingTime=None, availableNow=None): return self._note("trigger", processingTime)
    def foreachBatch(self, func): self.func = func; return self
    def start(self, path=None, format=None, outputMode=None, partitionBy=None, queryName=None, **options):
        self.options(**options)
        if outputMode is not None: self.outputMode(outputMode)
        if partitionBy is not None: self.partitionBy(partitionBy)
        if format is not None: self.format(format)
        if queryName is not None: self.queryName(queryName)
        self.sink = path
        return "the query"
    def toTable(self, tableName, format=None, outputMode=None, partitionBy=None, queryName=None, **options):
        self.options(**options)
        self.sink = tableName
        return "the table's query"
"""
QUERY = """
class StreamingQuery:
    isActive = property(lambda self: False)
    def awaitTermination(self, timeout=None): return ("ended", timeout)
    def stop(self): return "stopped"
class StreamingQueryManager:
    @property
    def active(self): return ["running"]
    def awaitAnyTermination(self, timeout=None): return ("any ended", timeout)
    def resetTerminated(self): pass
"""
PROGRAM = """
from pyspark.core.context import SparkConf, SparkContext
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
context = SparkContext("local", "mine")
print(context.given)
reader = DataStreamReader().format("rate").option("a", 1).options(b=2)
print(reader.load().calls)
writer = DataStreamWriter().format("noop").option("checkpointLocation", "c").trigger(processingTime="1 second")
writer.foreachBatch(lambda frame, batch: print("batch", frame, batch))
print(writer.start("there", outputMode="append", queryName="q", extra="x"), writer.sink)
print([call for call in writer.calls if call != ("options", {})])
writer.func("frame", 7)
print(DataStreamWriter().toTable("t"))
print(StreamingQuery().awaitTermination(3), StreamingQuery().stop())
manager = StreamingQueryManager()
print(manager.awaitAnyTermination(), manager.active)
"""
PLAIN = """\
('local', 'mine', None)
[('format', 'rate'), ('option', 'a', 1), ('options', {'b': 2}), ('load', None, None)]
"""
"""What the program begins with where nobody looks over its shoulder."""


@dataclass
class Stage:
    """A folder with a stand-in for PySpark, a program, and what an agent would be told."""

    folder: Path

    def write_pyspark(self, *, context: str = CONTEXT, readwriter: str = READWRITER, query: str = QUERY) -> None:
        for name, text in (
            ("__init__", ""),
            ("core/__init__", ""),
            ("core/context", context),
            ("sql/__init__", ""),
            ("sql/streaming/__init__", ""),
            ("sql/streaming/readwriter", readwriter),
            ("sql/streaming/query", query),
        ):
            path = self.folder / "pyspark" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def write_spec(self, *, cache_folder: str | None = None, **conf: str) -> None:
        AgentSpec(
            application="a",
            host="127.0.0.1",
            port=9,
            token="t",  # noqa: S106 -- made up
            state_folder=str(self.folder),
            identity_file=str(self.folder / "identity.json"),
            conf=conf,
            cache_folder=cache_folder,
        ).write(self.folder / "agent.json")

    def run(self, text: str = PROGRAM, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "program.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        clean = {name: value for name, value in os.environ.items() if name not in (SPEC_VARIABLE, OWNER_VARIABLE)}
        given = {
            "PYTHONPATH": f"{AGENT_PATH}{os.pathsep}{self.folder}",
            SPEC_VARIABLE: str(self.folder / "agent.json"),
            **environment,
        }
        return subprocess.run(
            [sys.executable, *flags, str(path)],
            env=clean | {name: value for name, value in given.items() if value},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    one = Stage(tmp_path)
    one.write_pyspark()
    one.write_spec()
    return one


@pytest.fixture
def plain(stage: Stage) -> str:
    """What the program prints without any of this."""
    result = stage.run(**{SPEC_VARIABLE: "", "PYTHONPATH": str(stage.folder)})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(PLAIN)
    return result.stdout


def test_without_the_variable_the_program_is_left_alone(stage: Stage, plain: str) -> None:
    result = stage.run(**{SPEC_VARIABLE: ""})
    assert (result.returncode, result.stdout, result.stderr) == (0, plain, "")


@pytest.mark.parametrize(
    "spec", [None, "", "{", "[]", "3", "{}", '{"application": "a"}', '{"no": "such field"}', '{"gone": 5}']
)
def test_settings_that_are_missing_or_broken_are_told_and_change_nothing(
    stage: Stage, plain: str, spec: str | None
) -> None:
    if spec is None:
        (stage.folder / "agent.json").unlink()
    else:
        (stage.folder / "agent.json").write_text(spec, encoding="utf-8")
    result = stage.run()
    assert (result.returncode, result.stdout) == (0, plain)
    assert result.stderr.startswith("tidewise: the program goes on without the agent: its settings cannot be read")
    assert result.stderr.count("\n") == 1


def test_where_the_agent_cannot_work_the_program_does(stage: Stage, plain: str) -> None:
    """The stand-in has no JVM, so that nothing of the agent can start; what it patched must go on all the same."""
    result = stage.run()
    assert (result.returncode, result.stdout) == (0, plain)
    assert "the program goes on without the agent: it could not start (AttributeError" in result.stderr


def test_settings_of_the_controller_win_and_its_secrets_stay_off_the_command_line(stage: Stage) -> None:
    open_to_all = {"spark.master": "spark://there", "spark.x": "1"}
    secret = {"spark.authenticate.secret": "hidden"}
    stage.write_spec(**open_to_all, **secret)
    result = stage.run(PROGRAM + "print(SparkContext.on_the_command_line)")
    lines = result.stdout.splitlines()
    assert lines[:1] == [str((None, "mine", open_to_all | secret))], result.stderr
    assert lines[-1] == str(open_to_all)


@pytest.mark.parametrize(
    ("before", "environment", "looked"),
    [
        ("", {}, True),
        ("", {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ("SparkContext._gateway = object()", {}, False),
    ],
    ids=["no JVM yet", "started by spark-submit", "an earlier context's JVM"],
)
def test_executors_warm_up_only_where_the_jvm_is_still_to_be_started(
    *, stage: Stage, before: str, environment: dict[str, str], looked: bool
) -> None:
    """A JVM that runs would not find the plugin. The stand-in has no Spark to find: that it was looked for is told."""
    stage.write_spec(cache_folder=str(stage.folder), **{"spark.master": "spark://there"})
    program = f"""
        from pyspark.core.context import SparkContext
        SparkContext._gateway = None
        {before}
        SparkContext(master="local")
        """
    result = stage.run(program, **environment)
    assert ("executors will join cold" in result.stderr) is looked, result.stderr


@pytest.mark.parametrize(
    "module",
    [
        {"context": "SparkContext = None\nclass SparkConf: pass\n"},
        {"readwriter": "class DataStreamReader: pass\nclass DataStreamWriter: pass\n"},
        {"query": "class StreamingQuery: pass\nclass StreamingQueryManager: pass\n"},
    ],
    ids=lambda module: next(iter(module)),
)
def test_a_pyspark_that_is_not_as_expected_is_left_as_it_is(stage: Stage, module: dict[str, str]) -> None:
    stage.write_pyspark(**module)
    result = stage.run(
        """
        import pyspark.core.context, pyspark.sql.streaming.readwriter, pyspark.sql.streaming.query
        print("imported")
        """
    )
    assert (result.returncode, result.stdout) == (0, "imported\n")
    assert result.stderr.count("is not as expected") == 1, result.stderr


def test_a_module_that_fails_to_import_fails_as_before(stage: Stage) -> None:
    stage.write_pyspark(query="raise ImportError('no such thing')\n")
    result = stage.run(
        """
        try:
            import pyspark.sql.streaming.query
        except ImportError as error:
            print(error)
        try:
            import pyspark.context
        except ImportError as error:
            print(type(error).__name__)
        """
    )
    assert (result.stdout, result.stderr) == ("no such thing\nModuleNotFoundError\n", "")


def test_what_a_process_starts_is_left_alone(stage: Stage, plain: str) -> None:
    result = stage.run(**{OWNER_VARIABLE: "1"})
    assert (result.returncode, result.stdout, result.stderr) == (0, plain, "")


def test_a_child_of_the_program_does_not_get_an_agent(stage: Stage) -> None:
    result = stage.run(
        """
        import subprocess, sys
        from pyspark.core.context import SparkContext
        SparkContext()
        check = (
            "import sys; from pyspark.core.context import SparkContext as S; "
            "print(hasattr(S.__init__, '_tidewise_original'), 'tidewise_agent' in sys.modules)"
        )
        print(hasattr(SparkContext.__init__, "_tidewise_original"), flush=True)
        subprocess.run([sys.executable, "-c", check])
        """
    )
    assert result.stdout.split() == ["True", "False", "False"]


def test_the_program_s_own_sitecustomize_runs_too(stage: Stage) -> None:
    (stage.folder / "sitecustomize.py").write_text("import builtins; builtins.theirs = 'theirs'\n", encoding="utf-8")
    result = stage.run(
        """
        import builtins, sys
        from pyspark.core.context import SparkContext
        print(builtins.theirs, hasattr(SparkContext.__init__, "_tidewise_original"))
        print(sys.modules["sitecustomize"].__file__)
        """
    )
    assert result.stdout.splitlines() == ["theirs True", str(stage.folder / "sitecustomize.py")]


def test_an_error_in_the_program_s_own_sitecustomize_is_told_as_without_the_agent(stage: Stage) -> None:
    (stage.folder / "sitecustomize.py").write_text("raise ValueError('theirs')\n", encoding="utf-8")
    here = stage.run("print('goes on')")
    without = stage.run("print('goes on')", PYTHONPATH=str(stage.folder))
    assert here.returncode == without.returncode
    assert here.stdout == without.stdout
    assert "ValueError: theirs" in here.stderr
    assert "ValueError: theirs" in without.stderr


def test_nothing_but_the_agent_itself_becomes_importable(stage: Stage) -> None:
    result = stage.run(
        """
        import sys
        print(any(name == "tidewise" or name.startswith("tidewise.") for name in sys.modules))
        print(any(path.endswith("src") for path in sys.path))
        """,
        "-S",
    )
    # Without site-packages there is no sitecustomize at all: the program runs, and nothing of ours is there.
    assert result.stdout.split() == ["False", "False"]


def test_the_agent_needs_the_standard_library_only(stage: Stage) -> None:
    result = stage.run(
        f"""
        import json, sys
        sys.path.insert(0, {str(AGENT_PATH.parent.parent)!r})
        before = set(sys.modules)
        import tidewise_agent.hooks
        tops = {{name.split(".")[0] for name in set(sys.modules) - before}}
        print(json.dumps(sorted(tops - sys.stdlib_module_names - {{"tidewise_agent"}})))
        """,
        "-S",
    )
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize("flag", ["-I", "-E"])
def test_an_interpreter_that_ignores_the_environment_runs_the_program_as_it_is(stage: Stage, flag: str) -> None:
    result = stage.run("import sys; print('tidewise_agent' in sys.modules)", flag)
    assert (result.returncode, result.stdout, result.stderr) == (0, "False\n", "")


def test_patched_twice_is_patched_once(stage: Stage) -> None:
    result = stage.run(
        """
        from pyspark.core.context import SparkContext
        once = SparkContext.__init__
        from tidewise_agent import hooks
        hooks.install()
        print(SparkContext.__init__ is once, SparkContext.__init__.__name__)
        """
    )
    assert result.stdout.split() == ["True", "__init__"]


def test_a_module_knows_its_file_and_can_be_reloaded(stage: Stage) -> None:
    result = stage.run(
        """
        import importlib, inspect
        import pyspark.sql.streaming.query as query
        print(inspect.getsource(query).strip().splitlines()[0])
        importlib.reload(query)
        print(hasattr(query.StreamingQuery.stop, "_tidewise_original"))
        """
    )
    assert result.stdout.splitlines() == ["class StreamingQuery:", "True"], result.stderr


def test_the_names_that_are_looked_for_before_anything_is_imported_are_the_agent_s() -> None:
    text = (AGENT_PATH / "sitecustomize.py").read_text(encoding="utf-8")
    assert f'"{SPEC_VARIABLE}" in os.environ' in text
    assert f'os.environ.get("{OWNER_VARIABLE}")' in text


@pytest.mark.parametrize(
    ("key", "value", "noted"),
    [
        ("kafka.group.id", "orders", ("orders", False)),
        ("Kafka.Group.Id", 7, ("7", False)),
        ("groupIdPrefix", "orders", (None, False)),
        ("cleanSource", "archive", (None, True)),
        ("cleanSource", "OFF", (None, False)),
    ],
)
def test_options_that_decide_whether_a_source_may_be_read_twice_are_noted(
    monkeypatch: pytest.MonkeyPatch, key: str, value: object, noted: tuple[str | None, bool]
) -> None:
    agent = SimpleNamespace(kafka_group=None, cleans_sources=False)
    monkeypatch.setattr(hooks, "_agent", lambda: agent)
    hooks._note_option(key, value)
    assert (agent.kafka_group, agent.cleans_sources) == noted
