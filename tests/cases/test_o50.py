"""O-50: what `retry=` means, from one attempt to no limit; everything else is refused where it is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from durable_celery import RetryPolicy, StepFailed, Workflow, current_step, step, workflow
from tests.pump import Pump

ran: list[int] = []
seen: list[StepFailed] = []
unlimited = RetryPolicy(maximum_attempts=0, initial_interval=100, backoff_coefficient=1, jitter=False)


def failing() -> None:
    ran.append(current_step().attempt)
    raise RuntimeError("never")


once = step(name="tests.cases.test_o50.once", retry=1)(failing)
twice = step(name="tests.cases.test_o50.twice", retry=2)(failing)
never_again = step(name="tests.cases.test_o50.never_again", retry=None)(failing)
for_ever = step(name="tests.cases.test_o50.for_ever", retry=unlimited, schedule_to_close_timeout=3600)(failing)
STEPS: dict[str, Any] = {"once": once, "twice": twice, "never_again": never_again, "for_ever": for_ever}


@workflow
def trying(which: str) -> Workflow[str]:
    try:
        yield from STEPS[which]()
    except StepFailed as error:
        seen.append(error)
        return "failed"
    return "fine"


@pytest.fixture(autouse=True)
def _clean() -> None:
    ran.clear()
    seen.clear()


@pytest.mark.parametrize(("which", "starts"), [("once", 1), ("twice", 2), ("never_again", 1)])
def test_o50_a_number_counts_attempts_and_none_means_one(pump: Pump, which: str, starts: int) -> None:
    handle = trying.start(which)
    pump.finish()
    assert handle.result(timeout=0) == "failed"
    assert ran == list(range(1, starts + 1))
    assert handle.history()[0].attempts == starts
    assert seen[-1].attempts == starts


def test_o50_no_limit_goes_on_until_the_deadline_of_all_attempts(pump: Pump) -> None:
    began = pump.now
    handle = trying.start("for_ever")
    pump.advance_time(minutes=50)
    assert len(ran) == 31
    assert handle.status == "WAITING"
    pump.finish()
    assert handle.result(timeout=0) == "failed"
    assert 35 <= len(ran) <= 37
    assert pump.now - began <= timedelta(seconds=3600 + 100)
    assert "never" in str(seen[-1]) or seen[-1].timed_out


@pytest.mark.parametrize("retry", [0, -1, True, False, "3", 1.5, object()])
def test_o50_anything_else_is_refused_at_import_with_what_to_write(retry: Any) -> None:
    with pytest.raises(ValueError) as raised:
        step(name="tests.cases.test_o50.refused", retry=retry)(failing)
    text = str(raised.value)
    assert f"retry={retry!r}"[:20] in text
    assert "None" in text
    assert "RetryPolicy" in text
    assert "maximum_attempts=0" in text


@pytest.mark.parametrize("attempts", [-1, True, "3", None, 1.5])
def test_o50_so_is_a_policy_with_such_a_number(attempts: Any) -> None:
    with pytest.raises(ValueError, match="maximum_attempts"):
        RetryPolicy(maximum_attempts=attempts)


def test_o50_the_admin_shows_which_attempt_of_how_many(pump: Pump, admin_client: Any) -> None:
    handle = trying.start("twice")
    pump.drain()
    assert "attempt 1 of 2" in handle.waiting_for
    assert "attempt 1 of 2" in page(admin_client, handle)
    pump.finish()
    assert "attempt 2 of 2" in page(admin_client, handle)


def page(client: Any, handle: Any) -> str:
    response = client.get(reverse("admin:durable_celery_workflowinstance_change", args=[handle.id]))
    assert response.status_code == 200
    text: str = response.content.decode()
    return text
