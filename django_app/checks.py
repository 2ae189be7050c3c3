"""What ``manage.py check`` says about a project. A project that follows the installation page gets no message at all.

None of these checks asks the database, but for that of Beat: Django runs those before ``migrate`` too, which is what
would help.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import DatabaseError, connections

from durable_celery import lints
from durable_celery.conf import Settings, settings_of
from durable_celery.errors import DurableError
from durable_celery.registry import registry

SUPPORTED = {"postgresql": "PostgreSQL 14", "mysql": "MariaDB 10.11 or MySQL 8", "sqlite": "SQLite 3.37"}

TO_COME = {
    "INLINE_SECONDS": "no step runs in the task of the one before it",
    "INLINE_STEPS": "no step runs in the task of the one before it",
    "MIDDLEWARE": "nothing is called around turns and attempts",
    "PAYLOAD_KEYS": "arguments and results are stored unencrypted",
    "PAYLOAD_STORAGE": "a value over PAYLOAD_LIMIT is refused",
    "STRICT_ARGUMENTS": "other arguments on replay do not block, the recorded ones stay in force",
}


@register("durable_celery")
def check_settings(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Every key of DURABLE_CELERY that is unknown or has a value it cannot have."""
    problems = settings_of(getattr(settings, "DURABLE_CELERY", {}))[1]
    return [Error(problem.text, id="durable_celery.E001") for problem in problems]


@register("durable_celery")
def check_settings_to_come(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """A key that is accepted and does nothing yet must not be relied on."""
    asked = settings_of(getattr(settings, "DURABLE_CELERY", {}))[0]
    values = {key: getattr(asked, key.lower()) for key in TO_COME}
    keys = [key for key, value in values.items() if value and value != getattr(Settings(), key.lower())]
    return [Warning(f"DURABLE_CELERY[{key!r}] has no effect in this version: {TO_COME[key]}.",
                    hint="Leave it out until the changelog says that it is there.",
                    id="durable_celery.W004") for key in keys]  # fmt: skip


@register("durable_celery")
def check_database(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """The alias exists, and is of a kind the store knows."""
    alias = settings_of(getattr(settings, "DURABLE_CELERY", {}))[0].database
    if alias not in connections:
        known = ", ".join(repr(name) for name in connections)
        return [Error(f"DURABLE_CELERY['DATABASE'] is {alias!r}, which DATABASES does not have: it has {known}.",
                      id="durable_celery.E002")]  # fmt: skip
    vendor = connections[alias].vendor
    if vendor not in SUPPORTED:
        return [Error(f"The database {alias!r} is of the kind {vendor!r}, which durable_celery cannot use.",
                      hint=f"Expected {', '.join(SUPPORTED.values())} or newer. Name the alias of such a database in "
                           f"DURABLE_CELERY['DATABASE'].",
                      id="durable_celery.E003")]  # fmt: skip
    return []


@register("durable_celery")
def check_beat(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Beat's tables are there, so that the tick is an entry people see."""
    if apps.is_installed("django_celery_beat"):
        return []
    return [Warning("'django_celery_beat' is not in INSTALLED_APPS: its DatabaseScheduler has no table for "
                    "the entry of the tick, which then does not show in the admin.",
                    hint="INSTALLED_APPS += ['django_celery_beat'], then manage.py migrate. If Beat uses another "
                         "scheduler: SILENCED_SYSTEM_CHECKS = ['durable_celery.W001'].",
                    id="durable_celery.W001")]  # fmt: skip


@register("durable_celery")
def check_celery_app(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """A project that has a Celery app loads it, also in web processes."""
    return _without_app() if _uses_celery() else []


@register("durable_celery", deploy=True)
def check_celery_app_before_deployment(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Before a deployment the project must have one."""
    return [] if _uses_celery() else _without_app()


@register("database")
def check_beat_lives(app_configs: Any, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """With ``check --database``: Beat sends its tick."""
    from django_app import vitals
    from django_app.models.querysets import engine_alias

    if engine_alias() not in (databases or ()):
        return []
    try:
        text = vitals.beat_warning()
    except (DatabaseError, DurableError):  # ``migrate`` asks too, when no table is there
        return []
    return [Warning(text, id="durable_celery.W003")] if text else []


@register("durable_celery")
def check_bodies(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """What stands in workflow bodies, and in the functions of their package that they call, and should not."""
    sources: dict[str, Any] = {}
    told: dict[tuple[str, str, int], CheckMessage] = {}
    for (name, _version), workflow in sorted(registry.workflows.items()):
        for finding in lints.findings(workflow.body, sources):
            told.setdefault((finding.id, finding.file, finding.line), _warning(name, finding))
    return list(told.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in the code, as editors and terminals link it."""

    file: str
    line: int

    def __str__(self) -> str:
        here = Path.cwd()
        path = Path(self.file)
        return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{self.line}"


def _warning(workflow: str, finding: lints.Finding) -> CheckMessage:
    place = Place(file=finding.file, line=finding.line)
    return Warning(
        f"Workflow {workflow}, {finding.function}(): {finding.what}: {finding.why}.",
        hint=f"{finding.instead[:1].upper()}{finding.instead[1:]}. If it is fine as it is, end the line with "
             f"'# durable: ok'.",
        obj=place,
        id=finding.id,
    )  # fmt: skip


def _uses_celery() -> bool:
    """Whether the project shows signs of a Celery app of its own: settings for one, or a module beside its settings."""
    if any(name.startswith("CELERY_") for name in dir(settings)):
        return True
    package = _project()
    try:
        return bool(package) and importlib.util.find_spec(f"{package}.celery") is not None
    except (ImportError, ValueError):
        return False


def _without_app() -> list[CheckMessage]:
    if _app_is_loaded():
        return []
    package = _project() or "proj"
    return [Warning("No Celery app is loaded in this process: what workflows send would go to Celery's default broker, "
                    "amqp://localhost.",
                    hint=f"Create {package}/celery.py (app = Celery({package!r}); app.config_from_object("
                         f"'django.conf:settings', namespace='CELERY'); app.autodiscover_tasks()) and import it in "
                         f"{package}/__init__.py: from .celery import app as celery_app",
                    id="durable_celery.W002")]  # fmt: skip


def _app_is_loaded() -> bool:
    """False while Celery falls back to the app it makes itself, which is called "default" and never made current."""
    from durable_celery.celery.current_app import current_app

    app = current_app()
    return app.main != "default" or bool(app.set_as_current)


def _project() -> str:
    return os.environ.get("DJANGO_SETTINGS_MODULE", "").rpartition(".")[0]
