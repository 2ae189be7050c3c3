"""The list of instances in the admin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from django_app import waiting
from django_app.admin import paginator
from tests.django_app.rows import at, failed, new_instance, new_step

pytestmark = pytest.mark.django_db

LIST = "/admin/durable_celery/workflowinstance/"


def rows_of(response: Any) -> list[str]:
    return [row.key for row in response.context["cl"].result_list]


def page(client: Any, query: str = "") -> Any:
    response = client.get(LIST + query)
    assert response.status_code == 200, response
    return response


def test_the_list_shows_state_key_and_what_it_waits_for(admin_client: Any) -> None:
    assert reverse("admin:durable_celery_workflowinstance_changelist") == LIST
    new_instance(key="order-1", waiting_for="signal 'paid' at 3, until tomorrow")
    text = page(admin_client).content.decode()
    assert "order-1" in text
    assert "shop.fulfil_order" in text
    assert '<span class="durable-badge durable-waiting">WAITING</span>' in text
    assert "signal &#x27;paid&#x27; at 3, until tomorrow" in text


def test_a_paused_instance_is_shown_as_paused_and_found_by_that_state(admin_client: Any) -> None:
    new_instance(key="running")
    new_instance(key="resting", paused_at=at(5))
    new_instance(key="ended", paused_at=at(5), state="FAILED")
    response = page(admin_client, "?state=PAUSED")
    assert rows_of(response) == ["resting"]
    assert ">PAUSED</span>" in response.content.decode()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?state=WAITING", ["b", "a"]),
        ("?state=COMPLETED", ["c"]),
        ("?state=open", ["b", "a"]),
        ("?state=stuck", ["b"]),
        ("?state=retrying", ["a"]),
        ("?state__exact=COMPLETED", ["c"]),
        ("?name=shop.other", ["c"]),
        ("?name=shop.other&state=WAITING", []),
        ("?name=a%00b", []),
        ("?state=a%00b", []),
    ],
)
def test_filters_by_state_and_workflow(admin_client: Any, query: str, expected: list[str]) -> None:
    retried = new_instance(key="a")
    new_step(retried, "1", state="RETRYING", attempt=2, due_at=at(60))
    new_instance(key="b", expected_at=timezone.now() - timedelta(hours=1))
    new_instance(key="c", name="shop.other", state="COMPLETED")
    assert rows_of(page(admin_client, query)) == expected


def test_what_is_waited_for_is_what_the_rows_say_now(admin_client: Any) -> None:
    instance = new_instance(key="a", waiting_for="what the last turn said")
    secret = failed(ValueError("SECRET-1"))
    new_step(instance, "1", state="RETRYING", attempt=3, due_at=at(60), failure=secret, scheduled_at=at(0))
    for number in range(7):
        new_step(instance, f"2.{number}", state="SCHEDULED", attempt=0)
    new_step(instance, "3", state="SUCCEEDED", taken_turn=1)
    text = page(admin_client).content.decode()
    assert "step shop.charge at 1, attempt 3 of 5 is over, the next at 2026-11-29 12:01:00 UTC; step" in text
    assert "SECRET-1" not in text
    assert waiting.words([instance], now=at(0), errors=False)[instance.pk].endswith("; and 3 more")


def test_search_finds_an_id_and_the_beginning_of_a_key(admin_client: Any) -> None:
    first = new_instance(key="order-10")
    new_instance(key="order-11")
    new_instance(key="other-order-1", chain_id=first.pk, run_number=2)
    assert rows_of(page(admin_client, "?q=order-1")) == ["order-11", "order-10"]
    assert rows_of(page(admin_client, f"?q={first.pk}")) == ["other-order-1", "order-10"]
    assert rows_of(page(admin_client, f"?q={str(first.pk).replace('-', '')}")) == ["other-order-1", "order-10"]
    assert rows_of(page(admin_client, f"?q={uuid4()}")) == []
    assert rows_of(page(admin_client, "?q=10")) == []


@pytest.mark.parametrize("query", ["", "?state=WAITING&q=order", "?o=-7", "?p=2"])
def test_the_number_of_queries_does_not_grow_with_the_rows(admin_client: Any, query: str) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page(admin_client, query)
        return len(queries)

    for number in range(51):
        new_step(new_instance(key=f"order-{number}"), "1", state="RUNNING")
    few = count()
    for number in range(51, 120):
        new_step(new_instance(key=f"order-{number}"), "1", state="RUNNING")
    assert count() == few <= 10


def test_big_texts_are_not_read_for_the_list(admin_client: Any) -> None:
    new_instance(key="a")
    with CaptureQueriesContext(connection) as queries:
        page(admin_client)
    listed = [q["sql"] for q in queries if "waiting_for" in q["sql"]]
    assert len(listed) == 1
    for column in ("args", "result", "failure", "attributes", "memo"):
        assert f'"{column}"' not in listed[0].replace("`", '"')


def test_counting_stops_at_the_limit_and_says_so(admin_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paginator, "LIMIT", 60)
    for number in range(70):
        new_instance(key=str(number))
    with CaptureQueriesContext(connection) as queries:
        text = page(admin_client).content.decode()
    counts = [q["sql"] for q in queries if "COUNT(*)" in q["sql"] and "workflowinstance" in q["sql"]]
    assert counts
    assert all("LIMIT 61" in sql for sql in counts)
    assert "more than 60 workflow instances" in " ".join(text.split())


def test_nothing_can_be_added_changed_or_deleted(admin_client: Any) -> None:
    instance = new_instance(key="a")
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.get(f"{LIST}{instance.pk}/delete/").status_code == 403
    assert admin_client.post(f"{LIST}{instance.pk}/change/", {"state": "FAILED"}).status_code == 403
    body = {"action": "delete_selected", "_selected_action": str(instance.pk), "post": "yes"}
    assert admin_client.post(LIST, body).status_code in (200, 302)
    instance.refresh_from_db()
    assert instance.state == "WAITING"
    text = page(admin_client).content.decode()
    assert "delete_selected" not in text
    assert "workflowinstance/add/" not in text


def test_staff_without_the_view_permission_sees_nothing(client: Any, django_user_model: Any) -> None:
    instance = new_instance(key="a")
    client.force_login(django_user_model.objects.create_user("eve", is_staff=True))
    assert client.get(LIST).status_code == 403
    assert client.get(f"{LIST}{instance.pk}/change/").status_code == 403
    assert client.get(f"{LIST}{instance.pk}/steps/1/").status_code == 403


def test_keys_and_states_are_shown_as_text(admin_client: Any) -> None:
    evil = "<script>window.p=1</script>"
    new_instance(key=evil, name=evil, waiting_for=f"{evil} '\"><img src=x onerror=window.p=1>")
    text = page(admin_client).content.decode()
    assert evil not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;window.p=1&lt;/script&gt;" in text
