"""Whether the tables are there, asked when a worker starts: a check would be asked by ``migrate`` itself, too early."""

from __future__ import annotations

import logging
from typing import Any

from celery.signals import worker_init
from django.db import DatabaseError, connections
from django.db.migrations.executor import MigrationExecutor

from django_app.models.querysets import engine_alias

logger = logging.getLogger(__name__)


def watch() -> None:
    """Look at every start of a worker in this process; again does nothing."""
    worker_init.connect(report, weak=False, dispatch_uid="durable_celery.readiness")


def missing_migrations() -> list[str]:
    """The names of our migrations that the engine's database lacks, in order."""
    executor = MigrationExecutor(connections[engine_alias()])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "durable_celery"]
    return [migration.name for migration, _ in executor.migration_plan(targets)]


def what_to_do() -> str:
    """The command that brings them."""
    alias = engine_alias()
    return "manage.py migrate" + ("" if alias == "default" else f" --database {alias}")


def report(**_: Any) -> None:
    """Say in the log what is missing; a worker goes on with its other tasks, and with workflows once it is there."""
    try:
        missing = missing_migrations()
    except DatabaseError as error:
        logger.warning("the database %r does not answer (%s); workflows go on when it does", engine_alias(), error)
        return
    finally:
        # The pool forks next: no child may inherit a connection.
        if not connections[engine_alias()].in_atomic_block:
            connections[engine_alias()].close()
    if missing:
        logger.critical(
            "This worker cannot run workflows yet: migrations of durable_celery are not applied to database %r: %s. "
            "Run %s; the worker goes on by itself then, and nothing is lost",
            engine_alias(),
            ", ".join(missing),
            what_to_do(),
        )
