from __future__ import annotations

from pathlib import Path

import pytest

from tidewise.host.cache import cache_folder


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEWISE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "tidewise"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/tidewise")
    monkeypatch.setenv("TIDEWISE_CACHE", "/t")
    assert cache_folder() == Path("/t")
