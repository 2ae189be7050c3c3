"""Very many closed instances in no time: rows copied inside the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.models import Model

from django_app.models import Mailbox, StepResult, WorkflowInstance
from django_app.models.moments import MomentField

NAME = "filling.closed"
NEW_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgresql": "gen_random_uuid()", "mysql": "uuid()"}


def closed_instances(number: int, *, ended_at: datetime, steps: int = 1) -> None:
    """So many closed instances more, each a tree of its own with a mailbox and succeeded steps."""
    pk = uuid4()
    first: dict[str, Any] = {"name": NAME, "state": "COMPLETED", "args": "[[],{}]", "result": "1"}
    WorkflowInstance.objects.create(
        id=pk, chain_id=pk, root_id=pk, created_at=ended_at, start_at=ended_at, finished_at=ended_at, **first
    )
    have = 1
    while have < number:
        have += copy(WorkflowInstance, limit=number - have, ended_at=ended_at)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE durable_celery_workflowinstance SET chain_id = id, root_id = id WHERE name = %s", [NAME])
    spread(Mailbox, {"instance_id": "i.id", "closed_at": "i.finished_at"})
    for position in range(1, steps + 1):
        values = {"position": f"'{position}'", "kind": "'step'", "name": "'filling.step'", "state": "'SUCCEEDED'"}
        times = dict.fromkeys(("scheduled_at", "finished_at"), "i.finished_at")
        spread(StepResult, {"instance_id": "i.id", "taken_turn": "1", **values, **times}, position)


def copy(model: type[Model], *, limit: int, ended_at: datetime) -> int:
    """Doubles the closed rows that ended then, by at most ``limit``."""
    names = [str(field.column) for field in model._meta.concrete_fields]
    fresh = dict.fromkeys(("id", "chain_id", "root_id"), NEW_ID[connection.vendor])
    if connection.vendor == "mysql" and not connection.features.has_native_uuid_field:
        fresh = dict.fromkeys(fresh, "replace(uuid(), '-', '')")
    values = ", ".join(fresh.get(name) or quoted(name) for name in names)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({', '.join(map(quoted, names))}) SELECT {values} "
            f"FROM {model._meta.db_table} WHERE name = %s AND finished_at = %s LIMIT {limit}",
            [NAME, MomentField().get_db_prep_value(ended_at, connection)],
        )
        return int(cursor.rowcount)


def spread(model: type[Model], values: dict[str, str], position: int | None = None) -> None:
    """A row for each closed instance that has none yet; what is not given takes the field's default."""
    given = dict(values)
    for field in model._meta.concrete_fields:
        column = str(field.column)
        if column in given or field.primary_key or field.null:
            continue
        default = field.get_default()
        given[column] = "'{}'" if isinstance(default, dict) else literal(default)
    missing = f"SELECT 1 FROM {model._meta.db_table} t WHERE t.instance_id = i.id"
    if position is not None:
        missing += f" AND t.position = '{position}'"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {model._meta.db_table} ({', '.join(map(quoted, given))}) SELECT {', '.join(given.values())} "
            f"FROM durable_celery_workflowinstance i WHERE i.name = %s AND NOT EXISTS ({missing})",
            [NAME],
        )


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value) if isinstance(value, int) else f"'{value}'"


def quoted(name: str) -> str:
    return connection.ops.quote_name(name)
