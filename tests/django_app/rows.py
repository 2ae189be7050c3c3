"""Rows as the engine writes them, for tests of what reads them."""

from __future__ import annotations

import itertools
import json
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

from django_app.models import Message, StepAttempt, StepResult, WorkflowInstance
from durable_celery.codec import encode
from durable_celery.core.failure import failure_of
from durable_celery.core.retry import RetryPolicy

START = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)
counter = itertools.count()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def call(*args: Any, **kwargs: Any) -> str:
    return encode([list(args), kwargs])


def failed(error: BaseException, **flags: Any) -> str:
    try:
        raise error
    except BaseException as caught:
        return failure_of(caught, **flags).to_text()


def new_instance(**fields: Any) -> Any:
    pk = fields.pop("id", None) or uuid.uuid4()
    given = {
        "name": "shop.fulfil_order", "state": "WAITING", "args": call(7), "created_at": at(next(counter)),
        "start_at": at(0), "chain_id": pk, "root_id": pk, **fields,
    }  # fmt: skip
    return WorkflowInstance.objects.create(id=pk, **given)


def new_step(instance: WorkflowInstance, position: str, **fields: Any) -> Any:
    policy = fields.pop("retry", RetryPolicy())
    given = {
        "kind": "step", "name": "shop.charge", "state": "SUCCEEDED", "args": call(7), "attempt": 1,
        "scheduled_at": at(0), "options": json.dumps({"retry": policy.as_data()}), **fields,
    }  # fmt: skip
    return StepResult.objects.create(instance=instance, position=position, **given)


def new_attempt(step: StepResult, number: int, error: BaseException, **fields: Any) -> Any:
    given = {"outcome": "failed", "failure": failed(error), "started_at": at(number), "finished_at": at(number + 0.5)}
    return StepAttempt.objects.create(step=step, attempt=number, **{**given, **fields})


def new_message(instance: WorkflowInstance, name: str, payload: Any = None, **fields: Any) -> Any:
    given = {"kind": "signal", "payload": encode(payload), "stored_at": at(1), **fields}
    return Message.objects.create(chain_id=instance.chain_id, instance_id=instance.pk, name=name, **given)
