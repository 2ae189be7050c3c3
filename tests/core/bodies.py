"""What tests of bodies share: errors, bodies of one gather, and how a BLOCKED decision is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from durable_celery import SignalTimeout, StepFailed, Workflow
from durable_celery.core.decision import Decision
from tests.core.driver import Driver


class Declined(Exception): ...


class DeclinedAbroad(Declined): ...


class LowFunds(Declined):
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def blocked(run: Driver) -> str:
    """What a BLOCKED decision says; it must carry nothing else."""
    decision = run.turn()
    assert decision == Decision(state="BLOCKED", failure=decision.failure, waiting=decision.waiting)
    assert decision.failure is not None
    assert decision.waiting.startswith(decision.failure.brief[:200])
    return decision.waiting


def line_of(body: Callable[..., Any], text: str) -> str:
    """``body, line N of file`` for the line of the body that holds ``text``."""
    lines, first = inspect.getsourcelines(body)
    (offset,) = (i for i, line in enumerate(lines) if text in line)
    return f"{body.__name__}, line {first + offset} of {Path(inspect.getfile(body)).name}"


def gathers(make: Any) -> Any:
    """A body of one gather; a StepFailed becomes a value that can be compared."""

    def body() -> Workflow[Any]:
        try:
            return plain((yield from make()))
        except StepFailed as error:
            return error.position, plain(error.results), plain(error.errors)

    return body


def plain(value: Any) -> Any:
    """Errors as ``!position``."""
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each) for each in value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return f"!{value.position}" if isinstance(value, (StepFailed, SignalTimeout)) else value


def fails(*positions: str) -> Any:
    """Steps at these positions fail; others give their position."""
    return lambda entry: ValueError("no luck") if entry.position in positions else entry.position
