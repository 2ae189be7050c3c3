"""Reading a body and the functions of its package that it names, and asking each rule. Pure but for reading files."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from durable_celery.lints.code import Code, Source, code_of
from durable_celery.lints.finding import Finding, Hit, Rule
from durable_celery.lints.rules import RULES

FUNCTIONS = 200  # of one body, as a fingerprint follows them
OURS = "durable_celery"


def findings(body: Callable[..., Any], sources: dict[str, Source | None] | None = None) -> Sequence[Finding]:
    """Every finding in a body and in the plain functions of its package that it names, in order of file and line.

    What has no source is left out. ``sources`` keeps the files that were read, for who asks about many bodies.
    """
    found = {
        finding: None
        for code in followed(body, {} if sources is None else sources)
        for rule in RULES
        for finding in _told(rule, code)
    }
    return sorted(found, key=lambda finding: (finding.file, finding.line, finding.id))


def followed(body: Callable[..., Any], sources: dict[str, Source | None]) -> Iterator[Code]:
    """The body and the plain functions of its package that it and they name; not steps, nor what is recorded once."""
    function: Any = inspect.unwrap(body)
    todo: list[Any] = [getattr(function, "__func__", function)]  # of a method its function
    package = _package(todo[0])
    seen: set[int] = set()
    while todo and len(seen) < FUNCTIONS:
        function = todo.pop(0)
        if not isinstance(function, types.FunctionType) or id(function) in seen or _package(function) != package:
            continue
        seen.add(id(function))
        code = code_of(function, sources)
        if code is not None:
            yield code
            todo += _named(code)


def _named(code: Code) -> list[Any]:
    values = [code.value(node) for node in code.nodes if isinstance(node, (ast.Name, ast.Attribute))]
    return [inspect.unwrap(value) for value in values if isinstance(value, types.FunctionType)]


def _package(function: Any) -> str:
    package = str(getattr(function, "__module__", "") or "").partition(".")[0]
    return package if package != OURS else ""


def _told(rule: Rule, code: Code) -> Iterator[Finding]:
    return (_finding(rule, code, hit) for hit in rule.look(code) if not code.is_silenced(hit.node))


def _finding(rule: Rule, code: Code, hit: Hit) -> Finding:
    return Finding(
        id=rule.id, file=code.source.file, line=hit.node.lineno, function=code.name, what=hit.what, why=rule.why,
        instead=hit.instead or rule.instead,
    )  # fmt: skip
