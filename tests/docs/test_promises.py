"""Each promise is held by what stands beside it on the page, and what takes too long for each run is run each night."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FOLDERS = {"I": "tests/invariants", "C": "tests/cases"}
ROWS = [line for line in (ROOT / "docs" / "promises.md").read_text().splitlines() if line.startswith("| **")]
HELD_BY = sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", row.rpartition(" | ")[2])})


def path_of(name: str) -> Path:
    first, _, rest = name.partition("/")
    return ROOT / FOLDERS.get(first, first) / rest


def test_every_promise_is_held_by_something() -> None:
    assert len(ROWS) > 10
    assert [row for row in ROWS if not re.search(r"`[^`]+\.py`", row.rpartition(" | ")[2])] == []


@pytest.mark.parametrize("name", HELD_BY)
def test_what_holds_a_promise_is_there_and_run(name: str) -> None:
    path = path_of(name)
    assert path.is_file()
    nightly = (ROOT / "Makefile").read_text().partition("\nnightly:")[2].partition("\n\n")[0]
    if path.parent.name == "benchmarks":
        assert f"benchmarks.{path.stem} " in nightly or f"benchmarks/{path.name} " in nightly
    else:
        assert "def test_" in path.read_text()
