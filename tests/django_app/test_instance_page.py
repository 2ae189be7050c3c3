"""The page of one instance in the admin."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_app.models import WorkflowInstance
from durable_celery import RetryPolicy
from durable_celery.codec import encode
from durable_celery.core.handlers import Answer
from tests.django_app.browsing import drawing_in, squeezed, text_of, url_of
from tests.django_app.rows import at, call, failed, new_attempt, new_instance, new_message, new_step

pytestmark = pytest.mark.django_db


def test_the_page_shows_state_waiting_key_and_times(admin_client: Any) -> None:
    instance = new_instance(
        key="order-7", waiting_for="signal 'paid' at 2", status_text="waiting for the customer", started_at=at(1)
    )
    text = squeezed(text_of(admin_client, url_of(instance)))
    for expected in (
        "shop.fulfil_order",
        "order-7",
        "WAITING",
        "signal &#x27;paid&#x27; at 2",
        "waiting for the customer",
    ):
        assert expected in text
    assert str(instance.pk) in text
    assert "Open for" in text


def test_steps_are_shown_with_attempts_and_the_policy_they_were_scheduled_with(admin_client: Any) -> None:
    instance = new_instance()
    step = new_step(
        instance, "1", state="RETRYING", attempt=2, failures=2, failure=failed(OSError("no luck 2")), due_at=at(90),
        retry=RetryPolicy(maximum_attempts=5), started_at=at(2),
    )  # fmt: skip
    new_attempt(step, 1, OSError("no luck 1"), node="celery@a")
    new_attempt(step, 2, OSError("no luck 2"), node="celery@a")
    text = squeezed(text_of(admin_client, url_of(instance)))
    assert "attempt 2 of 5" in text
    assert "OSError: no luck 2" in text
    assert "1 earlier attempt" in text
    assert "attempt 1: failed" in text
    assert "OSError: no luck 1" in text
    assert "Traceback (most recent call last)" in text
    assert "celery@a" in text
    assert f"again at {at(90):%Y-%m-%d %H:%M:%S}" in text


def test_arguments_and_results_are_laid_out_by_name(admin_client: Any) -> None:
    instance = new_instance(
        name="tests.console.purchase", args=call(7, "x"), result=encode({"total": 3}), state="COMPLETED"
    )
    new_step(instance, "1", name="tests.console.pay", args=call(7, pin="1"), result=encode(["a", ("b", 1)]))
    text = text_of(admin_client, url_of(instance))
    assert '<pre class="durable-value">order_id = 7' in text
    assert "{&#x27;total&#x27;: 3}" in text
    assert "[&#x27;a&#x27;, (&#x27;b&#x27;, 1)]" in text


def test_a_failed_instance_shows_its_error_with_the_traceback(admin_client: Any) -> None:
    instance = new_instance(state="FAILED", failure=failed(ValueError("no stock")), finished_at=at(9))
    text = text_of(admin_client, url_of(instance))
    assert "ValueError: no stock" in squeezed(text)
    assert "raise error" in text
    assert "durable-failed" in text


def test_messages_are_shown_and_unread_ones_marked(admin_client: Any) -> None:
    instance = new_instance()
    new_message(instance, "paid", {"amount": 5}, taken_turn=2, taken_at=at(3), delivered_turn=2, dedupe="webhook-77")
    new_message(instance, "nobody waits", "hello")
    text = text_of(admin_client, url_of(instance))
    assert "{&#x27;amount&#x27;: 5}" in text
    assert "webhook-77" in text
    assert text.count('<tr class="durable-unread">') == 1
    assert text.index("paid") < text.index("nobody waits")


def test_a_message_that_a_turn_saw_and_nobody_took_is_unread(admin_client: Any) -> None:
    new_message(new_instance(), "nobody waits", "hello", taken_turn=2, taken_at=at(3))
    assert '<tr class="durable-unread">' in text_of(admin_client, url_of(WorkflowInstance.objects.get()))


def test_updates_are_shown_with_their_answers_and_rejected_ones_not_at_all(admin_client: Any) -> None:
    instance = new_instance()
    took = {"kind": "update", "taken_turn": 1, "taken_at": at(2), "delivered_turn": 1}
    new_message(instance, "add", [1], answer=Answer(value=encode({"items": 7})).to_text(), **took)
    new_message(instance, "odd", [2], answer=Answer(failure=failed(LookupError("no item"))).to_text(), **took)
    new_message(instance, "nonsense", [3], answer="{", **took)
    new_message(instance, "refused", [4], kind="rejected", taken_turn=0, answer="{}")
    text = text_of(admin_client, url_of(instance))
    assert "{&#x27;items&#x27;: 7}" in text
    assert "LookupError: no item" in text
    assert "nonsense" in text
    assert "refused" not in text
    assert "durable-unread" not in text


def test_the_timeline_has_a_bar_for_each_attempt_and_no_script(admin_client: Any) -> None:
    instance = new_instance()
    step = new_step(instance, "1", attempt=2, started_at=at(4), finished_at=at(6))
    new_attempt(step, 1, OSError("no luck"))
    new_step(instance, "2", kind="timer", name="", state="SCHEDULED", attempt=0, due_at=at(600))
    text = text_of(admin_client, url_of(instance))
    drawing = drawing_in(text)
    looks = re.findall(r"durable-bar-(\w+)", drawing)
    assert looks == ["queued", "failed", "good", "waiting"]
    assert "attempt 1: failed (500 ms)" in drawing
    assert "attempt 2: SUCCEEDED (2 s)" in drawing
    assert "script" not in drawing


def test_numbers_in_the_drawing_and_in_links_do_not_follow_the_locale(admin_client: Any, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    settings.USE_THOUSAND_SEPARATOR = True
    instance = new_instance()
    for number in range(1, 102):
        new_step(instance, str(number), started_at=at(number), finished_at=at(number + 0.37))
    text = text_of(admin_client, url_of(instance))
    drawing = drawing_in(text)
    for value in re.findall(r' (?:x|y|x1|x2|y1|y2|width|height)="([^"]*)"', drawing):
        float(value)
    assert 'href="?p=2#steps"' in text


@pytest.mark.parametrize("place", ["chain", "run"])
def test_the_page_is_found_by_the_id_of_its_chain_and_of_a_run(admin_client: Any, place: str) -> None:
    chain_id = uuid4()
    run = new_instance(key="order-7", chain_id=chain_id)
    wanted = chain_id if place == "chain" else run.pk
    response = admin_client.get(reverse("admin:durable_celery_workflowinstance_change", args=[wanted]))
    assert response.status_code == 200
    assert response.context["original"].pk == run.pk


@pytest.mark.parametrize("wanted", [str(uuid4()), "no-uuid"])
def test_an_unknown_id_leads_back_with_a_message(admin_client: Any, wanted: str) -> None:
    response = admin_client.get(reverse("admin:durable_celery_workflowinstance_change", args=[wanted]), follow=True)
    assert response.redirect_chain[0][1] == 302
    assert "doesn’t exist" in response.content.decode()


def test_parents_and_children_are_links(admin_client: Any) -> None:
    parent = new_instance(key="parent")
    child = new_instance(key="child", parent_id=parent.pk, parent_position="3")
    assert f'<a href="{url_of(child)}">' in text_of(admin_client, url_of(parent))
    text = text_of(admin_client, url_of(child))
    assert f'<a href="{url_of(parent)}">' in text
    assert "position 3" in text
    assert "<select" not in text


def test_the_subject_is_a_link_where_the_admin_has_it(admin_client: Any, admin_user: Any) -> None:
    instance = new_instance(subject_type="auth.user", subject_id=str(admin_user.pk))
    assert f'<a href="/admin/auth/user/{admin_user.pk}/change/">' in text_of(admin_client, url_of(instance))
    strange = new_instance(subject_type="gone.model", subject_id="javascript:alert(1)")
    text = text_of(admin_client, url_of(strange))
    assert "gone.model javascript:alert(1)" in text
    assert 'href="javascript' not in text


# -- size and cost -----------------------------------------------------------------------------------------------------


def test_the_number_of_queries_does_not_grow_with_history(admin_client: Any) -> None:
    def count(instance: Any) -> int:
        with CaptureQueriesContext(connection) as queries:
            text_of(admin_client, url_of(instance))
        return len(queries)

    small, large = new_instance(), new_instance()
    for instance, size in ((small, 2), (large, 60)):
        for number in range(1, size):
            step = new_step(instance, str(number), attempt=3, failure=failed(OSError("x")), started_at=at(number))
            new_attempt(step, 1, OSError("no luck"))
            new_message(instance, "paid")
            new_instance(parent_id=instance.pk)
    assert count(large) == count(small) <= 12


def test_steps_are_paged_by_a_hundred(admin_client: Any) -> None:
    instance = new_instance()
    for number in range(1, 251):
        new_step(instance, str(number))
    first = text_of(admin_client, url_of(instance))
    assert first.count('<tr id="step-') == 100
    assert "1 to 100 of 250" in first
    last = text_of(admin_client, url_of(instance, "?p=3"))
    assert last.count('<tr id="step-') == 50
    assert 'id="step-250"' in last
    assert text_of(admin_client, url_of(instance, "?p=nonsense")).count('<tr id="step-') == 100


def test_a_history_of_large_values_makes_a_page_under_a_megabyte(admin_client: Any) -> None:
    instance = new_instance(args=call("<" * 900_000), result=encode("&" * 900_000))
    for number in range(1, 101):
        step = new_step(
            instance, str(number), args=call("x" * 10_000), result=encode("'" * 10_000), attempt=9, state="FAILED",
            failure=failed(ValueError("<" * 4_000)),
        )  # fmt: skip
        for attempt in range(4, 9):
            new_attempt(step, attempt, ValueError("<" * 4_000))
    text = text_of(admin_client, url_of(instance))
    assert len(text.encode()) < 1_000_000
    assert text.count('<tr id="step-') == 100


def test_a_value_too_large_for_the_table_is_not_read_for_it_and_stands_on_the_step_page(admin_client: Any) -> None:
    instance = new_instance()
    step = new_step(instance, "2.0", args=call(note="begin" + "x" * 50_000), result=encode("y" * 50_000))
    text = text_of(admin_client, url_of(instance))
    assert "xxxxxxxx" not in text
    assert "shown on the step&#x27;s own page" in text
    url = reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, step.position])
    assert f'href="{url}"' in text
    whole = text_of(admin_client, url)
    assert "begin" + "x" * 50_000 in whole
    assert "y" * 50_000 in whole


def test_the_page_of_a_step_has_all_its_attempts(admin_client: Any) -> None:
    instance = new_instance()
    step = new_step(instance, "1", attempt=12, state="FAILED", failure=failed(OSError("no luck 12")))
    for number in range(1, 13):
        new_attempt(step, number, OSError(f"no luck {number}"))
    table = squeezed(text_of(admin_client, url_of(instance)))
    assert "11 earlier attempts" in table
    assert "no luck 11" in table
    assert "no luck 3 " not in table
    url = reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, "1"])
    text = squeezed(text_of(admin_client, url))
    for number in range(1, 13):
        assert f"OSError: no luck {number} " in text


def test_the_page_of_a_step_that_is_not_there_is_not_found(admin_client: Any) -> None:
    url = reverse("admin:durable_celery_workflowinstance_step", args=[new_instance().pk, "9"])
    assert admin_client.get(url).status_code == 404


def test_the_old_pages_of_a_model_admin_change_nothing(admin_client: Any) -> None:
    instance = new_instance()
    history = reverse("admin:durable_celery_workflowinstance_history", args=[instance.pk])
    assert admin_client.get(history).status_code in (200, 302, 403)
    assert admin_client.post(url_of(instance), {"_save": "1"}).status_code == 403
