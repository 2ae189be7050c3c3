"""Whether code runs in a ``finally``. Where no error is on its way Python does not tell; the source does."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType

KEPT = 500  # functions whose source was read

Lines = tuple[int, int]  # the first and the last


def in_finally(frame: FrameType) -> bool:
    """Whether the line a frame is at belongs to a ``finally`` of its function; False where there is no source."""
    return any(first <= frame.f_lineno <= last for first, last in _finals(frame.f_code))


@lru_cache(maxsize=KEPT)
def _finals(code: CodeType) -> Sequence[Lines]:
    """The lines of each ``finally`` of a function."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):  # a file that has changed since, or was never one
        return ()
    return [lines for function in ast.walk(tree) if _is(function, code) for lines in _below(function)]


def _is(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        return False
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first == code.co_firstlineno


def _below(node: ast.AST) -> Iterator[Lines]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue  # it runs in frames of its own
        final: list[ast.stmt] = getattr(child, "finalbody", [])
        if final:
            yield final[0].lineno, final[-1].end_lineno or final[-1].lineno
        yield from _below(child)
