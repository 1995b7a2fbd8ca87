"""How the agent gets into PySpark: by patches applied when its modules are imported, each of which fails open."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tidewise_agent.agent import Agent, this_process_is_ours
from tidewise_agent.lease import LeaseRefusedError
from tidewise_agent.queries import ManagedQuery, Recipe
from tidewise_agent.spec import OWNER_VARIABLE, SPEC_VARIABLE, AgentSpec
from tidewise_agent.warm_up import add_warm_up

_AGENT: Agent | None = None

_FILE_READERS = ("json", "orc", "parquet", "text", "csv", "xml")
_FOREVER_S = 10.0**7
_RUNNING_JVM = "PYSPARK_GATEWAY_PORT"
"""Set where PySpark is to connect to a JVM instead of starting one."""
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)
"""Settings that Spark itself does not show to anybody."""


def install() -> None:
    """Patch PySpark when it is imported, if this process is one that a controller has started."""
    if SPEC_VARIABLE not in os.environ or not this_process_is_ours():
        return
    already = [name for name in _PATCHES if name in sys.modules]
    sys.meta_path.insert(0, _Finder())
    for name in already:
        _apply(name, sys.modules[name])


def attach(spec: AgentSpec, session: Any) -> Agent:
    """Bring the agent into a process whose session exists already, as in a notebook; a second call changes nothing."""
    global _AGENT  # noqa: PLW0603 -- one agent per process
    if _AGENT is None:
        _AGENT = Agent(spec)
        for name in _PATCHES:
            if name in sys.modules:
                _apply(name, sys.modules[name])
        _AGENT.context_created(session.sparkContext)
        _AGENT.listen_to(session)
        for query in session.streams.active:
            _AGENT.watch_query(query)
    return _AGENT


def _agent() -> Agent | None:
    """The agent of this process, made at the first session; None where there is to be none."""
    global _AGENT  # noqa: PLW0603 -- one agent per process
    if _AGENT is None and SPEC_VARIABLE in os.environ and this_process_is_ours():
        try:
            _AGENT = Agent(AgentSpec.read(Path(os.environ[SPEC_VARIABLE])))
        except (OSError, ValueError, TypeError) as error:
            _complain(f"its settings cannot be read ({error})")
            del os.environ[SPEC_VARIABLE]
            return None
        os.environ[OWNER_VARIABLE] = str(os.getpid())
    return _AGENT


def _complain(what: str) -> None:
    sys.stderr.write(f"tidewise: the program goes on without the agent: {what}\n")


class _Finder(importlib.abc.MetaPathFinder):
    """Lets every import through, and patches the few modules it waits for once they are there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _PATCHES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader)
                return spec
        return None


