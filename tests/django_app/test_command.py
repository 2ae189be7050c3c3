"""``manage.py durable``: its verbs, what they print, and how they exit."""

from __future__ import annotations

import json
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_app import verbs
from django_app.models import WorkflowInstance
from durable_celery import InstanceNotFound, get_handle
from durable_celery.codec import encode
from tests.django_app.definitions import Card
from tests.django_app.rows import at, call, failed, new_instance, new_step

pytestmark = pytest.mark.django_db


def durable(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    out, err = StringIO(), StringIO()
    try:
        call_command("durable", *args, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def document(*args: str) -> Any:
    """What ``--json`` prints, which must be one JSON document and nothing else."""
    code, out, err = durable(*args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_each_module_of_verbs_is_a_verb_with_help() -> None:
    assert set(verbs.names()) >= {"doctor", "history", "list", "show"}
    with pytest.raises(SystemExit) as stop:
        call_command("durable", "--help")
    assert stop.value.code == 0


@pytest.mark.parametrize("args", [(), ("dance",), ("list", "--wings")])
def test_a_verb_or_option_that_is_none_is_wrong_usage(args: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as error:
        call_command("durable", *args)
    assert error.value.returncode == 1 or "durable" in str(error.value)


# -- list --------------------------------------------------------------------------------------------------------------


def test_list_shows_the_newest_first_and_what_they_wait_for() -> None:
    new_instance(key="a", state="COMPLETED")
    new_step(new_instance(key="b"), "1", kind="signal", name="paid", state="SCHEDULED", attempt=0, due_at=at(60))
    code, out, _ = durable("list")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == ["ID", "WORKFLOW", "KEY", "STATE", "CREATED", "WAITING", "FOR"]
    assert " b " in lines[1]
    assert "signal 'paid' at 1" in lines[1]
    assert " a " in lines[2]


@pytest.mark.parametrize(
    ("args", "keys"),
    [
        (("--state", "COMPLETED"), ["order-1"]),
        (("--state", "completed"), ["order-1"]),
        (("--state", "open"), ["other", "order-2"]),
        (("--state", "PAUSED"), ["other"]),
        (("--key", "order"), ["order-2", "order-1"]),
        (("--workflow", "shop.other"), ["other"]),
        (("--limit", "1"), ["other"]),
        (("--workflow", "nothing"), []),
    ],
)
def test_list_narrows(args: tuple[str, ...], keys: list[str]) -> None:
    new_instance(key="order-1", state="COMPLETED")
    new_instance(key="order-2")
    new_instance(key="other", name="shop.other", paused_at=at(1))
    assert [row["key"] for row in document("list", *args)] == keys


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_text_that_no_database_holds_is_found_nowhere(text: str) -> None:
    instance = new_instance(key="a")
    for option in ("--key", "--workflow"):
        assert durable("list", option, text) == (0, "no instance\n", "")
    for key, workflow in ((text, "shop.order"), ("a", text)):
        code, _, err = durable("show", "--key", key, "--workflow", workflow)
        assert (code, "there is no instance with the key" in err) == (2, True)
    assert durable("history", str(instance.pk), "--of", text) == (0, "nothing yet\n", "")
    with pytest.raises(InstanceNotFound):
        get_handle(text)
    found = WorkflowInstance.objects
    assert not found.for_key(text).exists()
    assert not found.with_attributes(city=[{"name": text}]).exists()
    assert not found.with_attributes(**{text: 1}).exists()
    assert not found.with_attributes(size=float("nan")).exists()


def test_no_key_is_no_key_to_look_for() -> None:
    new_instance(key=None)
    absent: Any = None
    assert not WorkflowInstance.objects.for_key(absent).exists()


def test_list_costs_two_queries_however_many_rows() -> None:
    for _ in range(30):
        new_step(new_instance(), "1", state="RUNNING", started_at=at(1))
    with CaptureQueriesContext(connection) as queries:
        durable("list")
    assert len(queries) == 2


def test_an_empty_list_says_so() -> None:
    assert durable("list") == (0, "no instance\n", "")
    assert document("list") == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("list", "--state", "HAPPY"), "expected one of PENDING"),
        (("list", "--limit", "0"), "expected a number from 1 to"),
        (("list", "--limit", str(2**64)), "expected a number from 1 to"),
    ],
)
def test_wrong_values_exit_with_2_and_say_what_is_expected(args: tuple[str, ...], expected: str) -> None:
    code, out, err = durable(*args)
    assert (code, out) == (2, "")
    assert expected in err


# -- show and history --------------------------------------------------------------------------------------------------


def test_show_tells_everything_about_an_instance() -> None:
    instance = new_instance(
        name="tests.console.purchase", key="order-7", args=call(7, "VOUCHER-1"), state="FAILED",
        failure=failed(ValueError("VOUCHER-1 is used")), finished_at=at(9), attributes={"city": "Graz"},
    )  # fmt: skip
    shown = document("show", str(instance.pk))
    assert shown["id"] == shown["run_id"] == str(instance.pk)
    assert (shown["workflow"], shown["key"], shown["state"]) == ("tests.console.purchase", "order-7", "FAILED")
    assert shown["args"] == {"order_id": 7, "voucher_code": "[redacted]"}
    assert shown["error"]["type"] == "ValueError"
    assert shown["error"]["message"] == "[redacted] is used"
    assert shown["attributes"] == {"city": "Graz"}
    assert shown["finished_at"] == at(9).isoformat()
    code, out, _ = durable("show", str(instance.pk))
    assert code == 0
    assert "ValueError: [redacted] is used" in out
    assert "VOUCHER-1" not in out


def test_show_finds_by_key_and_wants_the_workflow_where_the_key_is_used_twice() -> None:
    new_instance(key="order-7", name="shop.buy", state="COMPLETED")
    still_open = new_instance(key="order-7", name="shop.buy", open_key="x")
    new_instance(key="order-7", name="shop.buy", state="FAILED")
    assert document("show", "--key", "order-7")["run_id"] == str(still_open.pk)
    new_instance(key="order-7", name="shop.sell")
    code, _, err = durable("show", "--key", "order-7")
    assert code == 2
    assert "shop.buy, shop.sell; add --workflow NAME" in err
    assert document("show", "--key", "order-7", "--workflow", "shop.buy")["run_id"] == str(still_open.pk)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), "its ID, or --key KEY"),
        (("nonsense",), "is not an id, expected a uuid"),
        ((str(uuid4()),), "there is no instance with the id"),
        (("--key", "none"), "there is no instance with the key 'none'"),
    ],
)
@pytest.mark.parametrize("verb", ["show", "history"])
def test_an_instance_that_is_not_there_is_wrong_usage(verb: str, args: tuple[str, ...], expected: str) -> None:
    code, _, err = durable(verb, *args)
    assert code == 2
    assert expected in err


