"""Whether the tables are there, asked when a worker starts: a check would be asked by ``migrate`` itself, too early."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from celery.signals import worker_init
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from django_app.models.querysets import engine_alias

LABEL = "durable_celery"

logger = logging.getLogger(__name__)


def watch() -> None:
    """Look at every start of a worker in this process; again does nothing."""
    worker_init.connect(report, weak=False, dispatch_uid="durable_celery.readiness")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """How the tables stand to this code. ``table_version`` is the newest migration applied, "" if none is.

    ``newer_migrations`` are applied and not known here: another release has brought the tables on. That is no fault,
    since no release takes away what the one before it needs.
    """

    table_version: str = ""
    missing_migrations: Sequence[str] = field(default_factory=tuple)
    newer_migrations: Sequence[str] = field(default_factory=tuple)


def table_state() -> TableState:
    """Read from the engine's database."""
    executor = MigrationExecutor(connections[engine_alias()])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == LABEL]
    known = {name for label, name in executor.loader.disk_migrations or () if label == LABEL}
    applied = sorted(name for label, name in executor.recorder.applied_migrations() if label == LABEL)
    return TableState(
        table_version=applied[-1] if applied else "",
        missing_migrations=tuple(migration.name for migration, _ in executor.migration_plan(targets)),
        newer_migrations=tuple(name for name in applied if name not in known),
    )


def missing_migrations() -> list[str]:
    """The names of our migrations that the engine's database lacks, in order."""
    return list(table_state().missing_migrations)


def what_to_do() -> str:
    """The command that brings them."""
    alias = engine_alias()
    return "manage.py migrate" + ("" if alias == "default" else f" --database {alias}")


def report(**_: Any) -> None:
    """Say in the log what is missing and what is newer.

    A worker goes on with its other tasks, and with workflows once what is missing is there.
    """
    try:
        tables = table_state()
    except DatabaseError as error:
        logger.warning("the database %r does not answer (%s); workflows go on when it does", engine_alias(), error)
        return
    finally:
        # The pool forks next: no child may inherit a connection.
        if not connections[engine_alias()].in_atomic_block:
            connections[engine_alias()].close()
    if tables.newer_migrations:
        logger.warning(
            "The tables of durable_celery in database %r are of a newer release than this worker (%s). It works with "
            "them; deploy that release here too",
            engine_alias(),
            ", ".join(tables.newer_migrations),
        )
    if tables.missing_migrations:
        logger.critical(
            "This worker cannot run workflows yet: migrations of durable_celery are not applied to database %r: %s. "
            "Run %s; the worker goes on by itself then, and nothing is lost",
            engine_alias(),
            ", ".join(tables.missing_migrations),
            what_to_do(),
        )
