"""What pages of the admin must not let through: markup, secrets, damage."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse

from durable_celery.codec import encode
from tests.django_app.browsing import squeezed, text_of, url_of
from tests.django_app.definitions import Card
from tests.django_app.rows import call, failed, new_attempt, new_instance, new_message, new_step

pytestmark = pytest.mark.django_db

EVIL = "<script>window.p=1</script>"
DAMAGED = ["{not json", '{"$":"object","t":"gone.module:Receipt","v":{"id":1}}', '{"$":"unknown"}']
EVIL_TAG = "'\"><img src=x onerror=window.p=1>"


def hostile_instance() -> Any:
    instance = new_instance(
        name=EVIL, key=EVIL_TAG, waiting_for=EVIL, status_text=EVIL_TAG, args=call(EVIL, **{EVIL: EVIL_TAG}),
        result=encode({EVIL: EVIL_TAG}), failure=failed(ValueError(EVIL)), attributes={EVIL: EVIL_TAG}, queue=EVIL,
        subject_type=f"auth.{EVIL}", subject_id="javascript:window.p=1", pause_reason=EVIL,
    )  # fmt: skip
    step = new_step(
        instance, "1", name=EVIL, args=call(EVIL_TAG), result=encode(EVIL), attempt=3, state="FAILED",
        failure=failed(ValueError(EVIL_TAG)),
    )  # fmt: skip
    new_attempt(step, 1, ValueError(EVIL), node=EVIL, outcome="superseded", result=encode(EVIL))
    new_message(instance, EVIL, {EVIL: EVIL_TAG}, dedupe=EVIL)
    return instance


def test_nothing_stored_becomes_markup(admin_client: Any) -> None:
    instance = hostile_instance()
    step_url = reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, "1"])
    for url in (url_of(instance), step_url):
        text = text_of(admin_client, url)
        assert EVIL not in text
        assert "<img src=x" not in text
        assert 'href="javascript' not in text
        assert "&lt;script&gt;window.p=1&lt;/script&gt;" in text
        own = text[text.index('id="content-main"') :]
        assert not re.search(r"<script|\son\w+=\"|style=\"", own[: own.index("</main>") if "</main>" in own else None])


@pytest.mark.parametrize(
    "damaged",
    ["{not json", '{"$":"object","t":"gone.module:Receipt","v":{"id":1}}', '{"$":"unknown"}', "", "null", "[]"],
)
def test_what_cannot_be_decoded_is_shown_raw_and_breaks_nothing(admin_client: Any, damaged: str) -> None:
    instance = new_instance(args=damaged, result=damaged, failure=damaged, name="tests.console.purchase")
    new_step(instance, "1", args=damaged, result=damaged, failure=damaged, options=damaged, kind="signal", name="paid")
    new_message(instance, "paid", payload=damaged)
    text = squeezed(text_of(admin_client, url_of(instance)))
    if "gone.module" in damaged:
        assert "gone.module:Receipt" in text


def test_declared_secrets_are_hidden_wherever_they_appear(admin_client: Any) -> None:
    instance = new_instance(
        name="tests.console.purchase", args=call(7, "VOUCHER-1", password="hunter2"), state="FAILED",
        failure=failed(ValueError("voucher VOUCHER-1 is used")), status_text="checking VOUCHER-1",
    )  # fmt: skip
    step = new_step(
        instance, "1", name="tests.console.pay", state="FAILED", attempt=2,
        args=call(7, "9876543", Card(holder="Ana", number="4111", pin="5555555")),
        failure=failed(ValueError("pin 9876543 refused by hunter2")), result=encode({"voucher_code": "VOUCHER-1"}),
    )  # fmt: skip
    new_attempt(step, 1, ValueError("pin 9876543 refused"))
    new_message(instance, "login", {"user": "ana", "password": "hunter2"})
    step_url = reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, "1"])
    for url in (url_of(instance), step_url):
        text = text_of(admin_client, url)
        for secret in ("hunter2", "VOUCHER-1", "9876543", "5555555"):
            assert secret not in text, (url, secret)
        assert "[redacted]" in text
        assert "Ana" in text


def test_an_undecodable_call_that_may_hold_a_secret_is_hidden_as_a_whole(admin_client: Any) -> None:
    instance = new_instance(name="tests.console.purchase", args='[[7, {"$": "unknown", "x": "SECRET-1"}], {}]')
    assert "SECRET-1" not in text_of(admin_client, url_of(instance))


def test_positions_of_an_unknown_definition_are_hidden(admin_client: Any) -> None:
    instance = new_instance(name="gone.workflow", args=call("SECRET-1", mood="fine"))
    text = text_of(admin_client, url_of(instance))
    assert "SECRET-1" not in text
    assert "mood = &#x27;fine&#x27;" in text
    assert "its name is not known to this process" in text


def test_secrets_of_arguments_too_large_to_read_do_not_show_in_errors(admin_client: Any) -> None:
    instance = new_instance()
    new_step(
        instance, "1", name="tests.console.pay", args=call(7, "9876543", note="x" * 20_000), state="FAILED",
        failure=failed(ValueError("pin 9876543 refused")),
    )  # fmt: skip
    text = text_of(admin_client, url_of(instance))
    assert "9876543" not in text
    assert "ValueError: the text stands on the step&#x27;s own page" in text
    url = reverse("admin:durable_celery_workflowinstance_step", args=[instance.pk, "1"])
    assert "ValueError: pin [redacted] refused" in text_of(admin_client, url)


def test_secrets_of_a_step_on_another_page_do_not_show_in_the_error_of_the_instance(admin_client: Any) -> None:
    failure = failed(ValueError("step tests.console.pay: pin 9876543 refused"))
    instance = new_instance(state="FAILED", failure=failure)
    for number in range(1, 101):
        new_step(instance, str(number))
    new_step(instance, "101", name="tests.console.pay", args=call(7, "9876543"), state="FAILED", failure=failure)
    text = text_of(admin_client, url_of(instance))
    assert "9876543" not in text
    assert "pin [redacted] refused" in text


def test_positions_of_an_unknown_definition_are_hidden_in_its_errors_too(admin_client: Any) -> None:
    instance = new_instance(
        name="gone.workflow", args=call("SECRET-1"), state="FAILED", failure=failed(ValueError("SECRET-1 is bad"))
    )
    assert "SECRET-1" not in text_of(admin_client, url_of(instance))


def test_lone_surrogates_and_nul_are_shown_as_escapes(admin_client: Any) -> None:
    instance = new_instance(result=encode("a\0b\ud800c"), failure=failed(ValueError("x\0y\ud800z")), state="FAILED")
    text = text_of(admin_client, url_of(instance))
    assert "\\x00" in text
    assert "\\ud800" in text
