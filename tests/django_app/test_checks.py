"""What ``manage.py check`` says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from django.apps import apps
from django.core.checks import run_checks
from django.test import override_settings

from django_app import checks

ROOT = Path(__file__).parents[2]
LINES = '\nINSTALLED_APPS += ["django_celery_beat", "durable_celery"]\n'


def messages() -> list[Any]:
    """What is said of the project; other tests of this run may have registered bodies that are meant to be odd."""
    found = run_checks(tags=["durable_celery"])
    return [m for m in found if not isinstance(m.obj, checks.Place) or "tests/project/" in m.obj.file]


def ids() -> list[str]:
    return [str(message.id) for message in messages()]


def test_the_project_of_the_tests_is_clean() -> None:
    assert ids() == []


def test_an_unknown_key_is_an_error_that_names_the_one_meant() -> None:
    with override_settings(DURABLE_CELERY={"LAESE": 5, "STEP_TIMEOUT": -1}):
        found = messages()
    assert [message.id for message in found] == ["durable_celery.E001"] * 2
    assert "did you mean 'LEASE'?" in found[0].msg
    assert "STEP_TIMEOUT" in found[1].msg
    assert all(message.is_serious() for message in found)


def test_settings_that_are_no_dict_are_an_error() -> None:
    with override_settings(DURABLE_CELERY=["LEASE"]):
        assert ids() == ["durable_celery.E001"]


def test_a_key_that_does_nothing_yet_is_a_warning_that_says_what_is_not_done() -> None:
    given = {"PAYLOAD_KEYS": ["secret"], "STRICT_ARGUMENTS": True, "PAYLOAD_STORAGE": None, "MIDDLEWARE": []}
    with override_settings(DURABLE_CELERY=given):
        found = messages()
    assert [message.id for message in found] == ["durable_celery.W004"] * 2
    assert "'PAYLOAD_KEYS'" in found[0].msg
    assert "unencrypted" in found[0].msg


@pytest.mark.parametrize(
    ("value", "told"), [(50, True), (20, False), (0, False)], ids=["other", "the default", "what is done anyway"]
)
def test_a_project_that_asks_for_inline_steps_is_told_that_there_are_none(value: int, told: bool) -> None:
    with override_settings(DURABLE_CELERY={"INLINE_STEPS": value, "INLINE_SECONDS": 5}):
        found = messages()
    assert ["'INLINE_STEPS'" in message.msg for message in found] == [True] * told


def test_an_unknown_database_is_an_error_that_lists_those_there_are() -> None:
    with override_settings(DURABLE_CELERY={"DATABASE": "durabel"}):
        found = messages()
    assert [message.id for message in found] == ["durable_celery.E002"]
    assert "'default'" in found[0].msg


def test_a_database_the_store_does_not_know_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SUPPORTED", {"other": "Other 1"})
    found = messages()
    assert [message.id for message in found] == ["durable_celery.E003"]
    assert "Other 1" in str(found[0].hint)


def test_a_project_without_beats_app_is_told_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apps, "is_installed", lambda name: False)
    found = messages()
    assert [message.id for message in found] == ["durable_celery.W001"]
    assert "INSTALLED_APPS += ['django_celery_beat']" in str(found[0].hint)


def test_celery_settings_without_an_app_are_a_warning_that_says_where_to_make_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = Celery("default", set_as_current=False, fixups=[])
    monkeypatch.setattr("durable_celery.celery.current_app.current_app", lambda: nobody)
    found = messages()
    assert [message.id for message in found] == ["durable_celery.W002"]
    assert "tests/project/celery.py" in str(found[0].hint).replace("tests.project", "tests/project")
    assert "from .celery import app" in str(found[0].hint)


# -- a project as django-admin makes it -------------------------------------------------------------------------------


def startproject(folder: Path, *files: tuple[str, str]) -> None:
    run(folder, "-m", "django", "startproject", "proj", ".")
    settings = folder / "proj" / "settings.py"
    settings.write_text(settings.read_text() + LINES)
    for name, text in files:
        (folder / name).write_text(text)


def run(folder: Path, *args: str, check: bool = True, **env: str) -> str:
    given = {key: value for key, value in os.environ.items() if key not in ("DJANGO_SETTINGS_MODULE", "PYTHONPATH")}
    result = subprocess.run(
        [sys.executable, *args], cwd=folder, env={**given, "PYTHONPATH": str(ROOT), **env}, capture_output=True,
        text=True, check=check,
    )  # fmt: skip
    return result.stdout + result.stderr


APP = """
import os
from celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")
app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""


def test_a_new_project_with_the_two_lines_is_clean(tmp_path: Path) -> None:
    startproject(tmp_path)
    assert "System check identified no issues (0 silenced)." in run(tmp_path, "manage.py", "check")
    assert "No changes detected" in run(tmp_path, "manage.py", "makemigrations", "--check", "--dry-run")


def test_a_new_project_with_a_celery_app_is_clean_before_and_after_migrate(tmp_path: Path) -> None:
    startproject(tmp_path, ("proj/celery.py", APP), ("proj/__init__.py", "from .celery import app as celery_app\n"))
    assert "no issues (0 silenced)" in run(tmp_path, "manage.py", "check", "--database", "default")
    assert "WARNINGS" not in run(tmp_path, "manage.py", "migrate")
    assert "no issues (0 silenced)" in run(tmp_path, "manage.py", "check", "--database", "default")


def test_a_celery_module_that_nothing_imports_is_named(tmp_path: Path) -> None:
    startproject(tmp_path, ("proj/celery.py", APP))
    text = run(tmp_path, "manage.py", "check")
    assert "durable_celery.W002" in text
    assert "proj/__init__.py" in text


def test_before_a_deployment_a_project_without_a_celery_app_is_told(tmp_path: Path) -> None:
    startproject(tmp_path)
    # Django 6.1 exits with 1 there: a new project sends its mails to the console.
    assert "durable_celery.W002" in run(tmp_path, "manage.py", "check", "--deploy", check=False)


def test_checks_ask_no_database(django_assert_num_queries: Any, db: Any) -> None:
    with django_assert_num_queries(0):
        run_checks(tags=["durable_celery"], databases=["default"])
