"""The page of the three processes shows the example's own code, and hand-made code that is Python at least."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "processes.md").read_text()
INCLUDES = re.findall(r"^```\{literalinclude\} (\S+)\n((?::.+\n)*)```$", PAGE, re.MULTILINE)
BY_HAND = re.findall(r"^### By hand\n\n```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def names(tree: ast.AST, before: str = "") -> set[str]:
    """Of its functions and classes, dotted."""
    found = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found |= {before + node.name, *names(node, f"{before}{node.name}.")}
    return found


def test_it_shows_all_three_from_the_example() -> None:
    shown = {options.split("pyobject: ")[1].split("\n")[0] for _, options in INCLUDES if "pyobject: " in options}
    assert {"deliver_order", "decide", "purchase"} <= shown
    assert len(BY_HAND) == 3


@pytest.mark.parametrize(("path", "options"), INCLUDES)
def test_what_it_includes_is_there(path: str, options: str) -> None:
    source = (ROOT / "docs" / path).read_text()
    named = re.findall(r":pyobject: (\S+)", options)
    assert set(named) <= names(ast.parse(source))
    assert all(start in source for start in re.findall(r':start-at: "(.+)"', options))
    assert named or ":start-at:" in options


@pytest.mark.parametrize("code", BY_HAND)
def test_the_hand_made_code_is_python(code: str) -> None:
    assert names(ast.parse(code))
