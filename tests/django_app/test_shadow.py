"""A project that has a package of its own called ``django_app``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """
SECRET_KEY = "tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_celery_beat", {entries}]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
USE_TZ = True
"""
OWN_CONFIG = """
from django.apps import AppConfig

class Own(AppConfig):
    name = "django_app"
"""


def check(project: Path, entries: str) -> subprocess.CompletedProcess[str]:
    """``manage.py check`` in a project of its own, which comes before everything else on sys.path as a project does."""
    (project / "project_settings.py").write_text(SETTINGS.format(entries=entries))
    return subprocess.run(
        [sys.executable, "-m", "django", "check"],
        cwd=project,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "project_settings", "PYTHONPATH": f"{project}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": ""},
        {
            "__init__.py": "",
            "apps.py": OWN_CONFIG,
        },
    ],
    ids=["without apps.py", "with an app config of its own"],
)
def test_a_package_of_the_project_that_hides_ours_is_named_with_what_to_do(
    tmp_path: Path, files: dict[str, str]
) -> None:
    (tmp_path / "django_app").mkdir()
    for name, text in files.items():
        (tmp_path / "django_app" / name).write_text(text)
    result = check(tmp_path, "'durable_celery'")
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert str(tmp_path / "django_app") in last
    assert "expected the package of that name that durable_celery brings" in last
    assert "Rename your package" in last


def test_a_single_module_of_that_name_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "django_app.py").write_text("")
    result = check(tmp_path, "'durable_celery'")
    assert result.returncode != 0
    assert str(tmp_path / "django_app.py") in result.stderr.strip().splitlines()[-1]


def test_a_folder_without_init_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "django_app").mkdir()
    result = check(tmp_path, "'durable_celery'")
    assert result.returncode == 0, result.stderr
