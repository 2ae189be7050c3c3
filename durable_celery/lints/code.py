"""The source of one function: its tree, and what the names in it stand for. Pure but for reading the file."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import resolve_name
from typing import Any, TypeAlias

Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

SILENCE = "# durable: ok"
RECORDED = "durable_celery.side_effect"  # what it calls is recorded, so it may do what it likes
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file: its lines, its tree, and what stands directly around each node."""

    file: str
    lines: Sequence[str]
    tree: ast.Module
    above: Mapping[ast.AST, ast.AST]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands around a node, from the inside out."""
        while (outer := self.above.get(node)) is not None:
            yield outer
            node = outer


def read_source(file: str) -> Source | None:
    """The file, if it is there and is Python."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return Source(file=file, lines=lines, tree=tree, above=above) if lines else None


class Code:
    """A function of the user's with its source."""

    def __init__(self, function: types.FunctionType, source: Source, tree: Scope) -> None:
        self.function = function
        self.source = source
        self.tree = tree

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.function.__name__

    # -- its nodes -----------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Every node that runs in the body: not its decorators, nor what ``side_effect`` calls."""
        body = [self.tree.body] if isinstance(self.tree, ast.Lambda) else self.tree.body
        found: list[ast.AST] = []
        todo: list[ast.AST] = list(reversed(body))
        recorded = self._recorded_names()
        while todo:
            node = todo.pop()
            if isinstance(node, ast.FunctionDef) and (node.name in recorded or node.decorator_list):
                continue
            found.append(node)
            if isinstance(node, ast.Call) and self.is_named(node.func, RECORDED, "durable_celery.replayed.side_effect"):
                continue
            todo += reversed(list(ast.iter_child_nodes(node)))
        return found

    def _recorded_names(self) -> set[str]:
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        recorded = (c for c in calls if self.is_named(c.func, RECORDED, "durable_celery.replayed.side_effect"))
        return {argument.id for call in recorded for argument in call.args if isinstance(argument, ast.Name)}

    def calls(self) -> Iterator[ast.Call]:
        """Every call in the body."""
        return (node for node in self.nodes if isinstance(node, ast.Call))

    def own(self, node: ast.AST) -> bool:
        """Whether the node belongs to the function itself, and to none that is nested in it."""
        scopes = (o for o in self.source.around(node) if isinstance(o, Scope))
        return next(scopes, None) is self.tree

    def yields_in(self, *nodes: ast.AST) -> bool:
        """Whether the function itself yields somewhere in these."""
        return any(isinstance(n, (ast.Yield, ast.YieldFrom)) and self.own(n) for x in nodes for n in ast.walk(x))

    def is_silenced(self, node: ast.expr | ast.stmt | ast.excepthandler) -> bool:
        """Whether one of the lines of an expression, or the first of a statement, says that it is fine."""
        last = (node.end_lineno or node.lineno) if isinstance(node, ast.expr) else node.lineno
        return any(SILENCE in line for line in self.source.lines[node.lineno - 1 : last])

    # -- its names -----------------------------------------------------------------------------------------------------

    def is_named(self, node: ast.AST, *names: str) -> bool:
        """Whether an expression stands for one of these dotted names, whatever it is called here."""
        return any(name in names for name in self.names(node))

    def names(self, node: ast.AST) -> tuple[str, ...]:
        """The dotted names an expression stands for, by the imports and by what is there; none for a local variable."""
        root, rest = _parts(node)
        if root is None or root in self._locals:
            return ()
        if root in self._imports:
            return tuple(dict.fromkeys([self._imports[root] + rest, *self._by_value(root, rest)]))
        return self._by_value(root, rest)

    def value(self, node: ast.AST) -> Any:
        """What a name, or an attribute of a module, is in this process; None if that cannot be said."""
        root, rest = _parts(node)
        if root is None or root in self._locals:
            return None
        value = self._lookup(root)
        for part in rest.split(".")[1:]:
            if not isinstance(value, types.ModuleType):
                return None
            value = vars(value).get(part)
        return None if value is _MISSING else value

    def _by_value(self, root: str, rest: str) -> tuple[str, ...]:
        value = self._lookup(root)
        if value is _MISSING:
            return (root + rest,) if hasattr(builtins, root) else ()
        if isinstance(value, types.ModuleType):
            return (value.__name__ + rest,)
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) and value.__module__:
            return (f"{value.__module__}.{value.__qualname__}{rest}",)
        return ()

    def _lookup(self, root: str) -> Any:
        if root in self._enclosed:
            return self._enclosed[root]
        return self.function.__globals__.get(root, _MISSING)

    @cached_property
    def _enclosed(self) -> Mapping[str, Any]:
        return inspect.getclosurevars(self.function).nonlocals

    @cached_property
    def _locals(self) -> set[str]:
        """Names that are variables of the function, of those nested in it or around it."""
        names = {node.arg for node in ast.walk(self.tree) if isinstance(node, ast.arg)}
        names |= {n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return names | (set(self.function.__code__.co_freevars) - set(self._enclosed))

    @cached_property
    def _imports(self) -> Mapping[str, str]:
        """What each imported name stands for: those of the module, of the functions around this one, and its own."""
        own = {self.tree, *ast.walk(self.tree), *self.source.around(self.tree)}
        found: dict[str, str] = {}
        for node in ast.walk(self.source.tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                scopes = [outer for outer in self.source.around(node) if isinstance(outer, Scope)]
                if all(scope in own for scope in scopes):
                    found |= self._imported(node)
        return found

    def _imported(self, node: ast.Import | ast.ImportFrom) -> dict[str, str]:
        if isinstance(node, ast.Import):
            return {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                    for a in node.names}  # fmt: skip
        module = node.module or ""
        if node.level:
            try:
                module = resolve_name("." * node.level + module, self.function.__globals__.get("__package__") or "")
            except (ImportError, ValueError):
                return {}
        return {a.asname or a.name: f"{module}.{a.name}" for a in node.names if a.name != "*"}


def code_of(function: types.FunctionType, sources: dict[str, Source | None]) -> Code | None:
    """The source of a function; None where there is none that fits. ``sources`` keeps what was read."""
    file = function.__code__.co_filename
    if file not in sources:
        sources[file] = read_source(file)
    source = sources[file]
    if source is None:
        return None
    first = function.__code__.co_firstlineno
    fitting = [n for n in ast.walk(source.tree) if isinstance(n, Scope) and _fits(n, function.__name__, first)]
    return Code(function, source, fitting[0]) if len(fitting) == 1 else None


def _fits(node: Scope, name: str, first: int) -> bool:
    if isinstance(node, ast.Lambda):
        return node.lineno == first and name == "<lambda>"
    return first == min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _parts(node: ast.AST) -> tuple[str | None, str]:
    """``a.b.c`` as ("a", ".b.c"); (None, "") of anything but names and attributes."""
    rest = ""
    while isinstance(node, ast.Attribute):
        rest = f".{node.attr}{rest}"
        node = node.value
    return (node.id, rest) if isinstance(node, ast.Name) else (None, "")
