"""Iterating over a set: its order differs from process to process. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from durable_celery.lints.code import Code
from durable_celery.lints.finding import Hit

KINDS = ("set", "frozenset", "builtins.set", "builtins.frozenset")
ANNOTATIONS = ("set", "frozenset", "AbstractSet", "Set", "FrozenSet", "MutableSet")
SET_METHODS = ("union", "intersection", "difference", "symmetric_difference")
ORDERED = ("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "reversed", "next")
UNORDERED = ("sorted", "set", "frozenset", "sum", "len", "any", "all", "min", "max")  # the order does not come out


def sets(code: Code) -> Iterator[Hit]:
    """``for x in some_set`` and whatever else lets its order out."""
    for node in code.nodes:
        for over in _iterated(code, node):
            if _is_set(code, over):
                yield Hit(node=over, what=ast.unparse(over)[:60])


def _iterated(code: Code, node: ast.AST) -> Iterator[ast.expr]:
    """What a node runs over in order."""
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        if not _order_is_lost(code, node):
            yield from (each.iter for each in node.generators)
    elif isinstance(node, ast.Starred):
        if not isinstance(code.source.above.get(node), ast.Set):
            yield node.value
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in ORDERED and not _order_is_lost(code, node):
            yield from node.args
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            yield node.func.value


def _order_is_lost(code: Code, node: ast.AST) -> bool:
    outer = code.source.above.get(node)
    return isinstance(outer, ast.Call) and isinstance(outer.func, ast.Name) and outer.func.id in UNORDERED


def _is_set(code: Code, node: ast.expr) -> bool:
    if isinstance(node, (ast.Set, ast.SetComp)):
        return True
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS:
            return _is_set(code, node.func.value)
        return code.is_named(node.func, *KINDS)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
        return _is_set(code, node.left) or _is_set(code, node.right)
    return isinstance(node, ast.Name) and _variable_is_set(code, node.id)


def _variable_is_set(code: Code, name: str) -> bool:
    """Whether all that is ever put into a variable is a set."""
    found: list[bool] = []
    for node in ast.walk(code.tree):
        if isinstance(node, ast.arg) and node.arg == name:
            found.append(_says_set(node.annotation))
        elif isinstance(node, ast.AnnAssign) and _is_variable(node.target, name):
            found.append(_says_set(node.annotation))
        elif isinstance(node, ast.Assign) and any(_is_variable(target, name) for target in node.targets):
            found.append(not _is_variable(node.value, name) and _is_set_expression(code, node.value, name))
        elif isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            found.append(isinstance(code.source.above.get(node), (ast.Assign, ast.AnnAssign, ast.AugAssign)))
    return bool(found) and all(found)


def _is_set_expression(code: Code, value: ast.expr, name: str) -> bool:
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return name not in names and _is_set(code, value)


def _is_variable(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _says_set(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    text = "" if annotation is None else ast.unparse(annotation)
    return text.rpartition(".")[2] in ANNOTATIONS
