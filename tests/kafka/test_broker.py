"""A real broker on this machine: it keeps what it was given over stops and crashes, and nothing of it is left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.brokers import processes_of
from tidewise.core import BadInputError, PermanentError
from tidewise.host.daemons import free_ports
from tidewise.kafka import jars, topics
from tidewise.kafka.broker import STATE_FILE, BrokerState, LocalBroker
from tidewise.kafka.client import quiet_settings

pytestmark = pytest.mark.xdist_group("jobs")
LONG_S = 60.0


def send(broker: LocalBroker, topic: str, *values: bytes) -> None:
    producer = Producer(quiet_settings(broker.address))
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(LONG_S) == 0


def read(broker: LocalBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(quiet_settings(broker.address) | {"group.id": "readers"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = [message.value() for message in consumer.consume(count, timeout=LONG_S)]
    finally:
        consumer.close()
    return [value for value in values if value is not None]


def test_a_broker_answers_when_it_is_up_and_another_process_finds_it(broker: LocalBroker) -> None:
    topics.create(broker.address, "first", 3)
    program = (
        "import sys; from pathlib import Path; from tidewise.kafka.broker import LocalBroker\n"
        "from tidewise.kafka import topics\n"
        "found = LocalBroker.find(Path(sys.argv[1]))\n"
        "print(found.is_running, found.address, topics.describe(found.address)['first'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, broker.folder], capture_output=True, text=True, timeout=LONG_S, check=True
    )
    assert told.stdout == f"True {broker.address} 3\n"
    assert told.stderr == ""
    assert broker.address.startswith("127.0.0.1:")
    assert processes_of(broker.folder) == [broker.process]
    with pytest.raises(BadInputError, match=r"a broker runs in .* already: .*tidewise kafka down --folder"):
        LocalBroker.up(broker.folder)


def test_it_listens_on_this_machine_only(broker: LocalBroker) -> None:
    listening = {line.split()[1] for line in _tcp_lines() if line.split()[3] == "0A"}
    inodes = _socket_inodes(broker.process.pid)
    own = [line.split()[1] for line in _tcp_lines() if line.split()[3] == "0A" and line.split()[9] in inodes]
    assert len(own) == 2, listening
    assert all(place.partition(":")[0] in {"0100007F", "0000000000000000FFFF00000100007F"} for place in own)


def test_it_comes_back_with_its_data_on_its_port_after_a_stop_and_after_a_crash(broker: LocalBroker) -> None:
    topics.create(broker.address, "kept", 2)
    send(broker, "kept", b"one", b"two")
    address, first = broker.address, broker.process
    broker.stop()
    broker.stop()  # again, and nothing happens
    assert not broker.is_running
    assert not first.is_alive()
    assert broker.address == address
    other = LocalBroker.find(broker.folder)
    assert other is not None
    other.start()
    broker.start()  # runs already, started by somebody else
    assert broker.process == other.process != first
    assert broker.address == address
    assert read(broker, "kept", 2) == [b"one", b"two"]
    send(broker, "kept", b"three")
    broker.stop(kill=True)
    assert not broker.is_running
    broker.start()
    assert broker.address == address
    assert read(broker, "kept", 3) == [b"one", b"two", b"three"]
    reach = topics.ends(address, "kept")
    assert {number: (one.first, one.following) for number, one in reach.items()} == {0: (0, 3), 1: (0, 0)}
    assert sum(one.records for one in reach.values()) == 3


def test_topics_are_made_once_and_removed(broker: LocalBroker) -> None:
    address = broker.address
    topics.create(address, "clicks", 2)
    topics.create(address, "clicks", 2)
    with pytest.raises(BadInputError, match=r"'clicks' has 2 partitions already, not 5: ask for 2"):
        topics.create(address, "clicks", 5)
    assert topics.describe(address)["clicks"] == 2
    for call in (topics.ends, topics.delete):
        with pytest.raises(BadInputError, match=rf"no topic 'click' at {address}; did you mean 'clicks'\?"):
            call(address, "click")
    for wrong in ("", "a b", "ä" * 10, "x" * 300):
        with pytest.raises(BadInputError, match="cannot be the name of a topic"):
            topics.create(address, wrong, 1)
    topics.delete(address, "clicks")
    assert "clicks" not in topics.describe(address)
    topics.create(address, "clicks", 5)


def test_a_topic_that_nobody_made_is_not_made_by_asking_for_it(broker: LocalBroker) -> None:
    client = Producer(quiet_settings(broker.address) | {"message.timeout.ms": 3000})
    failures: list[str] = []
    client.produce("misspelt", b"x", on_delivery=lambda error, _: failures.append(str(error)))
    client.flush(LONG_S)
    assert len(failures) == 1
    assert failures != ["None"]
    assert "misspelt" not in topics.describe(broker.address)


def test_a_fixed_port_topics_and_the_data_of_an_earlier_broker(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    broker = LocalBroker.up(tmp_path / "own", port=port, topics={"a": 1, "b": 2}, message_bytes=4_000_000)
    try:
        assert broker.address == f"127.0.0.1:{port}"
        assert topics.describe(broker.address) == {"a": 1, "b": 2}
        client = Producer(quiet_settings(broker.address) | {"message.max.bytes": 4_000_000})
        client.produce("a", bytes(2_000_000), partition=0)
        assert client.flush(LONG_S) == 0
        broker.process.signal(signal.SIGSTOP)
        broker.down()  # ends a frozen one, too
        assert processes_of(tmp_path) == []
        with pytest.raises(BadInputError, match="was taken down: start one there"):
            broker.start()
        broker = LocalBroker.up(tmp_path / "own", topics={"a": 1})
        assert topics.describe(broker.address) == {"a": 1, "b": 2}
        assert topics.ends(broker.address, "a")[0].following == 1
    finally:
        broker.down()
    assert processes_of(tmp_path) == []


def test_a_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match=rf"cannot listen on port {port} of 127\.0\.0\.1: .*name another port"):
            LocalBroker.up(tmp_path / "x", port=port)
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with pytest.raises(BadInputError, match="from 1 to 65535, not 70000"):
        LocalBroker.up(folder, port=70000)
    with pytest.raises(BadInputError, match="1 partition or more, not 0: correct that of 'a'"):
        LocalBroker.up(folder, topics={"a": 0})
    with pytest.raises(BadInputError, match="not 10 bytes"):
        LocalBroker.up(folder, message_bytes=10)
    with pytest.raises(BadInputError, match="and 1 MiB"):
        LocalBroker.up(folder, heap_mib=1)
    with pytest.raises(BadInputError, match="without a comma"):
        LocalBroker.up(tmp_path / "a,b")
    (tmp_path / "file").touch()
    with pytest.raises(BadInputError, match="cannot be kept in"):
        LocalBroker.up(tmp_path / "file")
    assert not folder.exists()


def test_a_broker_that_cannot_start_tells_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "cache" / f"broker-{jars.BROKER.version}" / "by-hand"
    empty.mkdir(parents=True)
    (empty / "nothing.jar").touch()
    monkeypatch.setenv("TIDEWISE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(PermanentError, match=r"cannot prepare .*ClassNotFoundException.*format\.log"):
        LocalBroker.up(tmp_path / "x")
    data = tmp_path / "y" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=TTTTTTTTTTTTTTTTTTTTTA\n", encoding="utf-8")
    with pytest.raises(PermanentError, match=r"ended as soon as it was started: .*ClassNotFoundException.*broker\.log"):
        LocalBroker.up(tmp_path / "y")
    assert processes_of(tmp_path) == []
    assert LocalBroker.find(tmp_path / "x") is LocalBroker.find(tmp_path / "y") is None
    (data / "meta.properties").write_text("", encoding="utf-8")
    with pytest.raises(BadInputError, match="does not say whose data this is"):
        LocalBroker.up(tmp_path / "y")


def test_a_state_that_is_none_is_told(tmp_path: Path, broker: LocalBroker) -> None:
    assert LocalBroker.find(tmp_path) is None
    good = json.loads((broker.folder / STATE_FILE).read_text(encoding="utf-8"))
    assert BrokerState.from_dict(good).to_dict() == good
    for text in ("", "[]", "{}", "\ud800", json.dumps(good | {"format": 99}), json.dumps(good | {"daemon": {}})):
        (tmp_path / STATE_FILE).write_text(text, encoding="utf-8", errors="surrogatepass")
        with pytest.raises(BadInputError, match="not the state of a broker of this version"):
            LocalBroker.find(tmp_path)


def _tcp_lines() -> list[str]:
    files = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    return [line for file in files if file.exists() for line in file.read_text(encoding="ascii").splitlines()[1:]]


def _socket_inodes(pid: int) -> set[str]:
    links = (one.readlink().name for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink())
    return {name.removeprefix("socket:[").removesuffix("]") for name in links if name.startswith("socket:[")}
