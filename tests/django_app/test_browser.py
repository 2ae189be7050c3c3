"""The admin in a real browser: an instance is cancelled by clicking, and no text of others becomes markup."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry

from django_app.models import WorkflowInstance
from durable_celery import Signal, Workflow, step, workflow
from durable_celery.core import transitions as t
from tests.browser import outside_the_browser
from tests.pump import Pump

pytestmark = [pytest.mark.browser, pytest.mark.engine]

XSS = "<script>window.p=1</script>\"'><img src=x onerror=window.p=1>"
LIST = "/admin/durable_celery/workflowinstance/"

sold = Signal("browser.sold")


@step(name="tests.browser.echo")
def echo(text: str) -> str:
    return text


@step(name="tests.browser.breaks", retry=None)
def breaks(text: str) -> str:
    raise ValueError(text)


@workflow(name="tests.browser.selling", key=lambda text: text[:180])
def selling(text: str) -> Workflow[Any]:
    yield from echo(text)
    return (yield from sold.wait())


@workflow(name="tests.browser.failing", key=lambda text: text[:180])
def failing(text: str) -> Workflow[Any]:
    return (yield from breaks(text))


@pytest.fixture
def instances(pump: Pump) -> dict[str, str]:
    """Ids: one that waits, and one that failed, both with markup wherever text goes. Made before the browser starts."""
    ids = {"waits": selling.start(XSS).id, "failed": failing.start(XSS).id}
    pump.finish()
    return ids


def test_an_instance_is_cancelled_by_clicking_with_a_reason(instances: dict[str, str], page: Any) -> None:
    id = instances["waits"]
    page.goto(LIST)
    page.locator("#result_list").get_by_role("link", name="tests.browser.selling").click()
    page.get_by_role("link", name="Cancel", exact=True).click()
    page.get_by_label("Reason").fill(XSS)
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_url(f"**{LIST}{id}/change/")
    assert "Cancel requested: tests.browser.selling" in page.locator(".messagelist").inner_text()
    assert page.get_by_role("link", name="Cancel", exact=True).count() == 0
    page.get_by_role("link", name="Log").click()
    assert XSS in page.locator("#change-history").inner_text()
    for address in pages(instances):
        page.goto(address)
        assert page.evaluate("typeof window.p") == "undefined", address
        assert page.locator("img[src=x]").count() == 0, address
    assert outside_the_browser(lambda: state_of(id)) == (t.WAITING, True, f"Reason: {XSS}")


def pages(instances: dict[str, str]) -> list[str]:
    waits, failed = (f"{LIST}{instances[name]}/" for name in ("waits", "failed"))
    acts = ("signal", "cancel", "terminate", "pause", "resume", "retry")
    return [
        "/admin/", LIST, f"{LIST}?name=tests.browser.failing",
        f"{waits}change/", f"{waits}steps/1/", f"{waits}history/",
        f"{failed}change/", f"{failed}steps/1/", *(f"{waits}{act}/" for act in acts),
    ]  # fmt: skip


def state_of(id: str) -> tuple[str, bool, str]:
    row = WorkflowInstance.objects.get(pk=UUID(id))
    message = LogEntry.objects.get().change_message
    return row.state, row.cancel_requested_at is not None, message[message.index("Reason") :]
