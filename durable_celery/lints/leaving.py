"""What goes wrong when a suspended body is left: plain code in ``finally``, handlers that hold everything. Pure.

Between turns the engine closes the body. Its ``finally`` blocks run then, up to the first thing the engine refuses
while closing: a command, or a helper of this package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from durable_celery.lints.code import Code
from durable_celery.lints.finding import Hit

HARMLESS = {
    "len", "str", "int", "float", "bool", "repr", "format", "isinstance", "issubclass", "hasattr", "getattr", "min",
    "max", "sum", "any", "all", "sorted", "list", "tuple", "dict", "set", "frozenset", "range", "zip", "enumerate",
    "round", "abs", "type",
}  # fmt: skip
HARMLESS_METHODS = {"items", "keys", "values", "get", "join", "format", "strip", "split", "startswith", "endswith"}


def plain_finally(code: Code) -> Iterator[Hit]:
    """Statements of a ``finally`` around a yield that run whenever the body is left between turns."""
    for node in code.nodes:
        if isinstance(node, ast.Try) and code.own(node) and code.yields_in(*node.body, *node.handlers):
            for statement in node.finalbody:
                yield from _plain(code, statement)
                if _stops(code, statement):
                    break


def swallowing(code: Code) -> Iterator[Hit]:
    """``except BaseException`` or a bare ``except`` around a yield, that neither raises nor returns."""
    for node in code.nodes:
        if not isinstance(node, ast.Try) or not code.own(node) or not code.yields_in(*node.body):
            continue
        for handler in node.handlers:
            leaves = any(isinstance(n, (ast.Raise, ast.Return)) for x in handler.body for n in ast.walk(x))
            if _catches_everything(code, handler) and not leaves:
                kind = "" if handler.type is None else f" {ast.unparse(handler.type)}"
                yield Hit(node=handler, what=f"except{kind}")


def _stops(code: Code, statement: ast.stmt) -> bool:
    """Whether closing ends here at the latest: something of ours stands in it that runs in any case."""
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
        return code.yields_in(statement) or any(isinstance(n, ast.Call) and _ours(code, n) for n in ast.walk(statement))
    return False


def _plain(code: Code, node: ast.AST) -> Iterator[Hit]:
    """The outermost plain code in a statement; what stands inside a yield is a command, or makes one."""
    if isinstance(node, (ast.Yield, ast.YieldFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return
    if isinstance(node, ast.Call) and not _harmless(code, node):
        yield Hit(node=node, what=f"{ast.unparse(node.func)}(...)")
        return
    if isinstance(node, (ast.Return, ast.Raise, ast.Delete)):
        yield Hit(node=node, what=ast.unparse(node)[:60])
        return
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        yield Hit(node=node, what=f"{ast.unparse(node)} = ...")
        return
    for child in ast.iter_child_nodes(node):
        yield from _plain(code, child)


def _harmless(code: Code, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in HARMLESS_METHODS:
        return True
    return _ours(code, call) or (isinstance(call.func, ast.Name) and call.func.id in HARMLESS)


def _ours(code: Code, call: ast.Call) -> bool:
    """A helper of this package, or the logger that it gave: they refuse while the body is left."""
    if any(name.startswith("durable_celery.") for name in code.names(call.func)):
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return _ours(code, owner)
    return isinstance(owner, ast.Name) and any(
        isinstance(node.value, ast.Call) and _ours(code, node.value)
        for node in ast.walk(code.tree)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == owner.id for t in node.targets)
    )


def _catches_everything(code: Code, handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or code.is_named(kind, "BaseException", "builtins.BaseException") for kind in kinds)
