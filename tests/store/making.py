"""Instances, turns and attempts for the tests of the store, each with one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from django_app.models import StepResult, WorkflowInstance
from django_app.store import DjangoStore
from durable_celery.ports import (
    Changed,
    Claimed,
    Committed,
    Created,
    Lease,
    NewEntry,
    NewInstance,
    NewMessage,
    OpenStep,
    StepChange,
    TurnCommit,
)

NOW = datetime(2026, 11, 29, 12, 0, 0, 123456, tzinfo=timezone.utc)
TERMS = '{"start_to_close": 30, "heartbeat": 10, "priority": 3}'
SIGNAL = NewMessage(kind="signal", name="paid", payload="1")
numbers = count(1)


def at(seconds: float) -> datetime:
    """So many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def new_instance(**changes: Any) -> NewInstance:
    """An instance to start; each has an id of its own."""
    values: dict[str, Any] = {
        "id": uuid4(), "name": "shop.fulfil", "version": 1, "args": "[[1],{}]", "created_at": NOW, "start_at": NOW,
        "look_at": at(5), **changes,
    }  # fmt: skip
    return NewInstance(**values)


def create(store: DjangoStore, **changes: Any) -> Created:
    """Start one instance."""
    return store.create([new_instance(**changes)])[0]


def entry(position: str = "1", **changes: Any) -> NewEntry:
    """A step to insert, scheduled and looked at in 3 seconds."""
    values: dict[str, Any] = {
        "position": position, "kind": "step", "name": "shop.charge", "state": "SCHEDULED", "args": "[[],{}]",
        "options": TERMS, "look_at": at(3), **changes,
    }  # fmt: skip
    return NewEntry(**values)


def turn(store: DjangoStore, instance_id: UUID, *entries: NewEntry, **changes: Any) -> Committed | None:
    """Commit the next turn as the database has it, WAITING unless said otherwise."""
    row = WorkflowInstance.objects.get(pk=instance_id)
    values: dict[str, Any] = {
        "instance_id": instance_id, "revision": row.revision, "turn": row.turn + 1, "now": at(row.turn + 1),
        "state": "WAITING", "entries": entries, **changes,
    }  # fmt: skip
    return store.commit_turn(TurnCommit(**values))


def commit_of(instance_id: UUID, **changes: Any) -> TurnCommit:
    """The next turn of an instance, not committed yet."""
    row = instance(instance_id)
    values: dict[str, Any] = {
        "instance_id": instance_id, "revision": row.revision, "turn": row.turn + 1, "now": NOW, "state": "WAITING",
        **changes,
    }  # fmt: skip
    return TurnCommit(**values)


def committed(store: DjangoStore, instance_id: UUID, *entries: NewEntry, **changes: Any) -> Committed:
    """Commit the next turn, which must succeed."""
    done = turn(store, instance_id, *entries, **changes)
    assert done is not None
    return done


def running(store: DjangoStore, *entries: NewEntry, **changes: Any) -> tuple[UUID, list[int]]:
    """An instance after its first turn, with these entries (one step, if none); its id and the ids of the rows."""
    instance_id = create(store, **changes).id
    assert turn(store, instance_id, *(entries or (entry(),))) is not None
    ids = StepResult.objects.filter(instance_id=instance_id).order_by("id").values_list("id", flat=True)
    return instance_id, list(ids)


def claim(store: DjangoStore, step_id: int, *, now: datetime = NOW, lease_id: UUID | None = None) -> Claimed | None:
    """Claim a step with a token of its own."""
    token = f"token-{next(numbers)}"
    return store.claim(
        step_id, token=token, lease_id=lease_id, pid=1, now=now, close_at=now + timedelta(seconds=30),
        look_at=now + timedelta(seconds=10),
    )  # fmt: skip


def claimed(store: DjangoStore, step_id: int, **changes: Any) -> OpenStep:
    """Claim a step that can be claimed."""
    won = claim(store, step_id, **changes)
    assert won is not None
    return won.step


def change(step: OpenStep, state: str, **changes: Any) -> StepChange:
    """New values of a step, as the engine writes them when an attempt ends."""
    final = state in ("SUCCEEDED", "FAILED", "CANCELLED")
    values: dict[str, Any] = {
        "state": state, "attempt": step.attempt, "failures": step.failures, "deaths": step.deaths,
        "expiries": step.expiries, "token": None if final or state == "RETRYING" else step.token,
        "result": "1" if state == "SUCCEEDED" else None, "failure": '{"type":"E"}' if state == "FAILED" else None,
        "finished_at": at(20) if final else None, "look_at": at(22), **changes,
    }  # fmt: skip
    return StepChange(**values)


def end(store: DjangoStore, step: OpenStep, state: str = "SUCCEEDED", **changes: Any) -> Changed:
    """End an attempt."""
    return store.change_step(step, change(step, state, **changes))


def lease(**changes: Any) -> Lease:
    """A process incarnation that is good for ten seconds."""
    values: dict[str, Any] = {
        "id": uuid4(), "node": "celery@a", "boot_id": "boot", "pid_ns": "ns", "pid": 7, "start_ticks": 99,
        "expires_at": at(10), **changes,
    }  # fmt: skip
    return Lease(**values)


def step_row(step_id: int) -> StepResult:
    """The row as it is now."""
    row: StepResult = StepResult.objects.get(pk=step_id)
    return row


def instance(instance_id: UUID) -> WorkflowInstance:
    """The row as it is now."""
    row: WorkflowInstance = WorkflowInstance.objects.get(pk=instance_id)
    return row


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls in threads that start at a barrier; their results, or errors, in order."""
    barrier = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index: int, call: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait(30)
            results[index] = call()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(i, call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def statements(queries: Sequence[dict[str, str]]) -> list[str]:
    """The statements among captured queries, without transaction control."""
    control = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")
    return [query["sql"] for query in queries if not query["sql"].upper().startswith(control)]
