"""A real Kafka broker on this machine: one node on 127.0.0.1, found again by any process."""

from __future__ import annotations

import base64
import os
import secrets
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.host import state_file
from tidewise.host.daemons import HOST, Daemon, free_ports, last_line, settle, spawn
from tidewise.host.java import Java, find_java
from tidewise.host.private_files import write_properties
from tidewise.host.processes import FoundProcess, ProcessIdentity, ended_by, find, reap, wait_until
from tidewise.kafka import topics as topics_of
from tidewise.kafka.client import kafka_client
from tidewise.kafka.jars import BROKER, Tell, resolve

STATE_FILE = "broker.json"
_PROPERTIES = "server.properties"
_LOGGING = "log4j2.properties"
_DATA = "data"
_META = "meta.properties"
_MAIN = "kafka.Kafka"
_FORMAT_MAIN = "kafka.tools.StorageTool"
_FORMAT = 1
_NODE = 1
_STOP_S = 30.0
"""A clean stop takes about a second; a busy machine with much to flush may take long."""
_FORMAT_S = 120.0
_ASK_S = 2.0
HEAP_MIB = 512
MESSAGE_BYTES = 1_048_588
"""The largest batch of records that is taken: Kafka's own default."""
_LEAST_HEAP_MIB = 256
_LEAST_MESSAGE_BYTES = 1024
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": str(_NODE),
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    # A killed broker is let in again only when its earlier self has been silent for so long.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    # There is one node: whatever is kept several times by default is kept once.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
    "log.retention.ms": "-1",  # it goes by the records' own time: an old trace would vanish as it is sent
    "log.cleaner.dedupe.buffer.size": str(16 * 2**20),  # by default a quarter of our heap
}
_LOGGING_SETTINGS = {
    "status": "error",
    "rootLogger.level": "warn",
    "rootLogger.appenderRef.console.ref": "console",
    "appender.console.type": "Console",
    "appender.console.name": "console",
    "appender.console.layout.type": "PatternLayout",
    "appender.console.layout.pattern": "%d{ISO8601} %p %c{1}: %m%n",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """What is written down of a broker, so that another process can find, stop and start it."""

    cluster_id: str
    java: Java
    jars: tuple[Path, ...]
    heap_mib: int
    message_bytes: int
    port: int | None
    """Where it listens, also while it is stopped; None: wherever a port is free when it first starts."""
    daemon: Daemon | None = None

    def to_dict(self) -> dict[str, object]:
        return {
            "format": _FORMAT,
            "cluster_id": self.cluster_id,
            "java": self.java.to_dict(),
            "jars": [str(jar) for jar in self.jars],
            "heap_mib": self.heap_mib,
            "message_bytes": self.message_bytes,
            "port": self.port,
            "daemon": None if self.daemon is None else self.daemon.to_dict(),
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, object]) -> Self:
        """What `to_dict` wrote; KeyError, TypeError or ValueError where it did not."""
        jars, port, daemon = told["jars"], told["port"], told["daemon"]
        if told["format"] != _FORMAT or not isinstance(jars, list):
            raise ValueError("another format")
        return cls(
            cluster_id=str(told["cluster_id"]),
            java=Java.from_dict(told["java"]),
            jars=tuple(Path(str(jar)) for jar in jars),
            heap_mib=int(str(told["heap_mib"])),
            message_bytes=int(str(told["message_bytes"])),
            port=None if port is None else int(str(port)),
            daemon=Daemon.from_dict(daemon) if isinstance(daemon, dict) else None,
        )


