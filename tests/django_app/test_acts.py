"""The admin's acts: who may, what is done, and text of others."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client

from django_app.models import WorkflowInstance
from durable_celery.core import transitions as t
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
NEEDS = {act: "pause" if act == "resume" else act for act in ACTS}


def chosen(act: str, *instances: WorkflowInstance, **given: Any) -> dict[str, Any]:
    """What the list sends, and, with ``confirmed``, the page that it leads to."""
    return {"action": act, "_selected_action": [str(one.pk) for one in instances], **given}


def staff(*permissions: str) -> Client:
    user = User.objects.create_user(f"user-{uuid4()}", is_staff=True)
    names = [f"{permission}_workflowinstance" for permission in permissions]
    found = Permission.objects.filter(codename__in=names)
    assert len(found) == len(names)
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


# -- who may -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ACTS)
def test_an_act_needs_its_own_permission(db: None, act: str) -> None:
    instance = made(act)
    before = facts(instance)
    for other in ("none", "add", "change", "delete", *sorted({*NEEDS.values()} - {NEEDS[act]})):
        client = staff("view", *([] if other == "none" else [other]))
        assert not is_offered(client, act, instance)
        assert client.get(url(instance, act)).status_code == 403
        assert client.post(url(instance, act), fields(act)).status_code == 403
        client.post(LIST, chosen(act, instance, confirmed="yes", **fields(act)))
        assert facts(instance) == before
        assert not LogEntry.objects.exists()
    client = staff("view", NEEDS[act])
    assert is_offered(client, act, instance)
    assert client.post(url(instance, act), fields(act)).status_code == 302
    assert facts(instance) != before
    assert LogEntry.objects.count() == 1


def is_offered(client: Client, act: str, instance: WorkflowInstance) -> bool:
    """By a button on the page and an action in the list: both or neither."""
    button = url(instance, act) in client.get(LIST + f"{instance.pk}/change/").content.decode()
    form = client.get(LIST).context["action_form"]
    assert button is (act in [name for name, _ in (form.fields["action"].choices if form else [])])
    return button


@pytest.mark.parametrize("act", ACTS)
def test_an_act_needs_the_permission_to_view_as_well(db: None, act: str) -> None:
    instance = made(act)
    before = facts(instance)
    client = staff(NEEDS[act])
    assert client.post(url(instance, act), fields(act)).status_code == 403
    assert client.post(LIST, chosen(act, instance, confirmed="yes", **fields(act))).status_code == 403
    assert facts(instance) == before


@pytest.mark.parametrize("act", ACTS)
def test_nobody_in_particular_is_sent_to_the_login(db: None, act: str) -> None:
    instance = made(act)
    before = facts(instance)
    for client in (Client(), _customer()):
        response = client.post(url(instance, act), fields(act))
        assert response.status_code == 302
        assert "/login/" in response["Location"]
    assert facts(instance) == before


def _customer() -> Client:
    client = Client()
    client.force_login(User.objects.create_user("customer"))
    return client


@pytest.mark.parametrize("act", ACTS)
def test_a_get_changes_nothing_and_asks(db: None, admin_client: Client, act: str) -> None:
    instance = made(act)
    before = facts(instance)
    for address in (url(instance, act), url(instance, act) + "?reason=x&confirmed=yes&signal_id=1&name=acts.approved"):
        page = admin_client.get(address)
        assert page.status_code == 200
        assert 'name="reason"' in page.content.decode()
        assert "csrfmiddlewaretoken" in page.content.decode()
    admin_client.get(LIST, chosen(act, instance, confirmed="yes", **fields(act)))
    assert facts(instance) == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("method", ["put", "delete", "patch", "options"])
def test_other_methods_are_refused(db: None, admin_client: Client, method: str) -> None:
    instance = made()
    before = facts(instance)
    assert getattr(admin_client, method)(url(instance, "cancel")).status_code == 405
    assert facts(instance) == before


@pytest.mark.parametrize("act", ACTS)
def test_without_a_csrf_token_nothing_is_done(db: None, admin_user: User, act: str) -> None:
    instance = made(act)
    before = facts(instance)
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)
    assert client.post(url(instance, act), fields(act)).status_code == 403
    assert client.post(LIST, chosen(act, instance, confirmed="yes", **fields(act))).status_code == 403
    assert facts(instance) == before


@pytest.mark.parametrize("act", ["purge", "delete_selected", "send_signal", ""])
def test_an_action_that_is_none_is_ignored(db: None, admin_client: Client, act: str) -> None:
    instance = made()
    before = facts(instance)
    assert admin_client.post(LIST, chosen(act, instance, confirmed="yes")).status_code in (200, 302)
    assert admin_client.post(LIST + f"{instance.pk}/change/", {"action": act, "state": "FAILED"}).status_code == 403
    assert facts(instance) == before


# -- what is done ------------------------------------------------------------------------------------------------------


EXPECTED = {
    "cancel": ("Cancel: WAITING -> WAITING, cancel requested", "cancel requested"),
    "terminate": ("Terminate: WAITING -> TERMINATED, terminated", "terminated"),
    "pause": ("Pause: WAITING -> PAUSED, paused", "paused"),
    "resume": ("Resume: PAUSED -> WAITING, resumed", "resumed"),
    "retry": ("Retry: FAILED -> RUNNING, will be tried again", "will be tried again"),
    "signal": ("Signal: WAITING -> WAITING, signal 'acts.approved' sent", "signal 'acts.approved' sent"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("way", ["page", "list"])
def test_an_act_is_done_and_logged_with_user_states_and_reason(
    db: None, admin_client: Client, admin_user: User, act: str, way: str
) -> None:
    instance = made(act)
    before = facts(instance)
    given = fields(act, reason="the customer called")
    if way == "page":
        response = admin_client.post(url(instance, act), given)
        assert response["Location"] == LIST + f"{instance.pk}/change/"
    else:
        asked = admin_client.post(LIST, chosen(act, instance))
        assert asked.status_code == 200
        assert str(instance) in asked.content.decode()
        assert facts(instance) == before
        response = admin_client.post(LIST, chosen(act, instance, confirmed="yes", **given))
        assert response["Location"] == LIST
    logged, told = EXPECTED[act]
    assert said(response) == [f"{told}: {instance}"]
    assert facts(instance) != before
    entry = LogEntry.objects.get()
    assert entry.change_message == f"{logged}. Reason: the customer called"
    assert (entry.user, entry.object_id, entry.action_flag) == (admin_user, str(instance.pk), CHANGE)
    assert entry.get_edited_object() == instance
    assert logged in admin_client.get(LIST + f"{instance.pk}/history/").content.decode().replace("&gt;", ">").replace(
        "&#x27;", "'"
    )


def test_a_pause_keeps_its_reason_on_the_page_and_a_resume_lets_it_go(pump: Pump, admin_client: Client) -> None:
    instance = made()
    admin_client.post(url(instance, "pause"), {"reason": "stocktaking"})
    page = LIST + f"{instance.pk}/change/"
    assert "stocktaking" in admin_client.get(page).content.decode()
    approved.send(instance, Approval("ana"))
    pump.drain()
    assert row(instance.pk).state == t.WAITING
    admin_client.post(url(instance, "resume"), {"reason": ""})
    assert "stocktaking" not in admin_client.get(page).content.decode()
    pump.finish()
    assert row(instance.pk).state == t.COMPLETED


def test_terminating_many_says_how_many_and_which_were_refused(pump: Pump, admin_client: Client) -> None:
    instances = [made() for _ in range(3)]
    approved.send(instances[1], Approval("ana"))
    pump.finish()
    assert row(instances[1].pk).state == t.COMPLETED
    response = admin_client.post(LIST, chosen("terminate", *instances, confirmed="yes", reason="old"))
    assert [row(one.pk).state for one in instances] == [t.TERMINATED, t.COMPLETED, t.TERMINATED]
    done, refused = said(response)
    assert done == "terminated: 2 instances"
    assert refused == f"refused for {instances[1]}: it is COMPLETED or about to be, and cannot be terminated"
    assert LogEntry.objects.count() == 2


def test_more_than_the_most_are_refused_before_anything_is_done(
    db: None, admin_client: Client, monkeypatch: Any
) -> None:
    monkeypatch.setattr("django_app.admin.steering.MOST", 2)
    instances = [made() for _ in range(3)]
    response = admin_client.post(LIST, chosen("terminate", *instances, confirmed="yes"))
    assert said(response) == [
        "At most 2 instances can be chosen at once; use the filters, or manage.py durable terminate."
    ]
    assert {row(one.pk).state for one in instances} == {t.WAITING}


# -- text of others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["cancel", "pause", "terminate"])
def test_markup_in_a_reason_is_text_wherever_it_is_shown(pump: Pump, admin_client: Client, act: str) -> None:
    instance = made()
    admin_client.post(url(instance, act), {"reason": XSS}, follow=True)
    pump.finish()
    assert XSS in LogEntry.objects.get().change_message
    pages = [f"{instance.pk}/change/", f"{instance.pk}/history/", "", f"{instance.pk}/{act}/"]
    for page in (*(LIST + page for page in pages), "/admin/"):
        text = admin_client.get(page).content.decode()
        assert "<script>window.p" not in text
        assert "<img src=x" not in text


def test_markup_in_a_key_is_text_in_messages_and_on_the_confirmation(db: None, admin_client: Client) -> None:
    instance = made(key=XSS)
    asked = admin_client.get(url(instance, "pause")).content.decode()
    told = admin_client.post(url(instance, "pause"), {"reason": ""}, follow=True).content.decode()
    assert "&lt;script&gt;window.p=1" in asked
    assert "&lt;script&gt;window.p=1" in told
    assert "<script>window.p" not in asked + told
    assert "<img src=x" not in asked + told


def test_a_reason_that_is_too_long_is_an_error_of_the_form(db: None, admin_client: Client) -> None:
    instance = made()
    page = admin_client.post(url(instance, "cancel"), {"reason": "x" * 1001})
    assert page.context["form"].errors["reason"]
    assert row(instance.pk).cancel_requested_at is None