class _PatchingLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _apply(module.__name__, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _apply(name: str, module: ModuleType) -> None:
    try:
        _PATCHES[name](module)
    except Exception as error:  # noqa: BLE001 -- another version of PySpark: go without
        _complain(f"{name} is not as expected ({type(error).__name__}: {error})")


def _patch(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace a method by one that is given the original first; a method that is patched already stays as it is."""
    original = getattr(owner, name)

    def replace(wrapper: Callable[..., Any]) -> None:
        if not hasattr(original, "_tidewise_original"):

            @functools.wraps(original)
            def patched(*args: Any, **kwargs: Any) -> Any:
                return wrapper(original, *args, **kwargs)

            patched._tidewise_original = original  # type: ignore[attr-defined]  # marks what is patched
            setattr(owner, name, patched)

    return replace


# Contexts


def _patch_context(module: ModuleType) -> None:
    kind = module.SparkContext
    signature = inspect.signature(kind.__init__)

    @_patch(kind, "__init__")
    def create(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
        agent = _agent()
        if agent is None:
            return original(self, *args, **kwargs)
        bound = signature.bind(self, *args, **kwargs)
        if agent.spec.conf:
            conf = bound.arguments.get("conf")
            mine = module.SparkConf() if conf is None else conf
            secret = {key: value for key, value in agent.spec.conf.items() if _SECRET.search(key)}
            for key, value in agent.spec.conf.items():
                if key not in secret:
                    mine.set(key, value)
            if bound.arguments.get("gateway") is None:
                _let_executors_warm_up(agent, kind, mine)
            # PySpark writes the settings it has now on the JVM's command line, which anybody can read.
            kind._ensure_initialized(gateway=bound.arguments.get("gateway"), conf=mine)
            for key, value in secret.items():
                mine.set(key, value)
            bound.arguments["conf"] = mine
            if "spark.master" in agent.spec.conf:
                bound.arguments.pop("master", None)
        original(*bound.args, **bound.kwargs)
        try:
            agent.context_created(self)
        except Exception as error:  # noqa: BLE001 -- fails open
            _complain(f"it could not start ({type(error).__name__}: {error})")
        return None


def _let_executors_warm_up(agent: Agent, kind: Any, conf: Any) -> None:
    """Only before there is a JVM, which spark-submit for example starts first."""
    if agent.spec.cache_folder is None or kind._gateway is not None or _RUNNING_JVM in os.environ:
        return
    try:
        from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 -- only where Spark is

        add_warm_up(conf, spark_home=Path(_find_spark_home()), cache=Path(agent.spec.cache_folder))
    except Exception as error:  # noqa: BLE001 -- fails open
        sys.stderr.write(f"tidewise: executors will join cold ({type(error).__name__}: {error})\n")


# Readers and writers


def _patch_readwriter(module: ModuleType) -> None:
    _patch_reader(module.DataStreamReader)
    _patch_writer(module.DataStreamWriter)


def _patch_reader(kind: Any) -> None:
    @_patch(kind, "format")
    def remember_format(original: Callable[..., Any], self: Any, source: str) -> Any:
        self._tidewise_format = source
        return original(self, source)

    @_patch(kind, "option")
    def remember_option(original: Callable[..., Any], self: Any, key: str, value: Any) -> Any:
        _note_option(key, value)
        return original(self, key, value)

    @_patch(kind, "options")
    def remember_options(original: Callable[..., Any], self: Any, **options: Any) -> Any:
        for key, value in options.items():
            _note_option(key, value)
        return original(self, **options)

    @_patch(kind, "load")
    def load(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("format") or (args[1] if len(args) > 1 else None)
        _note_source(str(named or getattr(self, "_tidewise_format", "parquet")))
        return original(self, *args, **kwargs)

    for name in (*_FILE_READERS, "table"):
        if hasattr(kind, name):
            _note_use_of(kind, name)


def _note_option(key: str, value: Any) -> None:
    agent = _agent()
    if agent is None:
        return
    if key.lower() == "cleansource" and str(value).lower() != "off":
        agent.cleans_sources = True
    elif key.lower() == "kafka.group.id":
        agent.kafka_group = str(value)


def _note_source(name: str) -> None:
    agent = _agent()
    if agent is not None:
        agent.source_formats.add(name.lower())


def _note_use_of(kind: Any, name: str) -> None:
    @_patch(kind, name)
    def read(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        _note_source(name)
        return original(self, *args, **kwargs)


def _recipe(writer: Any) -> Recipe:
    recipe: Recipe | None = getattr(writer, "_tidewise_recipe", None)
    if recipe is None:
        recipe = Recipe()
        writer._tidewise_recipe = recipe
    return recipe


def _patch_writer(kind: Any) -> None:
    _remember(kind, "format", lambda recipe, value: setattr(recipe, "format", value))
    _remember(kind, "outputMode", lambda recipe, value: setattr(recipe, "output_mode", value))
    _remember(kind, "queryName", lambda recipe, value: setattr(recipe, "name", value))
    _patch_options(kind)
    _patch_foreach_batch(kind)
    _patch_start(kind)


def _remember(kind: Any, name: str, note: Callable[[Recipe, Any], None]) -> None:
    """Note the one argument of a method of the writer."""

    @_patch(kind, name)
    def remember(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        note(_recipe(self), next(iter((*args, *kwargs.values()))))
        return result


def _patch_options(kind: Any) -> None:
    @_patch(kind, "option")
    def remember_option(original: Callable[..., Any], self: Any, key: str, value: Any) -> Any:
        _recipe(self).options[key.lower()] = str(value)
        return original(self, key, value)

    @_patch(kind, "options")
    def remember_options(original: Callable[..., Any], self: Any, **options: Any) -> Any:
        _recipe(self).options.update({key.lower(): str(value) for key, value in options.items() if value is not None})
        return original(self, **options)

    @_patch(kind, "trigger")
    def remember_trigger(original: Callable[..., Any], self: Any, **trigger: Any) -> Any:
        _recipe(self).trigger = dict(trigger)
        return original(self, **trigger)


def _patch_foreach_batch(kind: Any) -> None:
    @_patch(kind, "foreachBatch")
    def guard_batches(original: Callable[..., Any], self: Any, func: Callable[..., Any]) -> Any:
        _recipe(self).has_foreach_batch = True

        @functools.wraps(func)
        def guarded(frame: Any, batch: int) -> Any:
            query: ManagedQuery | None = getattr(self, "_tidewise_query", None)
            if query is not None and query.lease is not None:
                query.lease.check()
            return func(frame, batch)

        return original(self, guarded)


_SET_AT_START = {
    "format": "format",
    "outputMode": "outputMode",
    "partitionBy": "partitionBy",
    "queryName": "queryName",
}
"""What `start` and `toTable` may still be given besides options, and by which method it is set."""


def _patch_start(kind: Any) -> None:
    start_signature = inspect.signature(kind.start)
    table_signature = inspect.signature(kind.toTable)

    @_patch(kind, "start")
    def start(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        given = start_signature.bind(self, *args, **kwargs).arguments
        _finish_writer(self, given)
        path = given.get("path")
        return _start(self, lambda: original(self, path), path=path)

    @_patch(kind, "toTable")
    def to_table(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
        given = table_signature.bind(self, *args, **kwargs).arguments
        _finish_writer(self, given)
        return _start(self, lambda: original(self, given["tableName"]), table=given["tableName"])


def _finish_writer(writer: Any, given: Mapping[str, Any]) -> None:
    """What the last call brings along, set as it would set it itself."""
    writer.options(**given.get("options", {}))
    for name, setter in _SET_AT_START.items():
        if given.get(name) is not None:
            getattr(writer, setter)(given[name])


def _start(writer: Any, plainly: Callable[[], Any], *, path: str | None = None, table: str | None = None) -> Any:
    agent = _agent()
    recipe = _recipe(writer)
    if agent is not None and (agent.standby or agent.spec.copy is not None) and hasattr(writer, "_tidewise_query"):
        # Left alone, it would write the program's own sink and checkpoint beside the job, and without the lease. A
        # standby that has taken over is none any more.
        why = "a standby or a copy starts no writer a second time: the job itself writes to its sink"
        agent.problem("query-not-started", why)
        raise RuntimeError(why)
    if agent is None or hasattr(writer, "_tidewise_query"):
        # A writer that is used twice builds two queries at once: it cannot be remembered, so it is left alone.
        return _left_alone(agent, plainly())
    recipe.path, recipe.table = path, table
    recipe.sources = tuple(sorted(agent.source_formats))
    try:
        return agent.start_query(writer, recipe)
    except LeaseRefusedError:
        raise
    except Exception as error:
        if agent.standby or type(error).__module__.startswith(("pyspark", "py4j")):
            # A standby must not fall back to the program's own sink; and what Spark refuses is the program's to hear.
            agent.problem("query-not-started", f"{type(error).__name__}: {error}")
            raise
        agent.problem("query-not-managed", f"{type(error).__name__}: {error}")
        return _left_alone(agent, plainly())


def _left_alone(agent: Agent | None, user_object: Any) -> Any:
    if agent is not None:
        agent.unmanaged.append(user_object)
    return user_object


# Queries


def _patch_query(module: ModuleType) -> None:
    _patch_streaming_query(module.StreamingQuery)
    _patch_stop(module.StreamingQuery)
    _patch_activity(module.StreamingQuery)
    _patch_manager(module.StreamingQueryManager)


def _patch_streaming_query(kind: Any) -> None:
    @_patch(kind, "awaitTermination")
    def await_termination(original: Callable[..., Any], self: Any, timeout: float | None = None) -> Any:
        query = _managed(self)
        if query is None:
            return original(self, timeout)
        deadline_s = time.monotonic() + (timeout if timeout is not None else _FOREVER_S)
        while True:
            failure: BaseException | None = None
            ended: Any = None
            # Whatever object the program holds, it waits for the run that is on.
            self._jsq = watched = query.java_query
            try:
                ended = original(self, max(0.0, deadline_s - time.monotonic()) if timeout is not None else None)
            except Exception as error:  # noqa: BLE001 -- raised below, unless the query has moved on
                failure = error
            if not _moved_on(query, watched, deadline_s):
                if failure is not None:
                    raise failure
                return ended
            if time.monotonic() >= deadline_s:
                return False


def _patch_stop(kind: Any) -> None:
    @_patch(kind, "stop")
    def stop(original: Callable[..., Any], self: Any) -> Any:
        query = _managed(self)
        if query is None:
            return original(self)
        query.user_stopped = True
        _moved_on(query, query.java_query, time.monotonic() + 60.0)
        self._jsq = query.java_query
        result = original(self)
        if query.lease is not None and not query.java_query.isActive():
            query.lease.release()
        return result


def _patch_activity(kind: Any) -> None:
    """A program that asks again and again whether its query runs does not notice a move either."""
    active = kind.isActive

    def active_over_moves(self: Any) -> bool:
        query = _managed(self)
        if query is not None:
            self._jsq = query.java_query
        return (query is not None and query.is_on_the_move) or bool(active.fget(self))

    kind.isActive = property(active_over_moves)


def _moved_on(query: ManagedQuery, watched: Any, deadline_s: float) -> bool:
    """Wait while the query is being moved; whether it runs on as another than the one that was watched."""
    with query.settled:
        while query.moving and time.monotonic() < deadline_s:
            query.settled.wait(timeout=min(1.0, max(0.01, deadline_s - time.monotonic())))
        return query.java_query is not watched or query.is_on_the_move


def _managed(user_object: Any) -> ManagedQuery | None:
    agent = _agent()
    if agent is None:
        return None
    try:
        return agent.managed(user_object)
    except Exception as error:  # noqa: BLE001 -- fails open
        agent.problem("query-unknown", f"{type(error).__name__}: {error}")
        return None


def _patch_reset(kind: Any) -> None:
    @_patch(kind, "resetTerminated")
    def forget(original: Callable[..., Any], self: Any) -> Any:
        agent = _agent()
        if agent is not None:
            agent.forgotten |= {run_id for run_id, active in _runs(agent) if not active}
        return original(self)


def _patch_manager(kind: Any) -> None:
    reset = kind.resetTerminated
    _patch_reset(kind)

    @_patch(kind, "awaitAnyTermination")
    def await_any(original: Callable[..., Any], self: Any, timeout: float | None = None) -> Any:
        agent = _agent()
        if agent is None or not agent.queries:
            return original(self, timeout)
        deadline_s = time.monotonic() + (timeout if timeout is not None else _FOREVER_S)
        while True:
            failure: BaseException | None = None
            ended: Any = None
            left_s = max(0.0, deadline_s - time.monotonic())
            try:
                ended = original(self, left_s if timeout is not None else None)
            except Exception as error:  # noqa: BLE001 -- raised below, unless it was a move
                failure = error
            if ended is False and failure is None:
                return ended  # the time is over
            if _one_has_really_ended(agent, deadline_s):
                if failure is not None:
                    raise failure
                return ended
            reset(self)
            if time.monotonic() >= deadline_s:
                return False

    active = kind.active

    def without_warm_ups(self: Any) -> list[Any]:
        agent = _agent()
        running: list[Any] = active.fget(self)
        warming = (
            set()
            if agent is None
            else {
                str(query.java_query.runId().toString())
                for query in agent.queries
                if query.warming and query.java_query is not None
            }
        )
        return [query for query in running if str(query.runId) not in warming] if warming else running

    kind.active = property(without_warm_ups)


def _one_has_really_ended(agent: Agent, deadline_s: float) -> bool:
    for query in agent.queries:
        _moved_on(query, query.java_query, deadline_s)
    return any(not active and run_id not in agent.forgotten for run_id, active in _runs(agent))


def _runs(agent: Agent) -> list[tuple[str, bool]]:
    """Every query's run, and whether it is active."""
    managed = [query.java_query for query in agent.queries if query.java_query is not None and not query.is_on_the_move]
    unmanaged = [user_object._jsq for user_object in agent.unmanaged]
    return [(str(one.runId().toString()), bool(one.isActive())) for one in (*managed, *unmanaged)]


_PATCHES: dict[str, Callable[[ModuleType], None]] = {
    "pyspark.context": _patch_context,  # up to 3.5
    "pyspark.core.context": _patch_context,
    "pyspark.sql.streaming.readwriter": _patch_readwriter,
    "pyspark.sql.streaming.query": _patch_query,
}
