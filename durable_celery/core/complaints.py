"""What is wrong with a body, in words that name the line and the fix."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

from durable_celery.core import scope
from durable_celery.core.commands import Command
from durable_celery.core.journal import COMPOSITES, MAP, Entry
from durable_celery.errors import NonDeterminism, UsageError

SIDE_BY_SIDE = "to run commands side by side write yield from gather(a, b)"


def unyielded(command: Command[Any]) -> UsageError:
    """A command was built and dropped, or kept until the end."""
    return UsageError(
        f"{command.describe()} was built at {command.line} and never yielded, so it did not run; "
        "write 'yield from' before it",
        line=command.line,
    )


def plain_iterable(kind: str, line: str) -> UsageError:
    """``yield from`` over a list and the like."""
    return UsageError(f"'yield from' over a {kind} at {line}: {SIDE_BY_SIDE}", line=line)


def no_command(yielded: Any, line: str) -> UsageError:
    """Something was yielded that is no command."""
    return UsageError(f"{_described(yielded)} was yielded at {line}; {_fix(yielded)}", line=line)


def returned(value: Any, workflow: str, body: Callable[..., Any]) -> UsageError | None:
    """The body returned what it should have yielded; None if it did not."""
    if inspect.isgenerator(value):
        name = value.__name__
        line = _line_naming(name, body)
        return UsageError(
            f"workflow {workflow} returned the generator {name}(...) instead of running it ({line}); "
            f"use yield from: return (yield from {name}(...))",
            line=line,
        )
    if isinstance(value, Command):
        return UsageError(
            f"workflow {workflow} returned {value.describe()}, built at {value.line}, instead of running it; "
            "write return (yield from ...)",
            line=value.line,
        )
    return None


def refuses_to_close(line: str) -> UsageError:
    """The body yields again each time it is closed."""
    return UsageError(
        f"the body cannot be left at {line}: it catches GeneratorExit and yields again; let BaseException through, "
        "catch Exception instead",
        line=line,
    )


def mismatch(
    instance_id: str, position: str, recorded: str, requested: str, sides: Mapping[str, Any]
) -> NonDeterminism:
    """The journal and the code disagree; ``sides`` are the fields of ``mismatches``."""
    return NonDeterminism(
        f"the code does not fit the journal at position {position}: recorded is {recorded}, the body now asks for "
        f"{requested} ({sides['line']}). Nothing was changed. Usual causes: a step was added, removed or reordered "
        "without patched(), or the body looks at the clock, dice, the database or a set. Deploy code that fits (it is "
        f"tried again by itself), guard the change with patched(), or repair it: skip({position!r}, result=...), "
        f"fork({position!r})",
        instance_id=instance_id,
        position=position,
        recorded=recorded,
        requested=requested,
        **sides,
    )


def words(entry: Entry | None) -> str:
    """A row of the journal in words."""
    return "nothing" if entry is None else command_words(entry.kind, entry.name, entry.members)


def command_words(kind: str, name: str, members: int) -> str:
    """A command in words: ``step shop.charge``, ``gather of 3 members``."""
    if kind == MAP:
        return f"map of {name} over {members} items"
    return f"{kind} of {members} members" if kind in COMPOSITES else f"{kind} {name}".strip()


def _described(yielded: Any) -> str:
    kind = type(yielded).__name__
    return "a generator" if inspect.isgenerator(yielded) else f"{kind} {yielded!r:.80}"


def _fix(yielded: Any) -> str:
    if inspect.isgenerator(yielded):
        name = yielded.__name__
        return f"to run the helper generator {name}(...) use yield from {name}(...)"
    if isinstance(yielded, (list, tuple, set, frozenset, dict)):
        return SIDE_BY_SIDE
    return "only commands can be yielded: a step call, sleep(...), signal.wait(...), gather(...)"


def _line_naming(name: str, body: Callable[..., Any]) -> str:
    """Where the body last names ``name``; a body that has ended stands nowhere."""
    code = getattr(inspect.unwrap(body), "__code__", None)
    if not isinstance(code, types.CodeType):
        return getattr(body, "__qualname__", repr(body))
    starts = dict(dis.findlinestarts(code))
    line = found = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if instruction.argval == name and not instruction.opname.startswith("STORE"):
            found = line
    return scope.place(code.co_name, found, code.co_filename)
