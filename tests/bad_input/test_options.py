"""Options that cannot be meant: refused where they are given, by name and with what is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from durable_celery import UsageError, Workflow, step, workflow


def body() -> Workflow[None]:
    yield


@pytest.mark.parametrize(
    "options",
    [{"name": 5}, {"name": ""}, {"name": " "}, {"name": "a\0"}, {"queue": 5}, {"priority": True}, {"priority": 256}],
)
def test_a_name_or_route_that_cannot_be_meant_is_refused_at_import(options: dict[str, Any]) -> None:
    for made in (lambda: step(**options)(len), lambda: workflow(**options)(body)):
        with pytest.raises(UsageError, match=next(iter(options))) as caught:
            made()
        assert isinstance(caught.value, ValueError)


async def streamed() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("generator", [body, streamed])
def test_a_step_that_yields_is_refused_at_import(generator: Any) -> None:
    with pytest.raises(UsageError, match="a step body returns; a workflow yields"):
        step(generator)


@pytest.mark.parametrize("kinds", [3, (3,), "ValueError", (ValueError, int)])
def test_fails_on_takes_exception_classes(kinds: Any) -> None:
    with pytest.raises(UsageError, match="fails_on"):
        workflow(fails_on=kinds)(body)


@pytest.mark.parametrize(
    "options", [{"priority": "high"}, {"priority": True}, {"queue": 5}, {"queue": ""}, {"execution_timeout": 0}]
)
def test_the_options_of_a_start_are_refused_by_using(options: dict[str, Any]) -> None:
    started = workflow(name="options.started")(body)
    with pytest.raises(UsageError, match=next(iter(options))) as caught:
        started.using(**options)
    assert isinstance(caught.value, ValueError)
