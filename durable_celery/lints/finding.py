"""What a rule is, what it sees, and what is told of it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_celery.lints.code import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something a rule saw: ``what`` as it stands there; ``instead`` where the rule's own answer does not fit."""

    node: ast.expr | ast.stmt | ast.excepthandler
    what: str
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``number`` is that of the check's id, ``why`` what goes wrong, ``instead`` what to write."""

    number: int
    name: str
    why: str
    instead: str
    look: Callable[[Code], Iterator[Hit]]

    @property
    def id(self) -> str:
        """``durable_celery.W101``."""
        return f"durable_celery.W{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line that a rule has something to say about; ``function`` is where it stands."""

    id: str
    file: str
    line: int
    function: str
    what: str
    why: str
    instead: str
