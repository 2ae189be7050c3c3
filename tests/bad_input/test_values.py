"""What cannot be stored, wherever it is given: the error names the place and a way out, and nothing is tried again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from django_app.models import Message, StepResult, WorkflowInstance
from durable_celery import (
    NotSerializable,
    PayloadTooLarge,
    RetryPolicy,
    Signal,
    UsageError,
    Workflow,
    gather,
    side_effect,
    step,
    workflow,
)
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

told = Signal("values.told")
runs: list[str] = []
PATIENT = RetryPolicy(maximum_attempts=5, initial_interval=1, retry_on=(Exception,))


@step(name="values.make", retry=PATIENT)
def make(what: str) -> Any:
    runs.append(what)
    return {"user": User(username="ana")} if what == "user" else "x" * 2_000_000


@step(name="values.take", retry=PATIENT)
def take(order: Any) -> None:
    runs.append("take")


@workflow(name="values.making")
def making(what: Any) -> Workflow[Any]:
    return (yield from make(what))


@workflow(name="values.passing")
def passing(where: str) -> Workflow[Any]:
    bad = {"items": [1, lambda: 1]}
    if where == "argument":
        yield from take(bad)
    elif where == "keyword":
        yield from take(order=bad)
    elif where == "member":
        yield from gather(take(1), take(bad))
    elif where == "side_effect":
        side_effect(lambda: bad)
    elif where == "default":
        yield from told.wait(timeout=1, default=bad)
    yield from take(1)
    return bad


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


def test_a_result_that_cannot_be_stored_fails_its_step_at_once_whatever_its_retry_policy_says(pump: Pump) -> None:
    handle = making.start("user")
    pump.finish()
    assert (handle.status, runs) == ("FAILED", ["user"])
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("FAILED", 1)
    assert entry.error is not None
    assert entry.error.message.startswith("the result['user'] of step values.make cannot be stored: ")
    assert "Pass its primary key" in entry.error.message


def test_a_result_that_is_too_large_fails_its_step_by_name_with_both_sizes(pump: Pump) -> None:
    handle = making.start("large")
    pump.finish()
    assert (handle.status, runs) == ("FAILED", ["large"])
    (entry,) = handle.history()
    assert entry.error is not None
    assert entry.error.type == "durable_celery.errors.PayloadTooLarge"
    assert "step values.make is 2,000,002 bytes as stored, more than the 1,048,576" in entry.error.message
    assert "PAYLOAD_LIMIT" in entry.error.message


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("argument", "args[0]['items'][1] of values.take"),
        ("keyword", "kwargs['order']['items'][1] of values.take"),
        ("member", "args[0]['items'][1] of values.take"),
        ("side_effect", "the value['items'][1] of side_effect"),
        ("default", "default['items'][1] of signal 'values.told'"),
        ("result", "the return value['items'][1] of workflow values.passing"),
    ],
)
def test_a_value_in_a_body_that_cannot_be_stored_blocks_the_instance_with_its_place(
    pump: Pump, where: str, path: str
) -> None:
    handle = passing.start(where)
    pump.finish()
    assert handle.status == "BLOCKED"
    assert f"{path} cannot be stored: " in handle.waiting_for
    assert "NotSerializable" in handle.waiting_for
    assert runs == (["take"] if where == "result" else [])
    assert StepResult.objects.filter(kind="step").count() == len(runs)


@pytest.mark.parametrize(
    ("give", "path"),
    [
        (lambda: making.start(User()), "args[0] of values.making"),
        (lambda: making.start(what={1: 2}), "kwargs['what'][1] of values.making"),
        (lambda: making.delay([{1, float("inf")}]), "args[0][0]{item} of values.making"),
        (lambda: making.start_many([("fine",), (object(),)]), "args[0] of values.making"),
        (lambda: making.using(signal=(told, object())).start("fine"), "payload of signal 'values.told'"),
    ],
)
def test_a_start_with_what_cannot_be_stored_is_refused_with_its_place_and_stores_nothing(
    pump: Pump, give: Callable[[], object], path: str
) -> None:
    with pytest.raises(NotSerializable) as caught:
        give()
    assert str(caught.value).startswith(f"{path} cannot be stored: ")
    assert caught.value.path == path.partition(" of ")[0]
    assert (WorkflowInstance.objects.count(), Message.objects.count()) == (0, 0)


def test_a_start_that_is_too_large_is_refused_with_both_sizes(pump: Pump) -> None:
    with pytest.raises(PayloadTooLarge, match=r"args\[0\] of values.making is 1,100,002 bytes") as caught:
        making.start("x" * 1_100_000)
    assert (caught.value.size, caught.value.limit) == (1_100_002, 1_048_576)
    assert WorkflowInstance.objects.count() == 0


@workflow(name="values.warned")
def warned(what: str) -> Workflow[int]:
    yield from take("y" * 70_000)
    payload = yield from told.wait()
    yield from take(1)
    return len(payload)


def test_what_is_over_payload_warn_is_said_once_by_name_and_goes_on(
    pump: Pump, caplog: pytest.LogCaptureFixture
) -> None:
    handle = warned.start("x" * 65_535)
    pump.drain()
    told.send(handle, "z" * 66_000)
    pump.finish()
    assert handle.result(timeout=0) == 66_000
    said = [r.getMessage() for r in caplog.records if "PAYLOAD_WARN" in r.getMessage()]
    assert [text.partition(" bytes as stored, more than PAYLOAD_WARN (65,536)")[0] for text in said] == [
        "args[0] of values.warned is 65,537",
        "args[0] of values.take is 70,002",
        "payload of signal 'values.told' is 66,002",
    ]


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        ({"city": object()}, "attributes['city']"),
        ({"a": [1, {"b": float("nan")}]}, "attributes['a'][1]['b']"),
        ({1: "a"}, "attributes"),
    ],
)
def test_attributes_that_are_no_plain_json_are_refused_with_their_place(
    pump: Pump, attributes: dict[str, Any], path: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(path)) as caught:
        making.using(attributes=attributes)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(UsageError, match=re.escape(path.replace("attributes", "memo"))):
        making.using(memo=attributes)
