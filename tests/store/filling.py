"""Very many closed instances in no time: rows copied inside the database."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.models import Model

from django_app.models import Mailbox, Message, StepResult, WorkflowInstance
from django_app.models.moments import MomentField

NAME = "filling.closed"
INSTANCES = WorkflowInstance._meta.db_table
NEW_ID = {"sqlite": "lower(hex(randomblob(16)))", "postgresql": "gen_random_uuid()", "mysql": "uuid()"}
LATER = {  # ended at another time of the same ten days
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', {0}, (abs(random()) % 864000) || ' seconds')",
    "postgresql": "{0} + random() * interval '10 days'",
    "mysql": "{0} + INTERVAL RAND() * 864000 SECOND",
}


def closed_instances(number: int, *, ended_at: datetime, steps: int = 1, children: int = 0, messages: int = 0) -> None:
    """So many closed instances more, each with a mailbox and succeeded steps; ended in ten days from then on.

    So many of them are children of others, whose trees they share.
    """
    pk = uuid4()
    first: dict[str, Any] = {"name": NAME, "state": "COMPLETED", "args": "[[],{}]", "result": "1"}
    WorkflowInstance.objects.create(
        id=pk, chain_id=pk, root_id=pk, created_at=ended_at, start_at=ended_at, finished_at=ended_at, **first
    )
    have = 1
    while have < number - children:
        have += copy(ended_at, limit=number - children - have)
    run(f"UPDATE {INSTANCES} SET chain_id = id, root_id = id WHERE name = %s AND parent_id IS NULL", NAME)
    if children:
        copy(ended_at, limit=children, parent_id="id", root_id="id")
        run(f"UPDATE {INSTANCES} SET chain_id = id WHERE name = %s AND parent_id IS NOT NULL", NAME)
    spread(Mailbox, {"instance_id": "i.id", "closed_at": "i.finished_at"})
    for position in range(1, steps + 1):
        values = {"position": f"'{position}'", "kind": "'step'", "name": "'filling.step'", "state": "'SUCCEEDED'"}
        times = dict.fromkeys(("scheduled_at", "finished_at"), "i.finished_at")
        spread(StepResult, {"instance_id": "i.id", "taken_turn": "1", **values, **times}, position)
    if messages:
        values = {"chain_id": "i.chain_id", "kind": "'signal'", "stored_at": "i.finished_at", "taken_turn": "1"}
        spread(Message, {"instance_id": "i.id", **values})


def copy(created_at: datetime, *, limit: int, **values: str) -> int:
    """Copies roots that were created then, at most ``limit``; ``values`` are columns in SQL."""
    vendor = connection.vendor
    names = [str(field.column) for field in WorkflowInstance._meta.concrete_fields]
    new_id = NEW_ID[vendor]
    if vendor == "mysql" and not connection.features.has_native_uuid_field:
        new_id = "replace(uuid(), '-', '')"
    fresh = {**dict.fromkeys(("id", "chain_id", "root_id"), new_id), "finished_at": LATER[vendor].format("created_at")}
    fresh = {**fresh, **values}
    chosen = ", ".join(fresh.get(name) or quoted(name) for name in names)
    # MariaDB reads the rest as parameters, of which a percent sign is the mark.
    text = f"INSERT INTO {INSTANCES} ({', '.join(map(quoted, names))}) SELECT {chosen} FROM {INSTANCES} ".replace(
        "%", "%%"
    )
    return run(
        f"{text} WHERE name = %s AND created_at = %s AND parent_id IS NULL LIMIT {limit}",
        NAME,
        MomentField().get_db_prep_value(created_at, connection),
    )


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
    run(
        f"INSERT INTO {model._meta.db_table} ({', '.join(map(quoted, given))}) SELECT {', '.join(given.values())} "
        f"FROM {INSTANCES} i WHERE i.name = %s AND NOT EXISTS ({missing})",
        NAME,
    )


def run(statement: str, *params: Any) -> int:
    """How many rows it came to."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return int(cursor.rowcount)


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value) if isinstance(value, int) else f"'{value}'"


def quoted(name: str) -> str:
    return connection.ops.quote_name(name)
