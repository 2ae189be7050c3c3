"""The app config: what one entry in INSTALLED_APPS does."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.apps import AppConfig, apps
from django.test import override_settings

from django_app.apps import DurableCeleryConfig, assembled, settings_in_force
from django_app.store import DjangoStore
from durable_celery import runtime
from durable_celery.celery.transport import CeleryTransport
from durable_celery.registry import registry

ROOT = Path(__file__).parents[2]
SETTINGS = """
SECRET_KEY = "tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_celery_beat", {entry!r}, "shop"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}}}
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
REPORT = """
import django
django.setup()
from django.apps import apps
from django.db import connections
from durable_celery.registry import registry
config = apps.get_app_config("durable_celery")
print(type(config).__name__, config.name, config.label, len(list(config.get_models())))
print(sorted(name for name, _ in registry.workflows), sorted(registry.steps))
print(connections["default"].connection)
"""


def project(folder: Path, entry: str, files: dict[str, str]) -> None:
    (folder / "project_settings.py").write_text(SETTINGS.format(entry=entry))
    (folder / "shop").mkdir()
    for name, text in {"__init__.py": "", **files}.items():
        (folder / "shop" / name).write_text(text)


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(folder), str(ROOT)))
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "project_settings", "PYTHONPATH": path}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("entry", ["durable_celery", "django_app", "django_app.apps.DurableCeleryConfig"])
def test_every_entry_gives_the_same_app_with_models_and_finds_workflows_and_steps(tmp_path: Path, entry: str) -> None:
    steps = "from durable_celery import step\n@step(name='shop.charge')\ndef charge(): ...\n"
    workflows = "from durable_celery import workflow\n@workflow(name='shop.buy')\ndef buy(): yield\n"
    project(tmp_path, entry, {"steps.py": steps, "workflows.py": workflows})
    result = python(tmp_path, "-c", REPORT)
    assert result.returncode == 0, result.stderr
    config, names, connection = result.stdout.splitlines()
    assert config == "DurableCeleryConfig django_app durable_celery 10"
    assert names == "['durable_celery.run', 'shop.buy'] ['shop.charge']"
    assert connection == "None", "starting Django asked the database"


def test_two_entries_for_the_one_app_are_refused_by_django(tmp_path: Path) -> None:
    project(tmp_path, "durable_celery", {})
    settings = tmp_path / "project_settings.py"
    settings.write_text(settings.read_text() + "INSTALLED_APPS.append('django_app')\n")
    result = python(tmp_path, "-m", "django", "check")
    assert "durable_celery" in result.stderr.strip().splitlines()[-1]
    assert "aren't unique" in result.stderr


def test_an_import_error_in_a_workflows_module_surfaces_with_its_line(tmp_path: Path) -> None:
    project(tmp_path, "durable_celery", {"workflows.py": "import nothing_of_that_name\n"})
    result = python(tmp_path, "-m", "django", "check")
    assert result.returncode != 0
    assert f'File "{tmp_path / "shop" / "workflows.py"}", line 1' in result.stderr
    assert "No module named 'nothing_of_that_name'" in result.stderr.strip().splitlines()[-1]


def test_the_parts_are_in_place_once_django_is_set_up() -> None:
    config = apps.get_app_config("durable_celery")
    assert isinstance(config, DurableCeleryConfig)
    parts = runtime.current()
    assert isinstance(parts.store, DjangoStore)
    assert isinstance(parts.transport, CeleryTransport)
    assert {name for name, _ in registry.workflows} >= {"tests.project.testapp.workflows.sequence"}
    assert "tests.project.testapp.steps.say" in registry.steps


def test_durable_celery_apps_holds_no_second_config() -> None:
    import durable_celery.apps as module

    found = [
        v for v in vars(module).values() if isinstance(v, type) and issubclass(v, AppConfig) and v is not AppConfig
    ]
    assert found == [DurableCeleryConfig]


def test_changed_settings_are_in_force_at_once_and_back_afterwards() -> None:
    before = runtime.current().settings
    with override_settings(DURABLE_CELERY={"LEASE": 77, "TICK": timedelta(seconds=3)}):
        assert runtime.current().settings.lease == timedelta(seconds=77)
        assert runtime.current().settings.tick == timedelta(seconds=3)
    assert runtime.current().settings == before


def test_other_settings_leave_the_parts_alone() -> None:
    before = runtime.current()
    with override_settings(LANGUAGE_CODE="de"):
        assert runtime.current() is before


def test_a_wrong_setting_has_its_default_in_force() -> None:
    with override_settings(DURABLE_CELERY={"LEASE": "long", "TCIK": 1}):
        assert settings_in_force().lease == timedelta(seconds=10)


def test_without_settings_the_defaults_are_in_force() -> None:
    with override_settings():
        from django.conf import settings

        if hasattr(settings, "DURABLE_CELERY"):
            del settings.DURABLE_CELERY
        assert settings_in_force() == assembled(settings_in_force()).settings
        assert settings_in_force().database == "default"
