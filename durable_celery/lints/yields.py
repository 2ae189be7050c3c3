"""What is yielded: waits that nobody would miss, and lists where ``gather`` is meant. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from durable_celery.lints.code import Code
from durable_celery.lints.finding import Hit

LISTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
OURS = "durable_celery"


def endless_waits(code: Code) -> Iterator[Hit]:
    """A wait for a signal or a condition without a time-out; a race bounds what runs in it."""
    for call in code.calls():
        if _in_a_race(code, call) or any(keyword.arg is None for keyword in call.keywords):
            continue
        if _is_signal_wait(code, call) and not _given(call, 0, "timeout") and not _given(call, 99, "warn_after"):
            yield Hit(node=call, what=f"{ast.unparse(call.func)}()")
        elif _is_ours(code, call.func, "wait_until") and not _given(call, 1, "timeout"):
            yield Hit(node=call, what="wait_until(...)", instead="write wait_until(..., timeout=...)")


def lists(code: Code) -> Iterator[Hit]:
    """``yield from [a, b]`` and ``yield [a, b]``."""
    for node in code.nodes:
        if isinstance(node, (ast.Yield, ast.YieldFrom)) and code.own(node) and isinstance(node.value, LISTS):
            word = "yield from" if isinstance(node, ast.YieldFrom) else "yield"
            yield Hit(node=node, what=f"{word} {ast.unparse(node.value)[:60]}")


def _is_signal_wait(code: Code, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "wait":
        return False
    owner = call.func.value
    if isinstance(owner, ast.Call):
        return _is_ours(code, owner.func, "Signal")
    kind = type(code.value(owner))
    return kind.__name__ == "Signal" and kind.__module__.partition(".")[0] == OURS


def _is_ours(code: Code, node: ast.AST, name: str) -> bool:
    return any(n.partition(".")[0] == OURS and n.rpartition(".")[2] == name for n in code.names(node))


def _in_a_race(code: Code, call: ast.Call) -> bool:
    return any(isinstance(o, ast.Call) and _is_ours(code, o.func, "race") for o in code.source.around(call))


def _given(call: ast.Call, place: int, name: str) -> bool:
    """Whether the argument is given, and is not plainly None."""
    values = [keyword.value for keyword in call.keywords if keyword.arg == name] + call.args[place : place + 1]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in values)
