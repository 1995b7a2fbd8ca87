"""A TCP proxy of our own between two processes of one machine, so that a connection can be cut or delayed."""

from __future__ import annotations

import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tidewise.core import BadInputError

_HOST = "127.0.0.1"
_CHUNK_BYTES = 1024 * 1024
_CONNECT_S = 5.0
_ACCEPT_TICK_S = 0.1
_STOP_S = 5.0
MAX_CONNECTIONS = 64
"""Connections held at a time, two threads each; further ones are refused."""

_Pair = tuple[socket.socket, socket.socket]


class TcpProxy:
    """Listens on 127.0.0.1 and passes everything on to the target; safe to use from any thread."""

    def __init__(self, target_host: str, target_port: int, *, port: int = 0) -> None:
        """`port`: where to listen, 0 for any that is free."""
        self._target = (target_host, target_port)
        self._changed = threading.Condition()  # guards everything below
        self._is_cut = False
        self._is_closed = False
        self._delay_s = 0.0
        self._pairs: set[_Pair] = set()
        self._threads: set[threading.Thread] = set()
        self._listener = socket.create_server((_HOST, port))
        self._listener.settimeout(_ACCEPT_TICK_S)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)
        self._acceptor.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Drop all connections and refuse new ones until `restore`."""
        with self._changed:
            self._is_cut = True
            self._changed.notify_all()
            for pair in self._pairs:
                _shut(pair)

    def delay(self, seconds: float) -> None:
        """Hold what passes back by at least this long, in either direction, until `restore`."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            raise BadInputError(f"a connection is delayed by 0 s or more, not by {seconds} s")
        with self._changed:
            self._delay_s = seconds
            self._changed.notify_all()

    def restore(self) -> None:
        """Pass everything on, at once, what is held back included."""
        with self._changed:
            self._is_cut = False
            self._delay_s = 0.0
            self._changed.notify_all()

    def close(self) -> None:
        """Drop everything and end all threads; may be called again."""
        with self._changed:
            self._is_closed = True
        self.cut()
        self._acceptor.join(_STOP_S)
        self._listener.close()
        with self._changed:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(_STOP_S)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                caller, _ = self._listener.accept()
            except TimeoutError:
                continue
            caller.settimeout(None)
            with self._changed:
                refused = self._is_cut or len(self._threads) >= 2 * MAX_CONNECTIONS - 1
            if refused:
                _reset(caller)
            else:
                self._start(self._serve, caller)

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def body() -> None:
            try:
                work(*arguments)
            finally:
                with self._changed:
                    self._threads.discard(thread)

        thread = threading.Thread(target=body, name=f"proxy-{self.port}-connection", daemon=True)
        with self._changed:
            self._threads.add(thread)
        thread.start()
        return thread

    def _serve(self, caller: socket.socket) -> None:
        try:
            target = socket.create_connection(self._target, timeout=_CONNECT_S)
        except OSError:  # the target is not there: the caller sees what it would see without a proxy
            _reset(caller)
            return
        target.settimeout(None)
        pair = (caller, target)
        for one in pair:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            wanted = not self._is_cut  # it may have been cut while we were connecting
            if wanted:
                self._pairs.add(pair)
        if wanted:
            back = self._start(self._pass_on, target, caller, pair)
            self._pass_on(caller, target, pair)
            back.join()
            with self._changed:
                self._pairs.discard(pair)
        for one in pair:
            _reset(one) if self._is_cut else one.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket, pair: _Pair) -> None:
        try:
            while chunk := source.recv(_CHUNK_BYTES):
                self._hold_back()
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)  # the other direction may go on
        except OSError:  # one end is gone, so the other has nobody to speak to
            _shut(pair)

    def _hold_back(self) -> None:
        since_s = time.monotonic()
        with self._changed:
            while not self._is_cut and (left_s := since_s + self._delay_s - time.monotonic()) > 0.0:
                self._changed.wait(left_s)
            if self._is_cut:
                raise ConnectionResetError


def _shut(pair: _Pair) -> None:
    """Wake whoever reads or writes here; the thread that serves the pair closes it."""
    for one in pair:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is shut already
            continue


def _reset(connection: socket.socket) -> None:
    """Close so that the other side sees an error, not an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
