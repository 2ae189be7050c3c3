"""Indexes over part of a table, which no model can declare: Django warns of them on MySQL, which has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.migrations.operations.base import Operation


class PartialIndex(Operation):
    """An index WHERE ``where`` on PostgreSQL and SQLite; over the whole table on MySQL and MariaDB.

    It is in no state, so ``makemigrations`` finds nothing. SQLite copies a table to alter it and forgets such indexes:
    a later migration that alters a field must run this operation once more.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(self, model: str, name: str, fields: Sequence[str], where: str) -> None:
        self.model = model
        self.name = name
        self.fields = tuple(fields)
        self.where = where

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models do not know of it."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Create it."""
        model = to_state.apps.get_model(app_label, self.model)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        quote = schema_editor.quote_name
        columns = {name: quote(model._meta.get_field(name).column) for name in self.fields}
        named = {field.name: quote(field.column) for field in model._meta.fields}
        where = f" WHERE {self.where.format(**named)}" if schema_editor.connection.vendor != "mysql" else ""
        table = quote(model._meta.db_table)
        schema_editor.execute(f"CREATE INDEX {quote(self.name)} ON {table} ({', '.join(columns.values())}){where}")

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Drop it."""
        model = to_state.apps.get_model(app_label, self.model)
        if not self.allow_migrate_model(schema_editor.connection.alias, model):
            return
        quote = schema_editor.quote_name
        on_table = f" ON {quote(model._meta.db_table)}" if schema_editor.connection.vendor == "mysql" else ""
        schema_editor.execute(f"DROP INDEX {quote(self.name)}{on_table}")

    def describe(self) -> str:
        """A line for ``migrate`` and ``makemigrations``."""
        return f"Create index {self.name} on part of {self.model}"


class JsonIndex(Operation):
    """A GIN index over a JSON column on PostgreSQL; nothing elsewhere."""

    reversible = True
    reduces_to_sql = True

    def __init__(self, model: str, name: str, field: str) -> None:
        self.model = model
        self.name = name
        self.field = field

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models do not know of it."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Create it."""
        model = to_state.apps.get_model(app_label, self.model)
        if schema_editor.connection.vendor != "postgresql":
            return
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            quote = schema_editor.quote_name
            table, column = quote(model._meta.db_table), quote(model._meta.get_field(self.field).column)
            schema_editor.execute(f"CREATE INDEX {quote(self.name)} ON {table} USING gin ({column} jsonb_path_ops)")

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Drop it."""
        model = to_state.apps.get_model(app_label, self.model)
        if schema_editor.connection.vendor != "postgresql":
            return
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            schema_editor.execute(f"DROP INDEX {schema_editor.quote_name(self.name)}")

    def describe(self) -> str:
        """A line for ``migrate`` and ``makemigrations``."""
        return f"Create index {self.name} for attributes, where the database has GIN"
