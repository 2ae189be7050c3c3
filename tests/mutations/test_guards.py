"""The table of guards keeps up with the code: `python -m tests.mutations` takes each of them away, by night."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.guard import Guard, Moved, without
from tests.mutations.guards import GUARDS
from tests.mutations.scratch import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_each_guard_stands_where_the_table_says_and_the_tests_that_notice_are_there(guard: Guard) -> None:
    assert without(guard, ROOT) != (ROOT / guard.path).read_text(encoding="utf-8")
    for test in guard.noticed_by:
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8"), test


def test_no_two_guards_have_one_name() -> None:
    assert len({guard.name for guard in GUARDS}) == len(GUARDS)


@pytest.mark.parametrize("text", ["", "held = 1\nheld = 1\n"])
def test_a_guard_that_is_not_there_exactly_once_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "code.py").write_text(text)
    guard = Guard(name="a guard", path="code.py", old="held = 1\n", new="", noticed_by=())
    with pytest.raises(Moved, match=r"guard 'a guard': its text is found [02] times in code\.py, expected once"):
        without(guard, tmp_path)
