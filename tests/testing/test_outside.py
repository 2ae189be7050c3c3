"""The kit in a project that has nothing but the installed package: the page about it, word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """\
SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", "django_celery_beat", "durable_celery", "shop",
]
"""
USES_NOTHING = """\
import sys


def test_that_wants_no_database_and_no_django():
    assert "django_app.pytest_plugin" in sys.modules
    assert not {"durable_celery", "django_celery_beat", "celery"} & set(sys.modules)
"""
ALONE = """\
from durable_celery import Workflow, sleep, step, workflow


@step
def ask() -> str:
    return "no"


@workflow
def wait() -> Workflow[str]:
    yield from sleep(days=3)
    return (yield from ask())


def test_it(durable):
    durable.mock(ask, return_value="yes")
    assert durable.run(wait).result == "yes"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder, with the metadata that an installation leaves beside it."""
    written = (ROOT / "pyproject.toml").read_text()
    (plugins,) = re.findall(r"\[project\.entry-points\.pytest11\]\n((?:.+\n)+)", written)
    installed = tmp_path / "site" / "durable_celery-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: durable_celery\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\n" + plugins.replace('"', ""))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def run_pytest(project: Path, *arguments: str) -> str:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("TEST_", "PYTEST_", "DJANGO"))}
    path = os.pathsep.join(map(str, (ROOT, project.parent / "site", project)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *arguments],
        cwd=project, env={**others, "PYTHONPATH": path}, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_the_examples_of_the_page_pass(project: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    workflows, *tests = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    (project / "shop").mkdir()
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "workflows.py").write_text(workflows)
    (project / "settings.py").write_text(SETTINGS)
    (project / "test_shop.py").write_text("\n\n".join(tests))
    output = run_pytest(project, "--ds=settings")
    count = sum(text.count("def test_") for text in tests)
    assert count >= 11
    assert f"{count} passed" in output, output


def test_a_project_whose_only_tests_use_the_fixture_has_its_tables(project: Path) -> None:
    (project / "shop").mkdir()
    (project / "shop" / "__init__.py").touch()
    (project / "settings.py").write_text(SETTINGS)
    (project / "test_alone.py").write_text(ALONE)
    assert "1 passed" in run_pytest(project, "--ds=settings")


def test_a_project_that_does_not_use_it_is_left_alone(project: Path) -> None:
    (project / "test_nothing.py").write_text(USES_NOTHING)
    assert "1 passed" in run_pytest(project, "-p", "no:django")


def test_without_pytest_django_the_fixture_says_what_it_needs(project: Path) -> None:
    (project / "test_kit.py").write_text("def test_kit(durable): ...\n")
    assert "the fixture durable needs pytest-django" in run_pytest(project, "-p", "no:django")


def test_the_marker_and_the_fixture_are_listed(project: Path) -> None:
    assert "@pytest.mark.durable(check=True, now=None)" in run_pytest(project, "--markers")
    assert "durable_celery.testing.Harness" in run_pytest(project, "--fixtures", "-v")
