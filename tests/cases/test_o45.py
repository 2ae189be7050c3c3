"""PostgreSQL cannot store U+0000, SQLite refuses NaN in a JSON column: with what could not be saved went the outcome.

Odd characters in results, payloads and arguments come back as they were; in error texts they are kept, and shown
escaped; a name or label that no database can hold is refused where it is given; NaN fails its step at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from django_app.models import Message, StepAttempt, StepResult, WorkflowInstance
from durable_celery import (
    NotSerializable,
    RetryPolicy,
    Signal,
    StepFailed,
    UsageError,
    Workflow,
    WorkflowFailed,
    current_step,
    set_status,
    side_effect,
    step,
    workflow,
)
from tests.pump import Pump

ODD = ["a\0b", "\0", "lone \ud800", "\udfff lone", "😀", "\ufeff\u2028\u200b", "\x01\x1b[31m", "\\u0000"]
NUMBERS = [math.nan, math.inf, -math.inf]
HIDDEN = ("\0", "\ud800", "\udfff")

told = Signal("o45.told", object)


class Odd(Exception):
    pass


@step(name="o45.echo")
def echo(value: Any) -> Any:
    return value


@step(name="o45.fail", retry=None)
def fail(text: str, kind: str = "ValueError") -> None:
    raise {"ValueError": ValueError, "Odd": Odd}[kind](text)


@step(name="o45.stumble", retry=RetryPolicy(maximum_attempts=2, initial_interval=10, jitter=False))
def stumble(text: str) -> str:
    current_step().heartbeat({"at": text})
    if current_step().attempt == 1:
        raise ValueError(text)
    return str(current_step().last_heartbeat["at"])


@workflow(name="o45.echoing")
def echoing(value: Any) -> Workflow[Any]:
    recorded = side_effect(lambda: value)
    returned = yield from echo(value)
    received = yield from told.wait(timeout=60)
    return {"recorded": recorded, "returned": returned, "received": received}


@step(name="o45.numbers", retry=RetryPolicy(maximum_attempts=5, initial_interval=1))
def number_of(which: int) -> list[Any]:
    return [1, {"rate": NUMBERS[which]}]


@workflow(name="o45.counting")
def counting(which: int) -> Workflow[Any]:
    return (yield from number_of(which))


@workflow(name="o45.failing")
def failing(text: str) -> Workflow[str]:
    try:
        yield from fail(text)
    except StepFailed as error:
        return error.message if error.matches(ValueError) else "another error"
    return "?"


@workflow(name="o45.stumbling")
def stumbling(text: str) -> Workflow[str]:
    set_status(text)
    return (yield from stumble(text))


@workflow(name="o45.giving_up")
def giving_up(text: str) -> Workflow[None]:
    yield from fail(text)


@workflow(name="o45.broken")
def broken(text: str) -> Workflow[None]:
    yield from echo(1)
    raise Odd(text)


@pytest.mark.parametrize("text", [*ODD, "\ud83d\ude00 in halves"])
def test_o45_odd_text_comes_back_as_it_was(pump: Pump, text: str) -> None:
    handle = echoing.start({"in": [text, text * 1000]})
    told.send(handle, {text: text})
    pump.drain()
    value = {"in": [text, text * 1000]}
    assert handle.result(timeout=0) == {"recorded": value, "returned": value, "received": {text: text}}
    entry = next(entry for entry in handle.history() if entry.kind == "step")
    assert (entry.state, entry.args, entry.result) == ("SUCCEEDED", ((value,), {}), value)


@pytest.mark.parametrize("text", ODD)
def test_o45_a_step_that_raises_odd_text_fails_as_any_other(pump: Pump, text: str) -> None:
    handle = failing.start(text)
    pump.drain()
    assert handle.result(timeout=0) == text
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("FAILED", 1)
    assert entry.error is not None
    assert (entry.error.type, entry.error.message) == ("ValueError", text)
    assert "raise {" in entry.error.traceback
    assert is_shown_safely(entry.error.brief)


@pytest.mark.parametrize("text", ODD)
def test_o45_a_workflow_that_fails_with_odd_text_is_failed(pump: Pump, text: str) -> None:
    handle = giving_up.start(text)
    pump.drain()
    assert handle.status == "FAILED"
    with pytest.raises(WorkflowFailed) as caught:
        handle.result(timeout=0)
    assert is_shown_safely(str(caught.value).replace(text, ""))


@pytest.mark.parametrize("text", ODD)
def test_o45_a_body_that_raises_odd_text_is_blocked_and_says_so_in_words_that_can_be_shown(
    pump: Pump, text: str
) -> None:
    handle = broken.start(text)
    pump.drain()
    assert handle.status == "BLOCKED"
    assert "Odd" in handle.waiting_for
    assert is_shown_safely(handle.waiting_for)


@pytest.mark.parametrize("text", ODD)
def test_o45_odd_text_in_a_status_a_heartbeat_and_an_error_that_is_retried(pump: Pump, text: str) -> None:
    handle = stumbling.start(text)
    pump.drain()
    assert "ValueError" in handle.waiting_for
    assert is_shown_safely(handle.waiting_for)
    assert is_shown_safely(WorkflowInstance.objects.get(pk=handle.id).status_text)
    assert StepAttempt.objects.get().outcome == "failed"
    pump.advance_time(11)
    assert handle.result(timeout=0) == text


@pytest.mark.parametrize("which", range(len(NUMBERS)))
def test_o45_a_result_that_is_no_number_fails_its_step_at_once_by_name_and_place(pump: Pump, which: int) -> None:
    handle = counting.start(which)
    pump.finish()
    assert handle.status == "FAILED"
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("FAILED", 1)
    assert entry.error is not None
    assert entry.error.type == "durable_celery.errors.NotSerializable"
    assert entry.error.message.startswith("the result[1]['rate'] of step o45.numbers cannot be stored: ")
    assert "Use None, or text" in entry.error.message
    with pytest.raises(WorkflowFailed) as caught:
        handle.result(timeout=0)
    assert caught.value.matches(StepFailed)


@pytest.mark.parametrize("number", NUMBERS)
def test_o45_no_number_is_refused_in_arguments_and_payloads_before_anything_is_stored(
    pump: Pump, number: float
) -> None:
    with pytest.raises(NotSerializable, match=r"args\[0\]\['rate'\] of o45.echoing") as caught:
        echoing.start({"rate": number})
    assert caught.value.path == "args[0]['rate']"
    handle = echoing.start(1)
    with pytest.raises(NotSerializable, match=r"payload\[0\] of signal 'o45.told'"):
        told.send(handle, [number])
    assert (WorkflowInstance.objects.count(), Message.objects.count(), StepResult.objects.count()) == (1, 0, 0)


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800"])
def test_o45_what_no_database_can_hold_is_refused_where_it_is_given(pump: Pump, text: str) -> None:
    handle = echoing.start(1)
    pump.drain()
    refused: list[Callable[[], object]] = [
        lambda: Signal(text),
        lambda: handle.signal(text, 1),
        lambda: handle.signal("fine", 1, signal_id=text),
        lambda: told.send(handle, 1, signal_id=text),
        lambda: echoing.using(key=text),
        lambda: echoing.using(attributes={"city": text}),
        lambda: echoing.using(attributes={text: 1}),
        lambda: echoing.using(memo={"by": [text]}),
        lambda: workflow(name=text)(lambda: None),
        lambda: step(name=text)(lambda: None),
    ]
    for give in refused:
        with pytest.raises(UsageError, match="NUL or a lone surrogate") as caught:
            give()
        assert isinstance(caught.value, ValueError)
    assert (WorkflowInstance.objects.count(), Message.objects.count()) == (1, 0)
    assert handle.status == "WAITING"


def is_shown_safely(text: str) -> bool:
    return not any(character in text for character in HIDDEN)
