"""Parents and children on the pages: links both ways, the chain of causes, and no secret of either."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.urls import reverse

from django_app import records
from durable_celery import Workflow, WorkflowFailed, gather, get_handle, step, workflow
from tests.django_app.browsing import squeezed, text_of, url_of
from tests.pump import Pump, counted

pytestmark = pytest.mark.django_db(transaction=True)


class Declined(Exception):
    pass


@step(name="families.pay", retry=None, redact=("pin",))
def pay(amount: int, pin: str) -> None:
    raise Declined(f"pin {pin} is wrong for {amount}")


@workflow(name="families.paying", redact=("card",))
def paying(amount: int, card: str) -> Workflow[None]:
    yield from pay(amount, f"{card}-9876")


@workflow(name="families.buying")
def buying(amount: int) -> Workflow[None]:
    yield from paying(amount, "4711-0815")


@workflow(name="families.free")
def free(number: int) -> int:
    return number


@workflow(name="families.many")
def many(count: int) -> Workflow[Any]:
    return (yield from gather(*[free(number) for number in range(count)]))


def instance_of(handle: Any) -> Any:
    from django_app.models import WorkflowInstance

    return WorkflowInstance.objects.get(pk=handle.id)


def test_parent_and_child_link_to_each_other(pump: Pump, admin_client: Any) -> None:
    handle = buying.start(5)
    pump.drain()
    parent = instance_of(handle)
    child = type(parent).objects.get(parent_id=parent.pk)
    assert f'href="{url_of(child)}"' in text_of(admin_client, url_of(parent))
    page = text_of(admin_client, url_of(child))
    assert f'href="{url_of(parent)}"' in page
    assert "position 1" in squeezed(page)
    step_url = reverse("admin:durable_celery_workflowinstance_step", args=[parent.pk, "1"])
    assert admin_client.get(step_url.replace("/1/", "/%00/")).status_code == 404
    assert f'href="{url_of(child)}"' in text_of(admin_client, step_url)


def test_where_an_error_came_from_stands_with_it_and_its_secrets_do_not(pump: Pump, admin_client: Any) -> None:
    handle = buying.start(5)
    pump.drain()
    with pytest.raises(WorkflowFailed) as caught:
        handle.result(timeout=0)
    assert "pin 4711-0815-9876 is wrong" in str(caught.value.causes[-1])  # the program itself may know
    parent = instance_of(handle)
    child = type(parent).objects.get(parent_id=parent.pk)
    for instance in (parent, child):
        page = text_of(admin_client, url_of(instance))
        assert "4711" not in page
        assert "caused by Declined: pin" in squeezed(page)
    shown = records.whole(parent, "")
    assert "4711" not in str(shown)
    assert len(shown["error"]["causes"]) == 2
    (entry,) = records.entries(parent, list(parent.steps.all()))
    assert "4711" not in str(entry)
    assert entry["args"]["args"] if "args" in entry["args"] else entry["args"]


def test_what_is_waited_for_names_the_child(pump: Pump, admin_client: Any) -> None:
    handle = buying.start(5)
    pump.deliver(pump.queue[0])
    child_id = pump.queue[0].instance
    assert handle.waiting_for == f"child families.paying at 1 ({child_id}), since 2026-11-29 12:00:00 UTC"
    assert str(child_id) in squeezed(text_of(admin_client, url_of(instance_of(handle))))
    assert get_handle(UUID(str(child_id))).status == "PENDING"


def test_the_queries_of_a_page_do_not_grow_with_the_children(pump: Pump, admin_client: Any) -> None:
    figures = []
    for count in (2, 2, 12):
        handle = many.start(count)
        pump.drain()
        parent = instance_of(handle)
        with counted() as sent:
            text_of(admin_client, url_of(parent))
        figures.append(len(sent))
    assert figures[1] == figures[2]
