"""Sets the stage: an empty database with its tables, an empty broker, and the products on the shelf."""

from __future__ import annotations

import shutil
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.core.management.color import no_style
from django.db import connection

from project import services
from project.celery import app as celery_app
from project.settings import DATA_DIR


def set_stage() -> None:
    """Start from nothing. Whatever the shop's, the workflows' and the results' tables held is gone."""
    connection.close()
    _empty_data_dir(DATA_DIR)
    call_command("migrate", verbosity=0)
    if connection.vendor != "sqlite":
        _empty_tables("shop", "durable_celery", "django_celery_results")
    if settings.CELERY_BROKER_URL != "filesystem://":
        celery_app.control.purge()
    call_command("load_products", verbosity=0)


def _empty_data_dir(data_dir: Path) -> None:
    """Remove what the shop itself keeps there, and nothing else: the folder may be anyone's."""
    for database in data_dir.glob("shop.sqlite3*"):
        database.unlink()
    for folder in ("broker", "logs"):
        shutil.rmtree(data_dir / folder, ignore_errors=True)
    (data_dir / "logs").mkdir()
    services.broker(settings.CELERY_BROKER_URL, data_dir)


def _empty_tables(*labels: str) -> None:
    """Empty the tables of these apps together: the database refuses to empty one that another refers to."""
    tables = [
        model._meta.db_table
        for label in labels
        if label in apps.app_configs
        for model in apps.get_app_config(label).get_models(include_auto_created=True)
    ]
    connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables, reset_sequences=True))
