"""`durable query` and `durable update`: what they print, and how they exit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_app.models import Message
from durable_celery import Signal, Workflow, query, update, workflow
from tests.django_app.test_command import document, durable
from tests.pump import Pump

end = Signal("verbs.end")


@workflow(name="tests.verbs.asking", redact=("card",))
def asking() -> Workflow[list[Any]]:
    items: list[Any] = []

    def add(item: str, count: int) -> dict[str, Any]:
        items.append(item)
        return {"items": len(items), "card": "4111111111111111"}

    def positive(item: str, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} is too few")

    update("add", add, positive)
    update("word", lambda: "done")
    query("items", lambda: items)
    query("account", lambda: {"password": "hunter2-hunter2", "card": "4111111111111111", "name": "ana"})
    query("broken", lambda: 1 / 0)
    query("plus", lambda a, b: a + b)
    yield from end.wait(timeout=3600)
    return items


@pytest.fixture
def handle(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An instance whose senders let the worker work while they wait."""
    monkeypatch.setattr("durable_celery.handle.time.sleep", lambda seconds: pump.drain())
    handle = asking.using(key="k-1").start()
    pump.drain()
    return handle


def test_a_query_is_answered_on_the_command_line(handle: Any) -> None:
    assert durable("query", handle.id, "items") == (0, "[]\n", "")
    assert durable("query", "--key", "k-1", "plus", "--args", "[1, 2]") == (0, "3\n", "")
    assert document("query", handle.id, "plus", "--args", '["a", "b"]') == {
        "id": handle.id, "query": "plus", "answer": "ab",
    }  # fmt: skip


def test_secrets_in_an_answer_are_not_printed(handle: Any) -> None:
    answer = document("query", handle.id, "account")["answer"]
    assert answer["name"] == "ana"
    assert "hunter2" not in json.dumps(answer)
    assert "4111" not in json.dumps(answer)
    assert "4111" not in durable("update", handle.id, "add", "--args", '["tea", 1]')[1]


def test_a_query_that_cannot_be_answered_is_a_refusal(handle: Any) -> None:
    code, out, err = durable("query", handle.id, "broken")
    assert (code, out) == (1, "")
    assert "ZeroDivisionError: division by zero" in err


def test_an_update_is_sent_and_its_answer_printed(handle: Any) -> None:
    assert durable("update", handle.id, "word") == (0, "done\n", "")
    found = document("update", handle.id, "add", "--args", '["tea", 2]', "--update-id", "mine")
    assert (found["id"], found["update"], found["update_id"]) == (handle.id, "add", "mine")
    assert found["answer"]["items"] == 1
    assert document("update", handle.id, "add", "--args", '["tea", 2]', "--update-id", "mine")["answer"]["items"] == 1
    assert handle.query("items") == ["tea"]


def test_a_rejected_update_is_a_refusal_and_leaves_nothing(handle: Any) -> None:
    code, out, err = durable("update", handle.id, "add", "--args", '["tea", 0]')
    assert (code, out) == (1, "")
    assert "UpdateRejected" in err
    assert "ValueError: 0 is too few" in err
    assert Message.objects.count() == 0


def test_an_update_that_is_not_waited_for_prints_its_id(handle: Any, pump: Pump) -> None:
    assert durable("update", handle.id, "word", "--no-wait", "--update-id", "u-1") == (0, "u-1\n", "")
    assert document("update", handle.id, "word", "--no-wait", "--update-id", "u-2") == {
        "id": handle.id, "update": "word", "update_id": "u-2",
    }  # fmt: skip
    code, out, err = durable("update", handle.id, "word", "--update-id", "u-1", "--timeout", "0")
    assert (code, out) == (1, "")
    assert "TimeoutError: update 'word' (u-1)" in err
    pump.drain()
    assert durable("update", handle.id, "word", "--update-id", "u-1", "--timeout", "0") == (0, "done\n", "")


def test_an_update_of_one_that_has_ended_is_a_refusal(handle: Any, pump: Pump) -> None:
    handle.signal("verbs.end")
    pump.drain()
    code, out, err = durable("update", handle.id, "word")
    assert (code, out) == (1, "")
    assert "InstanceClosed" in err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("query", "ID", "items", "--args", "{"), "--args is not JSON"),
        (("query", "ID", "items", "--args", "7"), "--args must be a list"),
        (("query", "ID", " "), "a query needs a name"),
        (("query", "ID", "nope"), "no query 'nope'; known are 'account', 'broken', 'items', 'plus'"),
        (("update", "ID", "nope"), "takes no update 'nope' now; known are 'add', 'word'"),
        (("update", "ID", "word", "--timeout", "-1"), "--timeout -1 is not allowed"),
        (("update", "ID", " "), "an update needs a name"),
        (("update", "ID", "word", "--update-id", " "), "update_id=' ' is not allowed"),
        (("query", "nonsense", "items"), "is not an id"),
    ],
)
def test_what_is_asked_wrongly_is_wrong_usage(handle: Any, args: tuple[str, ...], text: str) -> None:
    code, out, err = durable(*[handle.id if arg == "ID" else arg for arg in args])
    assert (code, out) == (2, "")
    assert text in err
    assert Message.objects.count() == 0
