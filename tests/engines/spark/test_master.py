"""What is asked of a Spark master, against one that answers as the real one does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidewise.core import BadInputError, InvalidValueError, TemporaryError
from tidewise.engines.spark import master as master_module
from tidewise.engines.spark.master import Capacity, ExecutorProcess, StandaloneMaster, WorkerCapacity, fetch_json

APP = "app-20261115154625-0000"


class Interface(ThreadingHTTPServer):
    """A web interface whose answers a test can set: of the master at /json/, of workers at /N/json/."""

    answers: dict[str, object]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Interface)
        answer = self.server.answers.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        if answer is not None:
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the server asks for
        """Nobody reads it."""


@pytest.fixture
def interface() -> Iterator[Interface]:
    with Interface(("127.0.0.1", 0), Page) as server:
        server.answers = {}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        set_state(server)
        yield server
        server.shutdown()
        thread.join()


def worker(server: Interface, number: int, *, state: str = "ALIVE", cores: int = 4, memory: int = 4096) -> object:
    return {
        "id": f"worker-{number}",
        "host": "127.0.0.1",
        "port": 7000 + number,
        "webuiaddress": f"{server.url}/{number}",
        "cores": 8,
        "coresused": 8 - cores,
        "coresfree": cores,
        "memory": 8192,
        "memoryused": 8192 - memory,
        "memoryfree": memory,
        "state": state,
    }


def set_state(server: Interface, *, url: str = "spark://127.0.0.1:7077", status: str = "ALIVE", **more: object) -> None:
    state: dict[str, object] = {
        "url": url,
        "workers": [worker(server, 1), worker(server, 2, cores=2), worker(server, 3, state="DEAD")],
        "activeapps": [{"id": APP, "state": "RUNNING"}],
        "completedapps": [],
        "status": status,
    }
    server.answers["/json/"] = state | more
    for number in (1, 2, 3):
        server.answers[f"/{number}/json/"] = {"executors": [], "finishedexecutors": []}


def master_of(server: Interface) -> StandaloneMaster:
    return StandaloneMaster("spark://127.0.0.1:7077", server.url)


def test_capacity_counts_living_workers(interface: Interface) -> None:
    capacity = master_of(interface).capacity()
    assert capacity is not None
    assert [one.port for one in capacity.workers] == [7001, 7002]
    assert (capacity.cores_total, capacity.cores_free) == (16, 6)
    assert (capacity.memory_mib_total, capacity.memory_mib_free) == (16384, 8192)
    assert master_of(interface).blind_spot() is None


@pytest.mark.parametrize(
    ("count", "slots", "memory_mib", "fits"),
    [
        (6, 1, 512, True),
        (7, 1, 512, False),  # six slots
        (3, 2, 512, True),
        (2, 3, 512, False),  # 4 + 2 slots are 6, but only the first worker has three
        (2, 1, 4096, True),
        (2, 1, 4097, False),  # each worker has 4096 MiB
        (1, 5, 512, False),
    ],
)
def test_executors_fit_worker_by_worker(
    interface: Interface, count: int, slots: int, memory_mib: int, fits: bool
) -> None:
    assert master_of(interface).fits(count=count, slots=slots, memory_mib=memory_mib) is fits


def test_counts_below_one_are_refused() -> None:
    row = WorkerCapacity(worker_id="w", port=1, cores_total=1, cores_free=1, memory_mib_total=1, memory_mib_free=1)
    with pytest.raises(InvalidValueError, match="1 or more, not 0 of 1 slots"):
        Capacity(workers=(row,)).fits(count=0, slots=1, memory_mib=1)


def test_an_application_is_gone_only_when_its_executors_are(interface: Interface) -> None:
    master = master_of(interface)
    assert master.is_gone(APP) is False
    set_state(interface, activeapps=[])
    interface.answers["/2/json/"] = {"executors": [{"id": 4, "appid": APP}, {"id": 1, "appid": "app-other"}]}
    assert master.is_gone(APP) is False
    assert master.executor_processes(APP) == (ExecutorProcess(executor_id="4", identity=None),)
    interface.answers["/2/json/"] = {"executors": []}
    assert master.is_gone(APP) is True
    assert master.executor_processes(APP) == ()


def test_a_silent_worker_makes_the_end_unknown(interface: Interface) -> None:
    set_state(interface, activeapps=[])
    del interface.answers["/3/json/"]
    assert master_of(interface).is_gone(APP) is None
    interface.answers["/1/json/"] = {"executors": [{"id": 0, "appid": APP}]}
    assert master_of(interface).is_gone(APP) is False


@pytest.mark.parametrize("answer", [None, b"<html>", b"[1]", b"\xff"])
def test_without_the_interface_all_is_unknown_and_said(interface: Interface, answer: bytes | None) -> None:
    interface.answers = {} if answer is None else {"/json/": answer}
    master = master_of(interface)
    assert master.capacity() is None
    assert master.fits(count=1, slots=1, memory_mib=1) is None
    assert master.is_gone(APP) is None
    assert master.executor_processes(APP) == ()
    assert f"does not answer at {interface.url}" in str(master.blind_spot())


def test_a_standby_master_is_not_asked(interface: Interface) -> None:
    set_state(interface, status="STANDBY")
    assert master_of(interface).capacity() is None


def test_the_usual_port_is_believed_only_of_the_same_master(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_module, "_USUAL_UI_PORT", interface.server_address[1])
    assert StandaloneMaster("spark://127.0.0.1:7077").capacity() is not None
    assert StandaloneMaster("spark://127.0.0.1:7078").capacity() is None
    assert StandaloneMaster("spark://127.0.0.1:7078,127.0.0.1:7077").capacity() is not None


def test_a_master_that_listens_passes_and_one_that_does_not_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        StandaloneMaster(f"spark://127.0.0.1:{port}").check()
        StandaloneMaster(f"spark://127.0.0.1:1,127.0.0.1:{port}").check()
    since_s = time.monotonic()
    with pytest.raises(TemporaryError, match=rf"no Spark master answers at spark://127\.0\.0\.1:{port} \(.*refused"):
        StandaloneMaster(f"spark://127.0.0.1:{port}").check()
    assert time.monotonic() - since_s < 6


@pytest.mark.parametrize("wrong", ["local[2]", "yarn", "spark://host", "spark://host:port", "spark://h:1/x", ""])
def test_another_kind_of_master_is_refused(wrong: str) -> None:
    with pytest.raises(BadInputError, match="spark://HOST:PORT"):
        StandaloneMaster(wrong)


def test_wrong_ports_and_interfaces_are_refused() -> None:
    with pytest.raises(BadInputError, match="between 1 and 65535"):
        StandaloneMaster("spark://host:70000")
    with pytest.raises(BadInputError, match="http://HOST:PORT"):
        StandaloneMaster("spark://host:7077", "host:8080")


def test_a_page_without_a_host_is_not_fetched() -> None:
    assert fetch_json("/json/") is None
