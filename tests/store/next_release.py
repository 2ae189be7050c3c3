"""The next release as its tables show it, and what a migration may do to tables that the release before still uses.

Workers of two releases run side by side while a deploy lasts, and the tables are migrated first. So the code of the
release before meets the tables of this one: it names no column that it does not know, neither where it reads nor where
it inserts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.fields import NOT_PROVIDED

from django_app.migrations import _indexes

LABEL = "durable_celery"
NAME = "0099_next_release"
ADDITIONS = (
    migrations.CreateModel,
    migrations.AddIndex,
    migrations.RemoveIndex,
    migrations.RenameIndex,
    migrations.AlterModelOptions,
    migrations.AlterModelManagers,
    _indexes.PartialIndex,
    _indexes.JsonIndex,
)


def breaks(operation: Operation) -> str:
    """Why a worker of the release before could not go on after this operation; "" if it can."""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        if not field.null and field.db_default is NOT_PROVIDED:
            return (
                f"{operation.model_name}.{operation.name} is NOT NULL without db_default: an INSERT fails that omits it"
            )
        if field.unique and not field.null:
            return f"{operation.model_name}.{operation.name} is unique and has one default: the second INSERT fails"
        return _holds(operation.name, field)
    if isinstance(operation, migrations.CreateModel):
        return next((why for name, field in operation.fields if (why := _holds(name, field))), "")
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        return next((why for each in operation.database_operations if (why := breaks(each))), "")
    if isinstance(operation, ADDITIONS):
        return ""
    return (
        f"{type(operation).__name__} takes away, renames, narrows or does what nobody can judge: {operation.describe()}"
    )


def _holds(name: str, field: Any) -> str:
    """A foreign key of the database would stop the purge of the release before, which knows no such rows."""
    held = field.remote_field is not None and getattr(field, "db_constraint", False)
    return f"{name} is a foreign key with a constraint: a DELETE of the release before fails" if held else ""


@contextmanager
def migrated() -> Iterator[None]:
    """Each table has two columns more, there is a table more and an index more; taken back at the end."""
    loader = MigrationLoader(connection)
    leaf = next(node for node in loader.graph.leaf_nodes() if node[0] == LABEL)
    migration = migrations.Migration(NAME, LABEL)
    migration.operations = operations()
    before = loader.project_state(leaf)
    with connection.schema_editor(atomic=migration.atomic) as editor:
        migration.apply(before.clone(), editor)
    recorder = MigrationRecorder(connection)
    recorder.record_applied(LABEL, NAME)
    try:
        yield
    finally:
        recorder.record_unapplied(LABEL, NAME)
        with connection.schema_editor(atomic=migration.atomic) as editor:
            migration.unapply(before.clone(), editor)


def operations() -> list[Operation]:
    """What a next release may bring."""
    added: list[Operation] = []
    for model in apps.get_app_config(LABEL).get_models():
        added.append(migrations.AddField(model.__name__.lower(), "next_note", models.TextField(null=True)))
        added.append(_defaulted(connection.ops.quote_name(model._meta.db_table)))
    added.append(
        migrations.CreateModel(
            name="NextThing",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("instance", models.ForeignKey("WorkflowInstance", models.CASCADE, db_constraint=False)),
                ("note", models.TextField(db_default="")),
            ],
        )
    )
    index = models.Index(fields=["name", "attempt"], name="durable_next_attempts")
    added.append(migrations.AddIndex("stepresult", index))
    return added


def _defaulted(table: str) -> Operation:
    """As AddField with a db_default does it, but that copies the table on SQLite, and so loses its partial indexes."""
    column = connection.ops.quote_name("next_count")
    return migrations.RunSQL(
        f"ALTER TABLE {table} ADD COLUMN {column} integer NOT NULL DEFAULT 7",
        f"ALTER TABLE {table} DROP COLUMN {column}",
    )
