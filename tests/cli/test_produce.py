"""The command that loads a topic, as a user meets it: what it prints, and what it says when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kafka.brokers import broker
from tidewise.kafka.broker import LocalBroker

__all__ = ["broker"]
pytestmark = pytest.mark.xdist_group("spark")

Tidewise = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tidewise() -> Tidewise:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidewise.cli", "produce", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)

    return call


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--job", "ysb"), "Missing parameter: load"),
        (("--job", "nexmark", "--load", "constant rate_per_s=1", "--for", "1s"), "there is no job 'nexmark'"),
        (("--job", "ysb", "--load", "constant rate_per_s=1"), "has no end of its own: say for how long (--for 60s)"),
        (("--job", "ysb", "--load", "constant rate_per_s=1", "--for", "1"), "has no unit"),
        (("--job", "ysb", "--load", "constant rate_per_s=1", "--for", "500ms"), "a whole number of seconds"),
        (("--job", "ysb", "--load", "nowhere.csv"), "nowhere.csv"),
        (("--job", "ysb", "--load", "constant rate_per_s=1e9", "--for", "1s"), "rates_per_s must lie between"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tidewise: Tidewise, words: tuple[str, ...], sentence: str) -> None:
    ended = tidewise(*words)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.strip().splitlines()) == 1
    assert sentence in ended.stderr


def test_it_sends_and_tells_what_became_of_every_record(broker: LocalBroker, tidewise: Tidewise) -> None:
    words = ("--job", "tsw", "--brokers", broker.address, "--load", "constant rate_per_s=500", "--for", "2s")
    told = tidewise(*words, "--partitions", "2", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["due"], found["acknowledged"], found["topic_grew_by"], found["topic"]) == (1000, 1000, 1000, "tsw")
    assert found["acknowledged_late"]["p99_s"] > 0.0
    shown = tidewise(*words, "--at-once")
    assert shown.returncode == 0, shown.stderr
    assert "Acknowledged:  1,000 in" in shown.stdout
    assert "Not sent:      0" in shown.stdout
