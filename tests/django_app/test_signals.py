"""Django's signals: what is sent when, and what a receiver can break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal
from django.test.utils import CaptureQueriesContext

from django_app import signals
from django_app.announcing import AnnouncingStore
from django_app.models import Mailbox, StepResult, WorkflowInstance
from durable_celery.core.failure import failure_of
from durable_celery.ports import OpenStep, StepChange, TurnCommit
from tests.django_app.rows import at, new_instance, new_step

pytestmark = pytest.mark.django_db(transaction=True)

STORE = AnnouncingStore("default")
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)


@contextmanager
def listening(signal: Signal) -> Iterator[list[dict[str, Any]]]:
    heard: list[dict[str, Any]] = []

    def hear(**told: Any) -> None:
        heard.append({name: value for name, value in told.items() if name != "signal"})

    signal.connect(hear, sender=WorkflowInstance)
    try:
        yield heard
    finally:
        assert signal.disconnect(hear, sender=WorkflowInstance)


def started(**fields: Any) -> Any:
    instance = new_instance(key="order-7", state="PENDING", **fields)
    Mailbox.objects.create(instance_id=instance.pk)
    return instance


def turn(instance: Any, **fields: Any) -> TurnCommit:
    return TurnCommit(instance_id=instance.pk, revision=0, **{"turn": 1, "now": NOW, "state": "WAITING", **fields})


def told(instance: Any, **more: Any) -> dict[str, Any]:
    ids = {"instance_id": instance.chain_id, "workflow": "shop.fulfil_order", "key": "order-7"}
    return {"sender": WorkflowInstance, **ids, **more}


def test_the_first_turn_tells_of_the_start_and_no_later_one_does() -> None:
    instance = started()
    with listening(signals.workflow_started) as heard:
        assert STORE.commit_turn(turn(instance)) is not None
        assert STORE.commit_turn(replace(turn(instance, turn=2), revision=1)) is not None
    assert heard == [told(instance)]


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TERMINATED"])
def test_an_end_is_told_with_its_state(state: str) -> None:
    instance = started()
    with listening(signals.workflow_finished) as heard:
        assert STORE.commit_turn(turn(instance, state=state, closes=True)) is not None
    assert heard == [told(instance, state=state)]


def test_a_turn_that_lost_tells_nothing() -> None:
    instance = started()
    with listening(signals.workflow_finished) as heard:
        assert STORE.commit_turn(replace(turn(instance, state="COMPLETED"), revision=5)) is None
    assert heard == []


def test_a_block_is_told_with_its_reason() -> None:
    instance = started()
    with listening(signals.workflow_blocked) as heard, listening(signals.workflow_started) as starts:
        STORE.commit_turn(turn(instance, turn=0, state="BLOCKED", waiting_for="TypeError: no"))
    assert heard == [told(instance, waiting_for="TypeError: no")]
    assert starts == []


def test_a_step_that_gave_up_is_told_once_and_a_retry_is_not() -> None:
    instance = new_instance(key="order-7")
    row = new_step(instance, "1", state="RUNNING", attempt=1, token="t", started_at=at(0))
    error = failure_of(OSError("no luck")).to_text()
    retry = change(state="RETRYING", attempt=1, failure=error, due_at=NOW, look_at=NOW)
    final = change(state="FAILED", attempt=2, failure=error, finished_at=NOW, look_at=NOW)
    with listening(signals.step_failed) as heard:
        assert STORE.change_step(open_step(row), retry).ok
        StepResult.objects.filter(pk=row.pk).update(state="RUNNING", attempt=2, token="t")
        running = open_step(row)
        assert STORE.change_step(running, final).ok
        assert not STORE.change_step(running, final).ok
    assert heard == [
        told(instance, step="shop.charge", position="1", attempts=2, error_type="OSError", message="no luck")
    ]


def test_nothing_is_told_of_what_the_caller_rolls_back() -> None:
    instance = started()
    with listening(signals.workflow_finished) as heard:
        with transaction.atomic():
            STORE.terminate(instance.pk, NOW)
            assert heard == []
            transaction.set_rollback(True)
        assert heard == []
        STORE.terminate(instance.pk, NOW)
    assert heard == [told(instance, state="TERMINATED")]


def test_a_receiver_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("the receiver is broken")

    signals.workflow_finished.connect(broken)
    try:
        instance = started()
        assert STORE.commit_turn(turn(instance, state="COMPLETED", closes=True)) is not None
    finally:
        signals.workflow_finished.disconnect(broken)
    instance.refresh_from_db()
    assert instance.state == "COMPLETED"
    assert "the receiver is broken" in caplog.text


def test_without_receivers_no_query_is_made_for_them() -> None:
    def count() -> int:
        instance = started()
        with CaptureQueriesContext(connection) as queries:
            STORE.commit_turn(turn(instance))
        return len(queries)

    unheard = count()
    with listening(signals.workflow_started):
        assert count() == unheard + 1


def change(**fields: Any) -> StepChange:
    return StepChange(**{"failures": 1, "deaths": 0, "expiries": 0, "token": None, **fields})


def open_step(row: Any) -> OpenStep:
    return next(step for step in STORE.open_steps(row.instance_id) if step.id == row.pk)