class LocalBroker:
    """A Kafka broker, which is its own controller, on 127.0.0.1; it lives on after the process that started it.

    Its folder holds the state (`broker.json`), the settings, the logs and the data. `stop` and `start` are those of
    a broker that comes back: same port, same data. `down` gives the folder up and leaves the data, which a later
    `up` in the same folder takes over; it may be called again, and by any process of the same user.
    """

    def __init__(self, folder: Path, state: BrokerState) -> None:
        self.folder = folder
        self._state = state

    @classmethod
    def up(
        cls,
        folder: Path,
        *,
        port: int | None = None,
        topics: Mapping[str, int] | None = None,
        message_bytes: int = MESSAGE_BYTES,
        heap_mib: int = HEAP_MIB,
        tell: Tell = lambda _: None,
    ) -> Self:
        """Start a broker in this folder and wait until it answers; on any failure nothing is left running.

        `topics` are made, by their number of partitions. Its jars are fetched if they never were; `tell` hears of it.
        """
        _check(port=port, topics=topics or {}, message_bytes=message_bytes, heap_mib=heap_mib)
        kafka_client()
        java = find_java()
        folder = folder.absolute()
        if "," in str(folder):
            raise BadInputError(f"Kafka takes {folder} for several folders: name one without a comma")
        earlier = cls.find(folder)
        if earlier is not None and earlier.is_running:
            raise BadInputError(
                f"a broker runs in {folder} already: use it, stop it (tidewise kafka down --folder {folder}) "
                f"or name another folder"
            )
        jars = resolve(BROKER, tell=tell)
        if earlier is not None:
            earlier.down()
        broker = cls(
            folder,
            BrokerState(
                cluster_id=_cluster_id(folder / _DATA / _META),
                java=java,
                jars=jars,
                heap_mib=heap_mib,
                message_bytes=message_bytes,
                port=port,
            ),
        )
        broker._claim()
        try:
            tell(f"Starting a Kafka broker in {folder} ...")
            broker._format()
            broker.start()
            for name, partitions in (topics or {}).items():
                topics_of.create(broker.address, name, partitions)
        except BaseException:
            broker.down()
            raise
        return broker

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The broker whose state is written in this folder, whether it runs or not; None: there is none."""
        folder = folder.absolute()
        state = _read_state(folder)
        return None if state is None else cls(folder, state)

    @property
    def is_running(self) -> bool:
        """Whether its process lives; a frozen one does."""
        return self._state.daemon is not None and self._state.daemon.identity.is_alive()

    @property
    def address(self) -> str:
        """Where clients find it, also while it is stopped."""
        if self._state.port is None:
            raise TemporaryError(f"the broker in {self.folder} has no port yet: wait until it is up")
        return f"{HOST}:{self._state.port}"

    @property
    def process(self) -> ProcessIdentity:
        """Its process, or the one that it was."""
        if self._state.daemon is None:
            raise TemporaryError(f"the broker in {self.folder} has no process yet: wait until it is up")
        return self._state.daemon.identity

    def stop(self, *, kill: bool = False) -> None:
        """End its process, cleanly or (`kill`) as a crash would; nothing happens when it does not run."""
        self._refresh()
        if self._state.daemon is None:
            return
        identity = self._state.daemon.identity
        gone = identity.kill() if kill else ended_by(identity, deadline_s=_STOP_S)
        reap(identity)
        if not gone:
            raise TemporaryError(f"the broker in {self.folder} (process {identity.pid}) does not end: try again")

    def start(self) -> None:
        """Start it again on its port with its data, and wait until it answers; nothing happens when it runs."""
        if not self._refresh():
            raise BadInputError(
                f"the broker in {self.folder} was taken down: start one there "
                f"(tidewise kafka up --folder {self.folder})"
            )
        if self.is_running:
            return
        fixed = self._state.port
        try:
            settle(
                [self._spawn(fixed)], what="Kafka broker", ready=self._ready, again=lambda _index: self._spawn(fixed)
            )
        except BaseException:
            self.stop()
            raise

    def down(self) -> None:
        """Stop it for good; the data and the logs stay in the folder."""
        self.stop()

        def all_gone() -> bool:
            left = self._own()
            for each in left:
                each.identity.kill()
            return not left

        if not wait_until(all_gone, deadline_s=_STOP_S, poll_s=0.05):
            raise TemporaryError(f"some processes of the broker in {self.folder} do not end: try again")
        (self.folder / STATE_FILE).unlink(missing_ok=True)

    def _refresh(self) -> bool:
        """Take note of what other processes did with this broker; whether it is still kept in its folder."""
        state = _read_state(self.folder)
        self._state = state or self._state
        return state is not None

    def _claim(self) -> None:
        state_file.claim(self.folder / STATE_FILE, self._state.to_dict(), what="broker")

    def _format(self) -> None:
        """Prepare the data's folder, as Kafka asks for before the first start; what is prepared stays as it is."""
        if (self.folder / _DATA / _META).exists():
            return
        self._configure(*free_ports(2))
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        log = logs / "format.log"
        told = ["format", "--cluster-id", self._state.cluster_id, "--config", str(self.folder / _PROPERTIES)]
        with log.open("ab") as output:
            try:
                done = subprocess.run(  # noqa: S603 - the user's own Java on our own words
                    [*self._java_words(), _FORMAT_MAIN, *told],
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_FORMAT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise TemporaryError(
                    f"Kafka had not prepared {self.folder / _DATA} after {_FORMAT_S:g} s: {last_line(log)}"
                ) from error
        if done.returncode != 0:
            raise PermanentError(f"Kafka cannot prepare {self.folder / _DATA}: {last_line(log)}")

    def _spawn(self, fixed: int | None) -> Daemon:
        """Start the process; `fixed`: on this port or not at all. The controller may move: nobody else knows it."""
        port, controller = free_ports(2)
        if fixed is not None:
            # The system takes a moment to close what a killed process had open; and while a port is nobody's, a client
            # that tries again and again can be given it as its own.
            wait_until(lambda: _why_taken(fixed) is None, deadline_s=_STOP_S, poll_s=0.05)
            _check_free(fixed)
            port = fixed
        self._configure(port, controller)
        daemon = spawn(
            "broker",
            [*self._java_words(), _MAIN, str(self.folder / _PROPERTIES)],
            environment=self._environment(),
            logs=self.folder / "logs",
            ports=(port, controller),
        )
        self._state = replace(self._state, daemon=daemon, port=port)
        self._save()  # at once, so that a crash of ours leaves nothing that nobody knows
        return daemon

    def _configure(self, port: int, controller: int) -> None:
        places = {
            "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"BROKER://{HOST}:{port}",
            "controller.quorum.voters": f"{_NODE}@{HOST}:{controller}",
            "log.dirs": str(self.folder / _DATA),
            "message.max.bytes": str(self._state.message_bytes),
        }
        write_properties(self.folder / _PROPERTIES, _SETTINGS | places)
        write_properties(self.folder / _LOGGING, _LOGGING_SETTINGS)

    def _java_words(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={(self.folder / _LOGGING).as_uri()}"
        heap = f"-Xmx{self._state.heap_mib}m"
        return [str(self._state.java.program), heap, "-XX:+ExitOnOutOfMemoryError", logging]

    def _environment(self) -> dict[str, str]:
        # Not on the command line, which would be pages long.
        return dict(os.environ) | {"CLASSPATH": os.pathsep.join(str(jar) for jar in self._state.jars)}

    def _ready(self) -> set[int]:
        port = self._state.port
        if port is None or not _listens(port):  # asked first, because a client waits long where nobody listens
            return set()
        ready = topics_of.is_ready(self.address, cluster_id=self._state.cluster_id, timeout_s=_ASK_S)
        return {port} if ready else set()

    def _own(self) -> tuple[FoundProcess, ...]:
        """Whatever was started with our settings, also what a crash of ours kept from being written down."""
        properties = str(self.folder / _PROPERTIES)
        return find(lambda argv: properties in argv and (_MAIN in argv or _FORMAT_MAIN in argv))

    def _save(self) -> None:
        state_file.save(self.folder / STATE_FILE, self._state.to_dict())


def _read_state(folder: Path) -> BrokerState | None:
    mend = "stop its process by hand"
    return state_file.read(folder / STATE_FILE, BrokerState.from_dict, what="broker", mend=mend)


def _check(*, port: int | None, topics: Mapping[str, int], message_bytes: int, heap_mib: int) -> None:
    if port is not None:
        if not 1 <= port <= 65535:
            raise BadInputError(f"a port is a number from 1 to 65535, not {port}")
        _check_free(port)
    for name, partitions in topics.items():
        topics_of.check_partitions(name, partitions)
    if message_bytes < _LEAST_MESSAGE_BYTES or heap_mib < _LEAST_HEAP_MIB:
        raise BadInputError(
            f"a broker takes messages of {_LEAST_MESSAGE_BYTES} bytes or more and a heap of {_LEAST_HEAP_MIB} MiB "
            f"or more, not {message_bytes} bytes and {heap_mib} MiB"
        )


def _check_free(port: int) -> None:
    why = _why_taken(port)
    if why is not None:
        raise BadInputError(
            f"a broker cannot listen on port {port} of {HOST}: {why}; name another port, "
            f"or none to get one that is free"
        )


def _why_taken(port: int) -> str | None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return None


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=_ASK_S).close()
    except OSError:
        return False
    return True


def _cluster_id(meta: Path) -> str:
    """That of the data that is there already, else a new one."""
    try:
        lines = meta.read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        # Not a hyphen first: the tool that prepares the data would take it for an option.
        return "T" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode("ascii")[1:22]
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if "cluster.id" not in found:
        raise BadInputError(f"{meta} does not say whose data this is: remove {meta.parent} or name another folder")
    return found["cluster.id"]
