"""Secrets are written where only their owner reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewise.host.private_files import create_private, write_private, write_properties


def test_only_the_owner_can_read_and_a_looser_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text(encoding="utf-8") == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    create_private(tmp_path / "one").close()
    with pytest.raises(FileExistsError):
        create_private(tmp_path / "one")


def test_properties_are_written_as_java_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "spark.properties"
    write_properties(path, {"a.b": "c:\\d e", "k=1:2 3": " x", "lines": "1\n2"})
    assert path.read_text(encoding="utf-8").splitlines() == ["a.b=c:\\\\d e", "k\\=1\\:2\\ 3=\\ x", "lines=1\\n2"]
