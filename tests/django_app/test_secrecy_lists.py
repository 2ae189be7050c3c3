"""Secrets in what lists, commands and signals tell of instances."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpRequest
from django.urls import reverse

from django_app import bench, signals
from django_app.admin.subjects import WorkflowInstancesInline
from django_app.models import WorkflowInstance
from durable_celery import Workflow, query, set_status, step, update, workflow
from durable_celery.codec import encode
from tests.django_app.rows import call, new_instance, new_step
from tests.pump import Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/durable_celery/workflowinstance/"
SECRET = "hunter2-marker"
NESTED = "nested-marker"


class Refused(Exception):
    pass


@step(name="secrecy.log_in", retry=None, redact=("pin",))
def log_in(pin: str) -> None:
    raise Refused(f"pin {pin} is wrong")


@workflow(name="secrecy.blocking", redact=("password",))
def blocking(password: str, user: dict[str, str]) -> Workflow[None]:
    set_status(f"with {password}")
    if user:
        raise KeyError(password, user["api_key"])
    yield from log_in("0000")


@workflow(name="secrecy.converting")
def converting(card: str) -> Workflow[None]:
    try:
        yield from log_in(f"{card}-pin")
    except Exception as error:
        raise ValueError(str(error)) from error


@workflow(name="secrecy.parent")
def parent(number: int) -> Workflow[None]:
    try:
        yield from failing_child("child-marker")
    except Exception as error:
        raise ValueError(str(error)) from error


@workflow(name="secrecy.failing_child", redact=("word",), fails_on=Refused)
def failing_child(word: str) -> Workflow[None]:
    raise Refused(f"the word is {word}")
    yield


@workflow(name="secrecy.asked", redact=("password",))
def asked(password: str) -> Workflow[None]:
    def refuse(*args: Any) -> None:
        raise ValueError(f"not with {password}")

    query("refuse", refuse)
    update("refuse", refuse)
    yield from log_in.using(queue="nowhere")("12345")


def command(*args: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("durable", *args, stdout=out, stderr=err)
    except SystemExit:
        pass
    return out.getvalue() + err.getvalue()


def inline(user: User) -> str:
    request = HttpRequest()
    request.user = user
    made = WorkflowInstancesInline(User, admin.site)
    formset = made.get_formset(request, user)(instance=user, queryset=made.get_queryset(request))
    return str([vars_of(row) for row in formset.rows])


def vars_of(row: Any) -> dict[str, Any]:
    return {name: str(getattr(row, name)) for name in ("text", "waits")}


@pytest.mark.parametrize("args", [("list",), ("list", "--json"), ("list", "--state", "BLOCKED")])
def test_no_command_prints_the_secret_that_blocked_an_instance(pump: Pump, args: tuple[str, ...]) -> None:
    handle = blocking.start(SECRET, {"api_key": NESTED})
    pump.drain()
    assert handle.status == "BLOCKED"
    assert SECRET in handle.waiting_for  # the program itself may know
    text = command(*args)
    assert "blocked: KeyError: " in text
    assert "[redacted]" in text
    assert "marker" not in text


def test_no_list_of_the_admin_shows_the_secret_that_blocked_an_instance(pump: Pump, admin_client: Any) -> None:
    user = User.objects.create(username="about")
    blocking.using(subject=user).start(SECRET, {"api_key": NESTED})
    pump.drain()
    for text in (admin_client.get(LIST).content.decode(), inline(user)):
        assert "KeyError" in text
        assert "[redacted]" in text
        assert "marker" not in text


def test_a_status_text_does_not_show_a_secret_in_lists(pump: Pump, admin_client: Any) -> None:
    user = User.objects.create(username="about")
    handle = blocking.using(subject=user).start(SECRET, {})
    WorkflowInstance.objects.filter(pk=handle.id).update(state="COMPLETED", status_text=f"with {SECRET}")
    for text in (command("list"), command("list", "--json"), inline(user)):
        assert "with [redacted]" in text
        assert "marker" not in text


def test_the_secrets_of_its_steps_and_children_do_not_stand_in_a_list(pump: Pump, admin_client: Any) -> None:
    converting.start("step-marker")
    parent.start(1)
    pump.drain()
    assert {row.state for row in WorkflowInstance.objects.exclude(name="secrecy.failing_child")} == {"BLOCKED"}
    for text in (admin_client.get(LIST).content.decode(), command("list"), command("list", "--json")):
        assert "pin [redacted] is wrong" in text or "failed after 1 attempt" in text  # as much as there is room for
        assert "marker" not in text
    assert "the word is [redacted]" in text


def test_an_error_whose_arguments_are_too_large_to_search_is_told_on_the_page_alone(admin_client: Any) -> None:
    instance = new_instance(
        name="secrecy.blocking", state="BLOCKED", args=call(SECRET, {"api_key": "x", "note": "x" * 70_000}),
        waiting_for=f"blocked: KeyError: {SECRET}",
    )  # fmt: skip
    text = admin_client.get(LIST).content.decode()
    assert "marker" not in text
    assert "[hidden" in text
    page = admin_client.get(reverse("admin:durable_celery_workflowinstance_change", args=[instance.pk]))
    assert "KeyError: [redacted]" in page.content.decode()


def test_the_queries_of_a_list_do_not_grow_with_the_blocked_ones(admin_client: Any) -> None:
    def some(count: int) -> list[int]:
        for _ in range(count):
            instance = new_instance(
                name="secrecy.converting",
                state="BLOCKED",
                args=call("c"),
                waiting_for="blocked: ValueError: pin 123456",
            )
            new_step(instance, "1", name="secrecy.log_in", state="FAILED", args=call("123456"))
        figures = []
        for look in (lambda: admin_client.get(LIST), lambda: command("list")):
            with counted() as sent:
                look()
            figures.append(len(sent))
        return figures

    some(1)
    assert some(1) == some(20)


def test_the_secret_in_a_mismatch_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = new_instance(name="secrecy.blocking", state="BLOCKED", args=call(SECRET, {}))
    sides = {"position": "1", "requested": f"the end of the body, with {SECRET}", "before": [], "after": []}
    monkeypatch.setattr(bench, "sides_of", lambda instance: sides)
    for args in (("show",), ("show", "--json")):
        text = command(*args, str(instance.pk))
        assert "the end of the body, with [redacted]" in text
        assert "marker" not in text


@pytest.mark.parametrize("verb", ["query", "update"])
def test_an_answer_that_is_an_error_does_not_print_the_secret(pump: Pump, verb: str) -> None:
    handle = asked.start(SECRET)
    pump.deliver(pump.queue[0])
    more = ["--timeout", "0"] if verb == "update" else []
    text = command(verb, handle.id, "refuse", *more)
    if verb == "update":
        pump.drain()
        assert "marker" not in text
        text = command("query", handle.id, "refuse")
    assert "not with [redacted]" in text
    assert "marker" not in text


def test_signals_of_django_do_not_carry_the_secrets(pump: Pump) -> None:
    told: list[str] = []

    def note(**given: Any) -> None:
        told.append(f"{given.get('waiting_for')} {given.get('message')}")

    for signal in (signals.workflow_blocked, signals.step_failed):
        signal.connect(note)
    try:
        blocking.start(SECRET, {"api_key": NESTED})
        converting.start("step-marker")
        pump.drain()
    finally:
        for signal in (signals.workflow_blocked, signals.step_failed):
            signal.disconnect(note)
    assert "KeyError" in str(told)
    assert "pin [redacted] is wrong" in str(told)
    assert "marker" not in str(told)


def test_a_value_passed_on_under_another_name_is_hidden_on_the_pages_too(admin_client: Any) -> None:
    instance = new_instance(
        name="secrecy.blocking", state="COMPLETED", args=call(SECRET, {}), result=encode(f"done with {SECRET}"),
        attributes={"note": f"by {SECRET}"},
    )  # fmt: skip
    new_step(instance, "1", name="tests.console.pay", args=call(SECRET, "1"), result=encode({"said": SECRET}))
    urls = [
        reverse("admin:durable_celery_workflowinstance_change", args=[instance.pk]),
        reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, "1"]),
    ]
    pk = str(instance.pk)
    texts = [admin_client.get(url).content.decode() for url in urls]
    texts += [command("show", pk), command("history", pk, "--json")]
    texts.append(json.dumps(json.loads(command("show", pk, "--json"))))
    for text in texts:
        assert "marker" not in text
