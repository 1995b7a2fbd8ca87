"""A program that is followed by what a Prometheus server keeps of it."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.experiments.jobs import write_job
from tests.experiments.shipping import Place
from tidewise.core import BadInputError, PermanentError, TemporaryError
from tidewise.experiments import telemetry_ship
from tidewise.experiments.advise_terms import terms_of_job
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.telemetry_prometheus import PrometheusSource
from tidewise.experiments.telemetry_ship import Shipper

NOW_S = 1_800_000_005.0
FILE = """\
job = "clicks"
server = "{server}"
program = "2.1"
step = "10s"
past = "{past}"

[fields]
load_per_s = 'sum(rate(records_total[1m]))'
processed_rate_per_s = 'sum(rate(done_total[1m]))'
backlog_records = 0
executors = 'count(up)'
latency_p95_s = 'latency'
cores_per_executor = 2
"""
Says = Callable[[float], float | None]


class Server:
    """Answers `query_range` as Prometheus does: an expression is a function of the time."""

    def __init__(self) -> None:
        self.says: dict[str, Says] = {
            "sum(rate(records_total[1m]))": lambda at_s: at_s % 1000.0,
            "sum(rate(done_total[1m]))": lambda _: 500.0,
            "count(up)": lambda _: 4.0,
            "latency": lambda _: 1.5,
        }
        self.series = 1
        self.status = 200
        self.body: bytes | None = None
        self.asked: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                assert parts.path == "/prom/api/v1/query_range"
                asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
                outer.asked.append(asked)
                body = outer.answer(asked) if outer.body is None else outer.body
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/prom"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, asked: dict[str, str]) -> bytes:
        say = self.says[asked["query"]]
        start_s, end_s, step_s = (float(asked[name]) for name in ("start", "end", "step"))
        times_s = [start_s + step_s * index for index in range(round((end_s - start_s) / step_s) + 1)]
        assert len(times_s) <= 11_000
        found = [(at_s, say(at_s)) for at_s in times_s]
        values = [[at_s, str(value)] for at_s, value in found if value is not None]
        one = {"metric": {}, "values": values}
        result = [one] * self.series if values else []
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.http.shutdown()
    running.http.server_close()
    running.thread.join(timeout=10.0)


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


def write(folder: Path, server: Server, *, past: str = "1min", more: str = "") -> Path:
    path = folder / "clicks.toml"
    path.write_text(FILE.format(server=server.url, past=past) + more, encoding="utf-8")
    return path


def follow(path: Path, place: Place, clock: Clock, *, patience_s: float = 0.0) -> None:
    source = PrometheusSource(path, memory=path.parent / "memory", clock=clock)
    shipped = Shipper([source], place, target="place", tell=lambda _: None, once=True, patience_s=patience_s).run()
    assert shipped.problems == ()


def test_the_past_is_told_first_and_then_what_comes_each_step_once(tmp_path: Path, server: Server) -> None:
    path, place, clock = write(tmp_path, server), Place(), Clock()
    follow(path, place, clock)
    times_s = [row["at_unix_s"] - 1_800_000_000.0 for row in place.rows]
    assert times_s == [-50.0, -40.0, -30.0, -20.0, -10.0]
    assert place.numbers == sorted(place.numbers)
    clock.now_s += 20.0
    follow(path, place, clock)
    assert [row["at_unix_s"] - 1_800_000_000.0 for row in place.rows[5:]] == [0.0, 10.0]
    assert len(set(place.numbers)) == 7
    row = place.rows[0]
    assert (row["job"], row["program"], row["kind"], row["status"]) == ("clicks", "2.1", "report", "running")
    assert (row["load_per_s"], row["executors"], row["cores_per_executor"]) == (950.0, 4, 2.0)
    assert (row["latency_p95_s"], row["window_s"]) == (1.5, 10.0)
    # Nobody says anything of these.
    assert row["cpu_share"] is row["cost_per_hour"] is None
    assert (row["processed_rate_per_s"], row["backlog_records"], row["input_rate_per_s"]) == (500.0, 0.0, 950.0)


def test_who_told_nothing_the_first_time_begins_with_the_past_the_second_time(tmp_path: Path, server: Server) -> None:
    path, place, clock = write(tmp_path, server), Place(), Clock()
    known = dict(server.says)
    server.says = dict.fromkeys(known, lambda _: None)
    follow(path, place, clock)
    assert place.lines == []
    asked = len(server.asked)
    server.says = known
    follow(path, place, clock)
    assert len(place.lines) == 5
    assert len(server.asked) == 2 * asked


def test_a_long_past_is_asked_for_in_pieces(tmp_path: Path, server: Server) -> None:
    place = Place()
    follow(write(tmp_path, server, past="5h"), place, Clock())
    assert len(place.lines) == 1799
    assert len(server.asked) == 8


def test_what_is_missing_or_no_number_is_unknown_and_no_report_is_without_its_rates(
    tmp_path: Path, server: Server
) -> None:
    server.says["latency"] = lambda at_s: math.nan if at_s < 1_799_999_970.0 else None
    server.says["sum(rate(done_total[1m]))"] = lambda at_s: None if at_s == 1_799_999_980.0 else 5.0
    place = Place()
    follow(write(tmp_path, server), place, Clock())
    assert [row["latency_p95_s"] for row in place.rows] == [None] * 4
    assert [row["at_unix_s"] - 1_800_000_000.0 for row in place.rows] == [-50.0, -40.0, -30.0, -10.0]


def test_a_program_may_say_that_it_is_down(tmp_path: Path, server: Server) -> None:
    server.says["alive"] = lambda at_s: float(at_s < 1_799_999_980.0)
    place = Place()
    follow(write(tmp_path, server, more='up = "alive"\n'), place, Clock())
    assert [row["status"] for row in place.rows] == ["running"] * 3 + ["down"] * 2


def test_a_job_file_says_what_was_promised_and_what_it_costs(tmp_path: Path, server: Server) -> None:
    path = write(tmp_path, server)
    terms = terms_of_job(JobFile(write_job(tmp_path)))
    source = PrometheusSource(path, memory=tmp_path / "memory", terms=terms, clock=Clock())
    (first, *_) = (json.loads(one.to_json()) for one in source.read(10))
    assert first["promised_latency_p95_s"] == 3.0
    # Four executors of two cores and a GiB, and the driver.
    assert first["cost_per_hour"] == pytest.approx(9 * 0.04 + 5 * 0.005)


def test_an_unknown_field_is_told_with_its_line(tmp_path: Path, server: Server) -> None:
    path = write(tmp_path, server, more='latency_p59_s = "x"\n')
    with pytest.raises(BadInputError, match=r"clicks.toml, line 14: .*latency_p59_s"):
        PrometheusSource(path, memory=tmp_path)


def test_a_server_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "clicks.toml"
    path.write_text(FILE.format(server="127.0.0.1:9090", past="1h"), encoding="utf-8")
    with pytest.raises(BadInputError, match=r'line 2: .* is no server; write it like "http://HOST:9090"'):
        PrometheusSource(path, memory=tmp_path)


def read(folder: Path, server: Server) -> None:
    PrometheusSource(write(folder, server), memory=folder, clock=Clock()).read(10)


def test_an_expression_that_prometheus_refuses_is_told_with_its_line(tmp_path: Path, server: Server) -> None:
    server.status = 400
    server.body = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error: no"}).encode()
    with pytest.raises(BadInputError, match=r"clicks.toml, line 8: Prometheus refuses this expression: parse error"):
        read(tmp_path, server)


def test_an_expression_of_several_series_is_told(tmp_path: Path, server: Server) -> None:
    server.series = 2
    with pytest.raises(BadInputError, match=r"gives 2 series; make one of them, as with sum"):
        read(tmp_path, server)


@pytest.mark.parametrize("body", [b"[]", b'{"data": 1}', b'{"data": {"result": [{"values": [["x", "y"]]}]}}'])
def test_a_server_that_is_no_prometheus_is_told(tmp_path: Path, server: Server, body: bytes) -> None:
    server.body = body
    with pytest.raises(PermanentError, match="does not answer as Prometheus does"):
        read(tmp_path, server)


def test_a_wrong_address_is_told(tmp_path: Path, server: Server) -> None:
    server.status, server.body = 404, b"not here"
    with pytest.raises(BadInputError, match=r"answers 404 .*correct the address"):
        read(tmp_path, server)


def test_a_server_that_does_not_answer_is_tried_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_ship, "_POLL_S", 0.05)
    server.status, server.body = 503, b"busy"
    with pytest.raises(TemporaryError, match="does not answer: 503"):
        read(tmp_path, server)

    def recover() -> None:
        server.status, server.body = 200, None

    timer = threading.Timer(0.3, recover)
    timer.start()
    place = Place()
    follow(write(tmp_path, server), place, Clock(), patience_s=60.0)
    timer.join()
    assert len(place.lines) == 5


def test_a_server_that_is_not_there_is_told(tmp_path: Path, server: Server) -> None:
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(TemporaryError, match="does not answer"):
        read(tmp_path, server)
