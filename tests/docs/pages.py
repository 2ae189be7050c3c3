"""The pages of the language as what they are: text with headings, and one Python module each."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python$")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of docs/language/."""

    path: Path

    @property
    def name(self) -> str:
        """Of its module."""
        return f"language_{self.path.stem}"

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def code(self) -> str:
        """Its blocks, each on the lines where it stands on the page; so line numbers are the page's."""
        lines, inside = [], False
        for line in self.text.split("\n"):
            if line.startswith("```"):
                inside = bool(FENCE.match(line))
                line = ""
            lines.append(line if inside else "")
        return "\n".join(lines).rstrip() + "\n"

    @property
    def tests(self) -> list[str]:
        return [node.name for node in ast.parse(self.code).body if isinstance(node, ast.FunctionDef) and is_test(node)]

    @property
    def sections(self) -> dict[str, str]:
        """Text under each second heading."""
        parts = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def load(self) -> ModuleType:
        """Its code as a module that others can import."""
        module = sys.modules[self.name] = ModuleType(self.name)
        module.__file__ = str(self.path)
        exec(compile(self.code, str(self.path), "exec"), vars(module))
        return module


def is_test(node: ast.FunctionDef) -> bool:
    return node.name.startswith("test_")


PAGES = [Page(path=path) for path in sorted((ROOT / "docs" / "language").glob("*.md"))]
