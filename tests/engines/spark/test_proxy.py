"""A connection through the proxy can be cut, delayed and restored."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tidewise.core import BadInputError
from tidewise.engines.spark import proxy as proxy_module
from tidewise.engines.spark.proxy import TcpProxy
from tidewise.host.processes import wait_until


class Echo(socketserver.BaseRequestHandler):
    """Answers with what it is told, until it is told no more; then says goodbye."""

    def handle(self) -> None:
        while told := self.request.recv(65536):
            self.request.sendall(told)
        self.request.sendall(b"bye")


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with TcpProxy("127.0.0.1", server.server_address[1]) as between:
            yield between
        assert not [one for one in threading.enumerate() if one.name.startswith(f"proxy-{between.port}")]
        server.shutdown()
        thread.join()


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ask(connection: socket.socket, word: bytes = b"hello") -> bytes:
    connection.sendall(word)
    answer = b""
    while len(answer) < len(word):
        told = connection.recv(65536)
        if not told:
            raise ConnectionResetError
        answer += told
    return answer


def test_everything_passes_both_ways(proxy: TcpProxy) -> None:
    much = bytes(range(256)) * 8000
    with connect(proxy) as one, connect(proxy) as other:
        assert ask(one) == b"hello"
        other.settimeout(20)
        sender = threading.Thread(target=other.sendall, args=(much,))
        sender.start()
        answer = b""
        while len(answer) < len(much):
            answer += other.recv(65536)
        sender.join()
        assert answer == much


def test_one_end_may_stop_speaking_and_still_listen(proxy: TcpProxy) -> None:
    with connect(proxy) as one:
        one.shutdown(socket.SHUT_WR)
        assert one.recv(10) == b"bye"
        assert one.recv(10) == b""


def test_a_cut_drops_and_refuses_until_restored(proxy: TcpProxy) -> None:
    with connect(proxy) as one:
        assert ask(one) == b"hello"
        proxy.cut()
        with pytest.raises(OSError):  # noqa: PT011 - reset, broken pipe or an end: which one is up to the system
            ask(one)
    with pytest.raises(OSError), connect(proxy) as two:  # noqa: PT011 - the same
        ask(two)
    proxy.restore()
    with connect(proxy) as three:
        assert ask(three) == b"hello"


def test_a_delay_holds_each_way_back(proxy: TcpProxy) -> None:
    with connect(proxy) as one:
        ask(one)
        proxy.delay(0.2)
        since_s = time.monotonic()
        assert ask(one) == b"hello"
        assert time.monotonic() - since_s >= 0.4
        proxy.delay(60)
        threading.Timer(0.2, proxy.restore).start()
        assert ask(one) == b"hello", "what is held back passes when it is restored"


def test_closing_does_not_wait_for_what_is_held_back(proxy: TcpProxy) -> None:
    with connect(proxy) as one:
        ask(one)
        proxy.delay(60)
        one.sendall(b"never")
        since_s = time.monotonic()
        proxy.close()
        proxy.close()
        assert time.monotonic() - since_s < 5
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset
        connect(proxy)


def test_connections_are_bounded(proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_module, "MAX_CONNECTIONS", 1)
    with connect(proxy) as one:
        ask(one)
        with pytest.raises(OSError), connect(proxy) as two:  # noqa: PT011 - reset or an end
            ask(two)

    def again() -> bool:
        try:
            with connect(proxy) as three:
                return ask(three) == b"hello"
        except OSError:
            return False

    assert wait_until(again, deadline_s=10)


def test_a_target_that_is_not_there_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with TcpProxy("127.0.0.1", port) as proxy, pytest.raises(OSError), connect(proxy) as one:  # noqa: PT011 - reset
        ask(one)


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_delay_is_a_time(proxy: TcpProxy, wrong: float) -> None:
    with pytest.raises(BadInputError, match="0 s or more"):
        proxy.delay(wrong)
