"""A map on the pages: one row for all its members, which have pages of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_app.models import StepResult
from durable_celery.codec import encode
from tests.django_app.browsing import squeezed, text_of, url_of
from tests.django_app.rows import call, failed, new_instance, new_step

pytestmark = pytest.mark.django_db


def new_map(instance: Any, position: str, members: int, ended: int) -> None:
    new_step(instance, position, kind="map", name="shop.ship", state="SCHEDULED", members=members, attempt=0, args="")
    StepResult.objects.bulk_create(
        StepResult(
            instance=instance, position=f"{position}.{n}", kind="step", name="shop.ship", mapped=True, group=position,
            state="SCHEDULED" if n >= ended else "FAILED" if n == 1 else "SUCCEEDED", args=call(n),
            result=encode(f"parcel {n}") if n < ended and n != 1 else None,
            failure=failed(OSError("no lorry")) if n == 1 else None,
            scheduled_at=instance.created_at, attempt=int(n < ended),
        )
        for n in range(members)
    )  # fmt: skip


def step_url(instance: Any, position: str) -> str:
    return reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, position])


def queries(client: Any, url: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return len(captured)


def test_the_page_of_an_instance_sums_a_map_up(admin_client: Any) -> None:
    instance = new_instance()
    new_map(instance, "1", 1200, 120)
    html = admin_client.get(url_of(instance)).content.decode()
    text = squeezed(html)
    assert "120 of 1,200 ended, 1 failed" in text
    assert "map at 1, 120 of 1,200 ended (1 failed)" in text
    assert "parcel 3" not in text
    assert 'id="step-1"' in html
    assert 'id="step-1.0"' not in html


def test_the_page_of_a_map_shows_its_members_a_page_at_a_time(admin_client: Any) -> None:
    instance = new_instance()
    new_map(instance, "1", 250, 120)
    html = admin_client.get(step_url(instance, "1")).content.decode()
    first = squeezed(html)
    assert "120 of 250 ended, 1 failed" in first
    assert html.count('<tr id="step-1.') == 100
    assert "parcel 3" in first
    assert "OSError: no lorry" in first
    third = admin_client.get(step_url(instance, "1") + "?p=3").content.decode()
    assert third.count('<tr id="step-1.') == 50
    assert "201 to 250 of 250" in third
    assert "1.7" in text_of(admin_client, step_url(instance, "1.7"))


def test_the_pages_ask_no_more_for_more_members(admin_client: Any) -> None:
    few, more = new_instance(), new_instance()
    new_map(few, "1", 5, 3)
    new_map(more, "1", 600, 300)
    new_map(more, "2", 600, 300)
    admin_client.get(url_of(few))
    assert queries(admin_client, url_of(few)) == queries(admin_client, url_of(more))
    assert queries(admin_client, step_url(few, "1")) == queries(admin_client, step_url(more, "1"))


def test_the_command_lists_the_map_and_its_members_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    instance = new_instance(key="order-9")
    new_map(instance, "1", 3, 3)
    call_command("durable", "history", str(instance.pk), "--json")
    assert [entry["position"] for entry in json.loads(capsys.readouterr().out)] == ["1"]
    call_command("durable", "history", str(instance.pk), "--of", "1", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [entry["position"] for entry in found] == ["1.0", "1.1", "1.2"]
    assert [entry["state"] for entry in found] == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
