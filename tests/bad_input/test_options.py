"""Options that cannot be meant: refused where they are given, by name and with what is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

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


def test_two_lambdas_of_a_module_are_two_steps_and_need_names() -> None:
    first: Any = step(lambda: 1)
    with pytest.raises(UsageError, match=r"<lambda>' is taken: step of .* in line \d+.*give one of them another name="):
        step(lambda: 2)
    assert first.call() == 1
    assert step(name="tests.bad_input.second_lambda")(lambda: 2).call() == 2


def test_a_bad_duration_is_named_without_a_step_that_has_no_name_yet() -> None:
    with pytest.raises(UsageError, match=r"^start_to_close_timeout must be|^start_to_close_timeout='30'"):
        step(start_to_close_timeout=cast("Any", "30"))
