"""Columns of 255 characters of utf8mb4 cannot be indexed in older row formats of InnoDB: the first migration fails.

No index of ours holds more than 191 characters of text, all its columns together; the migrations run, and MySQL's
statements for them build every index whole in a row format that takes 767 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations.loader import MigrationLoader

from tests.project.surroundings import RUN

pytestmark = pytest.mark.django_db(transaction=True)

BYTES = 767  # of one index, in every row format
WIDTH = 4  # bytes of a character in utf8mb4
FIXED = {
    "UUIDField": 32 * WIDTH, "DateTimeField": 8, "IntegerField": 4, "BigAutoField": 8, "ForeignKey": 128,
    "SmallIntegerField": 2, "BooleanField": 1, "BigIntegerField": 8, "MomentField": 8,
}  # fmt: skip
SCRATCH = f"durable_{RUN}_o44"

Model = type[models.Model]


def our_models() -> list[Model]:
    return list(apps.get_app_config("durable_celery").get_models())


def declared(model: Model) -> Iterator[list[str]]:
    meta = model._meta
    yield from ([field.name] for field in meta.fields if getattr(field, "db_index", False) or field.unique)
    yield from ([name.lstrip("-") for name in index.fields] for index in meta.indexes)
    yield from (list(each.fields) for each in meta.constraints if isinstance(each, models.UniqueConstraint))


def size(model: Model, columns: list[str]) -> int:
    """The bytes of an index over these columns."""
    fields = {name: field for field in model._meta.fields for name in (field.name, field.column)}
    return sum(size_of(fields[column]) for column in columns)


def size_of(field: models.Field) -> int:
    if isinstance(field, models.CharField):
        return (field.max_length or 10_000) * WIDTH
    return FIXED[type(field).__name__]  # a TextField or JSONField is in no index


def test_o44_no_declared_index_is_longer_than_767_bytes() -> None:
    sizes = {(m.__name__, *names): size(m, names) for m in our_models() for names in declared(m)}
    assert len(sizes) > 15
    assert {name: bytes_ for name, bytes_ in sizes.items() if bytes_ > BYTES} == {}


def test_o44_no_index_of_the_migrated_database_is_longer_than_767_bytes() -> None:
    sizes = {}
    with connection.cursor() as cursor:
        for model in our_models():
            found = connection.introspection.get_constraints(cursor, model._meta.db_table)
            assert found, f"{model} has no table"
            for name, constraint in found.items():
                columns = [column for column in constraint["columns"] if column]
                on_json = constraint.get("type") == "gin"  # PostgreSQL's, of no such limit
                if columns and not constraint["check"] and not constraint["foreign_key"] and not on_json:
                    sizes[name] = size(model, columns)
    assert len(sizes) > 20
    assert {name: bytes_ for name, bytes_ in sizes.items() if bytes_ > BYTES} == {}


def test_o44_the_migrations_can_be_printed_and_name_every_table() -> None:
    sql = "\n".join(statements())
    for model in our_models():
        assert f"CREATE TABLE {connection.ops.quote_name(model._meta.db_table)}" in sql


def test_o44_mysqls_statements_build_every_index_whole_in_the_oldest_row_format() -> None:
    if connection.vendor != "mysql":
        assert_every_text_that_is_indexed_is_short()
        return
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {SCRATCH} CHARACTER SET utf8mb4")
        try:
            cursor.execute(f"USE {SCRATCH}")
            cursor.execute("SET SESSION innodb_strict_mode = OFF")  # that format has no room for so many long texts
            for sql in statements():
                cursor.execute(re.sub(r"^(CREATE TABLE .*);$", r"\1 ROW_FORMAT=REDUNDANT", sql))
            cursor.execute(
                "SELECT row_format, COUNT(*) FROM information_schema.tables WHERE table_schema = %s GROUP BY 1",
                [SCRATCH],
            )
            assert cursor.fetchall() == (("Redundant", len(our_models())),)
            cursor.execute(
                "SELECT index_name, column_name FROM information_schema.statistics "
                "WHERE table_schema = %s AND sub_part IS NOT NULL", [SCRATCH]
            )  # fmt: skip
            assert cursor.fetchall() == (), "these indexes hold the beginning of a text only"
        finally:
            cursor.execute(f"DROP DATABASE {SCRATCH}")
            connection.close()


def assert_every_text_that_is_indexed_is_short() -> None:
    indexed = {(model, name) for model in our_models() for names in declared(model) for name in names}
    texts = [model._meta.get_field(name) for model, name in indexed]
    lengths = [field.max_length for field in texts if isinstance(field, models.CharField)]
    assert lengths
    assert all(length is not None and length * WIDTH <= BYTES for length in lengths)


def statements() -> list[str]:
    """What the migrations of the app send to this database, in order."""
    graph = MigrationLoader(connection).graph
    found: list[str] = []
    for label, name in graph.forwards_plan(graph.leaf_nodes("durable_celery")[0]):
        if label == "durable_celery":
            out = StringIO()
            call_command("sqlmigrate", label, name, stdout=out, no_color=True)
            found += [line for line in out.getvalue().splitlines() if line and not line.startswith("--")]
    return [sql for sql in found if sql not in ("BEGIN;", "COMMIT;")]
