"""People and instances for the tests of the admin's acts."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from django.contrib.messages import get_messages
from django.urls import reverse

from django_app.models import Message, WorkflowInstance
from durable_celery import Signal, Workflow, WorkflowFailed, steering, workflow
from durable_celery.engine import turns

LIST = "/admin/durable_celery/workflowinstance/"
ACTS = ("signal", "cancel", "terminate", "pause", "resume", "retry")
XSS = "<script>window.p=1</script>\"'><img src=x onerror=window.p=1>"


@dataclass(frozen=True)
class Approval:
    by: str
    amount: Decimal = Decimal(0)


approved = Signal("acts.approved", Approval)


def waits_forever() -> Workflow[str]:
    approval = yield from approved.wait()
    return str(approval.by)


def fails() -> Workflow[None]:
    raise WorkflowFailed("no stock")
    yield


waiting = workflow(name="tests.acts.waiting", key=lambda: f"order-{uuid4()}")(waits_forever)
failing = workflow(name="tests.acts.failing")(fails)


def made(act: str = "cancel", **options: Any) -> WorkflowInstance:
    """An instance for which the act makes sense."""
    handle = (failing if act == "retry" else waiting).using(**options).start()
    turns.advance(UUID(handle.id))
    if act == "resume":
        steering.pause(UUID(handle.id))
    return row(handle.id)


def row(pk: Any) -> WorkflowInstance:
    found: WorkflowInstance = WorkflowInstance.objects.get(pk=pk)
    return found


def facts(instance: WorkflowInstance) -> tuple[Any, ...]:
    """Whatever an act could change."""
    now = row(instance.pk)
    messages = Message.objects.filter(instance_id=instance.pk).count()
    return now.state, now.paused_at, now.cancel_requested_at, now.revision, now.turn, messages


def url(instance: WorkflowInstance, act: str) -> str:
    return reverse(f"admin:durable_celery_workflowinstance_{act}", args=[instance.pk])


def fields(act: str, **given: Any) -> dict[str, Any]:
    """What the confirmation page sends."""
    if act == "signal":
        return {"name": "acts.approved", "payload": '{"by": "ana"}', "signal_id": "s-1", "reason": "", **given}
    return {"reason": "", **given}


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]
