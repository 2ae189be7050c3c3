"""The admin's acts: refusals, and signals checked against their type."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_app.models import Message, WorkflowInstance
from durable_celery import Workflow, get_handle, workflow
from durable_celery.core import transitions as t
from durable_celery.engine import turns
from tests.django_app.acting import (
    ACTS,
    LIST,
    XSS,
    Approval,
    approved,
    facts,
    fields,
    made,
    row,
    said,
    url,
)
from tests.pump import Pump

pytestmark = pytest.mark.engine
ran: list[str] = []


def blocks() -> Workflow[None]:
    ran.append("blocks")
    raise ValueError("a bug")
    yield


blocking = workflow(name="tests.acts.blocking")(blocks)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTS)
def test_what_came_too_late_is_a_message_and_is_not_logged(pump: Pump, admin_client: Client, act: str) -> None:
    instance = made()
    approved.send(instance, Approval("ana"))
    pump.finish()
    before = facts(instance)
    page = admin_client.get(LIST + f"{instance.pk}/change/").content.decode()
    assert url(instance, act) not in page
    response = admin_client.post(url(instance, act), fields(act))
    assert response.status_code == 302
    assert len(said(response)) == 1
    assert "COMPLETED" in said(response)[0]
    assert facts(instance) == before
    assert not LogEntry.objects.exists()


def test_a_retry_that_cannot_be_says_why(db: None, admin_client: Client) -> None:
    instance = made()
    response = admin_client.post(url(instance, "retry"), {"reason": ""})
    assert "retry() reopens a BLOCKED or FAILED one" in said(response)[0]


def test_a_retry_of_a_blocked_one_is_tried_again(pump: Pump, admin_client: Client) -> None:
    instance = row(blocking.start().id)
    turns.advance(instance.pk)
    instance = row(instance.pk)
    assert instance.state == t.BLOCKED
    tries = len(ran)
    response = admin_client.post(url(instance, "retry"), {"reason": "fixed"})
    assert said(response) == [f"will be tried again: {instance}"]
    pump.drain()
    assert len(ran) == tries + 1


def test_a_run_that_went_on_as_a_newer_one_is_left_alone(db: None, admin_client: Client) -> None:
    instance = made()
    WorkflowInstance.objects.filter(pk=instance.pk).update(state=t.CONTINUED)
    response = admin_client.post(url(instance, "terminate"), {"reason": ""})
    assert said(response) == [f"refused for {instance}: it went on as a newer run; open that one"]
    assert row(instance.pk).state == t.CONTINUED


def test_an_instance_that_is_gone_is_a_message(admin_client: Client, db: None) -> None:
    for method in ("get", "post"):
        response = getattr(admin_client, method)(f"{LIST}{uuid4()}/cancel/")
        assert response.status_code == 302
        assert response["Location"] == "/admin/"


# -- signals -----------------------------------------------------------------------------------------------------------


def test_a_signal_arrives_as_its_declared_type(pump: Pump, admin_client: Client) -> None:
    instance = made()
    asked = admin_client.get(url(instance, "signal")).content.decode()
    assert 'value="acts.approved"' in asked
    assert "Approval(by: str, amount: Decimal = ...)" in asked
    admin_client.post(url(instance, "signal"), fields("signal", payload='{"by": "ana", "amount": "1.50"}'))
    pump.finish()
    assert get_handle(instance.pk).result(timeout=0) == "ana"
    assert "1.50" not in LogEntry.objects.get().change_message


def test_the_same_page_sent_twice_sends_one_signal(db: None, admin_client: Client) -> None:
    instance = made()
    pages = [admin_client.get(url(instance, "signal")).context["form"]["signal_id"].value() for _ in range(2)]
    for signal_id in (pages[0], pages[0]):
        admin_client.post(url(instance, "signal"), fields("signal", signal_id=signal_id))
    assert Message.objects.filter(instance_id=instance.pk).count() == 1
    assert pages[0] != pages[1]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("{by: ana}", "This is not JSON: Expecting property name enclosed in double quotes in line 1, column 2."),
        ("NaN", "This is not JSON: NaN is no number there."),
        ("[" * 100_000, "This JSON is nested too deep."),
        ("", "payload: None; expected an object: Approval(by: str, amount: Decimal = ...)"),
        ('{"amount": 1}', "Approval needs the field 'by'"),
        ('{"by": "ana", "amount": "much"}', "payload.amount: 'much'; expected a decimal"),
        ('{"by": "ana", "on": 1}', "Approval has no field 'on'"),
        (f'{{"by": "{"x" * 1_100_000}"}}', "payload"),
        (f'{{"by": 7, "amount": "{XSS[:10]}"}}', "payload"),
        ("7" * 5_000, "This JSON cannot be read: Exceeds the limit"),
    ],
)
def test_a_payload_that_does_not_fit_is_an_error_of_the_form(
    db: None, admin_client: Client, payload: str, expected: str
) -> None:
    instance = made()
    before = facts(instance)
    page = admin_client.post(url(instance, "signal"), fields("signal", payload=payload))
    assert page.status_code == 200
    (error,) = page.context["form"].errors["payload"]
    assert expected in error
    assert "<script" not in page.content.decode().replace("<script src", "")
    assert facts(instance) == before


@pytest.mark.parametrize("name", ["", " ", "x" * 192, "a\0b"])
def test_a_signal_needs_a_name(db: None, admin_client: Client, name: str) -> None:
    instance = made()
    page = admin_client.post(url(instance, "signal"), fields("signal", name=name))
    assert page.context["form"].errors["name"]


def test_a_signal_of_no_known_type_carries_plain_json(db: None, admin_client: Client) -> None:
    instance = made()
    admin_client.post(url(instance, "signal"), fields("signal", name="acts.unheard-of", payload='{"$": [1]}'))
    assert Message.objects.get(instance_id=instance.pk).name == "acts.unheard-of"
    assert "{&#x27;$&#x27;: [1]}" in admin_client.get(LIST + f"{instance.pk}/change/").content.decode()
