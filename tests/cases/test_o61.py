"""O-61: a purge that is killed half way leaves nothing that a later run of the same key could take for its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import models

from django_app.models import Mailbox, Marker, Message, StepAttempt, StepResult, WorkflowInstance, WorkflowKey
from django_app.store import purging as rows_of_a_batch
from durable_celery import InstanceNotFound, Workflow, faults, step, workflow
from durable_celery.purging import purge
from tests.pump import Killed, Pump

ran: list[int] = []


@step(name="o61.double")
def double(number: int) -> int:
    ran.append(number)
    return 2 * number


@workflow(name="o61.invoice")
def invoice(number: int) -> Workflow[int]:
    first = yield from double(number)
    again = yield from double(first // 2)
    assert first == again
    return first


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    ran.clear()
    yield
    faults.set_hook(None)


# Two batches forget the key and remove the run; the third finds that nothing is left.
@pytest.mark.parametrize("rows", [1, 2000])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_o61_a_reused_key_never_sees_what_a_killed_purge_left(
    pump: Pump, monkeypatch: pytest.MonkeyPatch, batch: int, rows: int
) -> None:
    monkeypatch.setattr(rows_of_a_batch, "ROWS", rows)  # with 1, a batch ends between two steps of one instance
    old = invoice.using(key="inv-1").start(5)
    pump.finish()
    assert old.result(timeout=0) == 10
    pump.now += timedelta(days=31)
    kill_purge_at(batch)
    assert_no_orphan()

    new = invoice.using(key="inv-1").start(10)
    assert new.id != old.id
    pump.finish()
    assert new.result(timeout=0) == 20
    assert ran == [5, 5, 10, 10], "the new run executed its steps"
    assert invoice.get(key="inv-1").id == new.id

    purge()
    assert list(WorkflowInstance.objects.values_list("pk", flat=True)) == [UUID(new.id)]
    assert StepResult.objects.count() == 2
    assert_no_orphan()
    with pytest.raises(InstanceNotFound):
        _ = old.status
    assert new.result(timeout=0) == 20


def kill_purge_at(batch: int) -> None:
    left = [batch]

    def kill(point: str) -> None:
        left[0] -= point == "purge.before_batch"
        if left[0] == 0:
            raise Killed

    faults.set_hook(kill)
    with pytest.raises(Killed):
        purge()
    faults.set_hook(None)


def assert_no_orphan() -> None:
    """Whatever is there belongs to an instance that is there."""
    there = WorkflowInstance.objects.values("pk")
    chains = WorkflowInstance.objects.values("chain_id")
    assert not StepResult.objects.exclude(instance__in=there).exists()
    assert not StepAttempt.objects.exclude(step__in=StepResult.objects.values("pk")).exists()
    assert not Marker.objects.exclude(instance__in=there).exists()
    assert not Message.objects.exclude(chain_id__in=chains).exists()
    assert not Mailbox.objects.exclude(pk__in=chains).exists()


def test_o61_rows_of_the_journal_hang_on_the_instances_own_number_and_never_on_a_key() -> None:
    for model in (StepResult, StepAttempt, Message, Mailbox):
        assert not any("key" in field.name for field in model._meta.get_fields()), model
    assert StepResult._meta.get_field("instance").target_field is WorkflowInstance._meta.pk  # type: ignore[union-attr]
    assert isinstance(WorkflowInstance._meta.pk, models.UUIDField)
    assert Marker._meta.get_field("instance").target_field is WorkflowInstance._meta.pk  # type: ignore[union-attr]
    assert not WorkflowKey._meta.related_objects, "a key finds an id, and no rows"
