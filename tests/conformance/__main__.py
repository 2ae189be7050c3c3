"""``python -m tests.conformance``: the checklist, made of the names of the tests."""

from __future__ import annotations

import ast
from pathlib import Path


def behaviours() -> dict[str, list[str]]:
    """Subject to behaviours, in the order of the files; each in words."""
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        names = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        found[_words(file.stem)] = [_words(name) for name in names if name.startswith("test_")]
    return found


def _words(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    for subject, lines in behaviours().items():
        print(f"{subject} ({len(lines)})", *(f"  - {line}" for line in lines), sep="\n")