def test_history_is_in_order_of_position_with_compensations_last_and_newest_first() -> None:
    instance = new_instance(name="tests.console.purchase")
    for position in ("1~", "10", "2.1", "2~", "1", "2.0"):
        kind = "compensation" if "~" in position else "step"
        new_step(instance, position, kind=kind, name="tests.console.pay", args=call(7, "9876543"), result=encode("ok"))
    found = document("history", str(instance.pk))
    assert [entry["position"] for entry in found] == ["1", "2.0", "2.1", "10", "2~", "1~"]
    assert set(found[0]) >= {
        "position", "kind", "name", "state", "args", "result", "error", "attempts", "scheduled_at", "started_at",
        "finished_at", "turn",
    }  # fmt: skip
    assert found[0]["args"] == {"order_id": 7, "pin": "[redacted]"}
    assert "9876543" not in durable("history", str(instance.pk))[1]


def test_values_of_every_kind_become_one_json_document() -> None:
    from datetime import timedelta
    from decimal import Decimal

    value = {
        "card": Card("Ana", "4111", "1"),
        "price": Decimal("1.50"),
        "at": at(0),
        "wait": timedelta(days=1),
        "raw": b"\x00",
    }
    instance = new_instance(result=encode(value), state="COMPLETED")
    new_step(instance, "1", result=encode({"a": {1, 2}, "t": (1, "x")}), args="{damaged")
    shown = document("show", str(instance.pk))["result"]
    assert shown["card"] == {"holder": "Ana", "number": "4111", "pin": "1"}
    assert (shown["price"], shown["at"]) == ("1.50", at(0).isoformat())
    assert document("history", str(instance.pk))[0]["result"] == {"a": [1, 2], "t": [1, "x"]}


def test_text_that_the_terminal_lacks_is_written_as_escapes() -> None:
    raw = BytesIO()
    stream = TextIOWrapper(raw, encoding="ascii")
    verbs.Console(stream, stream).table(["KEY"], [["größe\n\ud800"]])
    stream.flush()
    assert raw.getvalue() == b"KEY\ngr\\xf6\\xdfe \\ud800\n"
