"""The page about Nexmark tells of each query what the registry does."""

from __future__ import annotations

import pytest

from tests.jobs.pages import PAGES, tables
from tidewise.jobs.nexmark.queries import QUERIES

PAGE = PAGES / "nexmark.md"


@pytest.mark.parametrize("told", tables(QUERIES))
def test_a_table_of_the_page_is_as_the_registry_has_it(told: str) -> None:
    right = tables(QUERIES)[told]
    assert right in PAGE.read_text(encoding="utf-8"), f"put this table into {PAGE.name}:\n{right}"
