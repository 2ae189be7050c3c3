"""Steps, existing tasks and child workflows that do what a test says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from durable_celery import runtime
from durable_celery.core import scope
from durable_celery.errors import BadValue, UsageError
from durable_celery.registry import registry
from durable_celery.steps import Step
from durable_celery.workflows import WorkflowDefinition


class Mock:
    """What stands in for a step. ``calls`` are those so far, each attempt one, as ``unittest.mock.call`` values.

    ``assert durable.mock(charge).calls == [call(7, amount=Decimal("9.40"))]``
    """

    def __init__(self, name: str, return_value: Any, side_effect: Any) -> None:
        self.name = name
        self._mock = mock.Mock(name=name, return_value=return_value, side_effect=side_effect)

    def __repr__(self) -> str:
        return f"<mock of {self.name}, called {len(self.calls)} times>"

    @property
    def calls(self) -> list[Any]:
        """The calls so far."""
        return list(self._mock.call_args_list)

    @property
    def called(self) -> bool:
        """Whether there was a call."""
        return bool(self._mock.called)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._mock(*args, **kwargs)
        except (StopIteration, StopAsyncIteration) as error:
            raise AssertionError(
                f"the mock of {self.name} is called for the {len(self.calls)}th time, and its side_effect has no more "
                "values; a step that fails is tried again"
            ) from error


def install(target: Any, stack: ExitStack, *, return_value: Any = None, side_effect: Any = None) -> Mock:
    """Put a mock in place of a step, an existing Celery task, a workflow or what has this name, until the stack ends.

    ``side_effect`` is an exception to raise, a function to call instead, or an iterable with the value or exception of
    each call; else the mock returns ``return_value``. Arguments are checked as before, values are encoded and decoded.
    """
    _check(side_effect)
    name, put = _place(target)
    made = Mock(name, return_value, side_effect)
    put(made, stack)
    return made


def _check(side_effect: Any) -> None:
    known = side_effect is None or callable(side_effect) or isinstance(side_effect, (BaseException, Iterable))
    if not known:
        raise BadValue(
            f"side_effect={side_effect!r:.80} is not allowed, expected an exception to raise, a function to call or an "
            "iterable with the value or exception of each attempt; a value to return is return_value=",
            path="side_effect",
        )


def _place(target: Any) -> tuple[str, Callable[[Mock, ExitStack], None]]:
    name = target if isinstance(target, str) else getattr(target, "name", "")
    if name in registry.steps and (isinstance(target, (str, Step))):
        return name, functools.partial(_for_step, registry.steps[name])
    if isinstance(target, (str, WorkflowDefinition)) and any(known == name for known, _ in registry.workflows):
        return name, functools.partial(_for_workflow, name)
    if isinstance(name, str) and name and (isinstance(target, str) or hasattr(target, "apply_async")):
        try:
            task = runtime.current().transport.task(name)
        except LookupError:
            raise UsageError(f"there is no step, workflow or Celery task {name!r} to mock") from None
        return name, functools.partial(_for_task, task)
    raise UsageError(f"mock() takes a step, a Celery task, a workflow or the name of one, got {target!r:.80}")


def _for_step(step: Step[Any, Any], made: Mock, stack: ExitStack) -> None:
    _ = step.task  # made of its own body: in a process whose app is not finalized yet it would be made of the mock
    stack.enter_context(mock.patch.object(step, "body", made))


def _for_task(task: Any, made: Mock, stack: ExitStack) -> None:
    # Around this one Celery has put its automatic retries, where the task has some.
    stack.enter_context(mock.patch.object(task, "_orig_run" if "_orig_run" in vars(task) else "run", made))


def _for_workflow(name: str, made: Mock, stack: ExitStack) -> None:
    for (known, _), definition in registry.workflows.items():
        if known == name:
            _ = definition.fingerprint  # of its own body; remembered
            stack.enter_context(mock.patch.object(definition, "body", _once_a_run(made, definition.body)))
            fails_on = replace(definition.options, fails_on=(Exception,))
            stack.enter_context(mock.patch.object(definition, "options", fails_on))


def _once_a_run(made: Mock, body: Callable[..., Any]) -> Callable[..., Any]:
    """A body in one turn; replays of a run are no further calls."""
    ends: dict[str, Callable[[], Any]] = {}

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        run = scope.required("a mocked workflow", "it is no step").instance_id
        if run not in ends:
            try:
                value = made(*args, **kwargs)
                ends[run] = lambda: value
            except Exception as error:
                ends[run] = functools.partial(_raise, error)
        return ends[run]()

    stand_in.__name__, stand_in.__qualname__ = body.__name__, body.__qualname__
    return stand_in


def _raise(error: Exception) -> Any:
    raise error
