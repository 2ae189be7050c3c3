"""Tables of the next release under the code of this one, and what its migrations may do to them."""

from __future__ import annotations

import importlib
import pkgutil
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, migrations, models

import django_app.migrations
from django_app.models import StepResult, WorkflowInstance
from durable_celery import RetryPolicy, Signal, Workflow, gather, purging, sleep, step, workflow
from tests.pump import Pump
from tests.store.next_release import breaks, migrated

go_on = Signal("go_on", str)
quick = RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=False)
tries: list[str] = []


@step(retry=quick)
def unlucky(what: str) -> str:
    tries.append(what)
    if tries.count(what) == 1:
        raise ConnectionError(what)
    return what


@step(atomic=True)
def plain(what: str) -> str:
    return what


@step(retry=None)
def hopeless(what: str) -> str:
    raise ValueError(what)


@step
def taken_back(result: Any) -> str:
    return f"{result} taken back"


@workflow
def child(what: str) -> Workflow[str]:
    return (yield from plain(what))


@workflow
def everything(run: str) -> Workflow[str]:
    yield from unlucky(run).compensate_with(taken_back)
    yield from gather(*(plain(f"{run} {number}") for number in range(4)), limit=2)
    yield from child(run)
    yield from sleep(5)
    yield from go_on.wait()
    yield from hopeless(run)
    return run


def rows_of(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT next_note, next_count FROM {connection.ops.quote_name(table)}")
        return list(cursor.fetchall())


def test_this_code_runs_everything_beside_the_tables_of_the_next_release(pump: Pump) -> None:
    tries.clear()
    before = everything.start("begun before")
    pump.drain()
    with migrated():
        after = everything.using(key="k").start("begun after")
        pump.finish()
        for handle in (before, after):
            go_on.send(handle, "now")
        pump.finish()
        for handle in (before, after):
            assert handle.status == "FAILED"
            states = {entry.position: entry.state for entry in handle.history()}
            assert [entry.result for entry in handle.history() if entry.kind == "compensation"] != []
            assert set(states.values()) == {"SUCCEEDED", "FAILED"}
        for model in (WorkflowInstance, StepResult):
            found = rows_of(model._meta.db_table)
            assert len(found) == model.objects.count() > 0
            assert set(found) == {(None, 7)}
        pump.now += timedelta(days=400)
        report = purging.purge()
        assert report.instances == 4, "two families, of a parent and a child each"
    assert WorkflowInstance.objects.count() == 0


def test_the_tables_are_as_before_when_the_next_release_is_taken_back(transactional_db: None) -> None:
    def columns() -> dict[str, list[str]]:
        with connection.cursor() as cursor:
            tables = (WorkflowInstance._meta.db_table, StepResult._meta.db_table)
            return {
                table: sorted(column.name for column in connection.introspection.get_table_description(cursor, table))
                + sorted(connection.introspection.get_constraints(cursor, table))
                for table in tables
            }

    before = columns()
    with migrated():
        assert columns() != before
    assert columns() == before


# -- what a migration may do -------------------------------------------------------------------------------------------


def test_every_migration_after_the_first_leaves_workers_of_the_release_before_at_work() -> None:
    names = sorted(module.name for module in pkgutil.iter_modules(django_app.migrations.__path__))
    numbered = [name for name in names if name[0].isdigit()]
    assert numbered[0] == "0001_initial"
    for name in numbered[1:]:
        migration = importlib.import_module(f"django_app.migrations.{name}").Migration
        assert [why for operation in migration.operations if (why := breaks(operation))] == [], name


def nullable(**options: Any) -> Any:
    return migrations.AddField("stepresult", "more", models.TextField(null=True, **options))


@pytest.mark.parametrize(
    "operation",
    [
        nullable(),
        migrations.AddField("stepresult", "more", models.IntegerField(default=0, db_default=0)),
        migrations.AddIndex("stepresult", models.Index(fields=["name"], name="durable_more")),
        migrations.CreateModel("More", [("id", models.BigAutoField(primary_key=True))]),
        migrations.CreateModel("More", [("to", models.ForeignKey("StepResult", models.CASCADE, db_constraint=False))]),
    ],
    ids=lambda operation: operation.describe(),
)
def test_what_adds_is_allowed(operation: Any) -> None:
    assert breaks(operation) == ""


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (migrations.AddField("stepresult", "more", models.IntegerField(default=0)), "NOT NULL without db_default"),
        (migrations.AddField("stepresult", "more", models.IntegerField(db_default=0, unique=True)), "unique"),
        (
            migrations.AddField("stepresult", "to", models.ForeignKey("More", models.CASCADE, null=True)),
            "foreign key with a constraint",
        ),
        (
            migrations.CreateModel("More", [("to", models.ForeignKey("StepResult", models.CASCADE))]),
            "foreign key with a constraint",
        ),
        (migrations.RemoveField("stepresult", "pid"), "RemoveField takes away"),
        (migrations.RenameField("stepresult", "pid", "process"), "RenameField takes away"),
        (migrations.AlterField("stepresult", "pid", models.TextField()), "AlterField takes away"),
        (migrations.DeleteModel("Marker"), "DeleteModel takes away"),
        (migrations.RunSQL("DROP TABLE durable_celery_marker"), "RunSQL"),
        (
            migrations.SeparateDatabaseAndState(database_operations=[migrations.RemoveField("stepresult", "pid")]),
            "RemoveField takes away",
        ),
    ],
)
def test_what_would_stop_the_release_before_is_named(operation: Any, why: str) -> None:
    assert why in breaks(operation)
