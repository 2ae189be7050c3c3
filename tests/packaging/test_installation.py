"""The wheel, in an empty virtual environment, beside a project as Django and Celery make it: what a newcomer does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.services import SERVICES, Service

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]

# As Celery's "First steps with Django" has it.
CELERY = """\
import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "proj.settings")

app = Celery("proj")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
INIT = """\
from .celery import app as celery_app

__all__ = ("celery_app",)
"""
TWO_LINES = """
INSTALLED_APPS += ["django_celery_beat", "durable_celery", "greetings"]
CELERY_BROKER_URL = "{broker}"
"""
WORKFLOWS = """\
from durable_celery import Workflow, sleep, step, workflow


@step
def greet(name: str) -> str:
    return f"hello {name}"


@workflow(name="greetings.welcome")
def welcome(name: str) -> Workflow[str]:
    greeting = yield from greet(name)
    yield from sleep(1)
    return greeting + "!"
"""
ON_MARIADB = """\
import pymysql

pymysql.install_as_MySQLdb()

from proj.settings import *

DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.mysql",
        "NAME": "{name}",
        "USER": "{account.username}",
        "PASSWORD": "{account.password}",
        "HOST": "{account.hostname}",
        "PORT": "{account.port}",
    }}
}}
"""
START = "from greetings.workflows import welcome; print(welcome.start('Ana').result(timeout=60))"


@dataclass(frozen=True, kw_only=True)
class Project:
    """A Django project and the virtual environment it runs in."""

    folder: Path
    programs: Path

    def run(self, program: str, *arguments: str, fine: bool = True) -> str:
        """What the program printed; a failure of it fails the test unless `fine` is False."""
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            env=surroundings(self.programs),
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        assert not fine or done.returncode == 0, f"{program} {' '.join(arguments)}\n{output}"
        return output

    def manage(self, *arguments: str) -> str:
        return self.run("python", "manage.py", *arguments)


def surroundings(programs: Path) -> dict[str, str]:
    """The environment without what would let the source tree or the tests' project be found."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TEST_", "PYTHON", "DJANGO"))}
    return {**kept, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(programs.parent)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def broker() -> Iterator[Service]:
    service = SERVICES["redis"].find()
    assert service is not None
    yield service
    service.stop()


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Service]:
    service = SERVICES["mariadb"].find()
    if service is None and not os.environ.get("CI"):
        pytest.skip("MariaDB is not installed here")
    assert service is not None, "MariaDB is not installed, and CI leaves nothing out"
    yield service
    service.stop()


@pytest.fixture(scope="module")
def project(wheel: Path, broker: Service, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("newcomer")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    made = Project(folder=folder, programs=folder / "venv" / "bin")
    made.run("python", "-m", "pip", "install", "--quiet", f"{wheel}[redis,mysql]")
    made.run("django-admin", "startproject", "proj", ".")
    made.manage("startapp", "greetings")
    (folder / "proj" / "celery.py").write_text(CELERY)
    (folder / "proj" / "__init__.py").write_text(INIT)
    with (folder / "proj" / "settings.py").open("a") as settings:
        settings.write(TWO_LINES.format(broker=broker.url))
    (folder / "greetings" / "workflows.py").write_text(WORKFLOWS)
    made.manage("migrate", "--verbosity=0")
    return made


@pytest.fixture
def worker(project: Project) -> Iterator[Path]:
    """`celery worker -B`, as a newcomer starts it; yields its log."""
    log = project.folder / "worker.log"
    command = [str(project.programs / "celery"), "-A", "proj", "worker", "-B", "--concurrency=2", "--loglevel=INFO"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=project.folder, env=surroundings(project.programs), stdout=output, stderr=output
        )
    deadline = time.monotonic() + 60
    while b" ready." not in log.read_bytes():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    yield log
    process.terminate()
    process.wait(timeout=30)


def test_the_wheel_holds_both_packages_with_all_they_need(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT))
        for package in ("durable_celery", "django_app")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "durable_celery/py.typed",
        "django_app/py.typed",
        "django_app/migrations/0001_initial.py",
        "django_app/management/commands/durable.py",
    } <= sources
    assert {name for name in names if ".dist-info/" not in name} == sources


def test_a_workflow_completes_in_a_fresh_project(project: Project, worker: Path) -> None:
    assert "no issues" in project.manage("check")
    assert project.manage("shell", "-c", START).strip().splitlines()[-1] == "hello Ana!", worker.read_text()
    assert "Traceback" not in worker.read_text()


def test_celery_has_the_verbs_of_manage(project: Project) -> None:
    for program in (("python", "manage.py"), ("celery", "-A", "proj")):
        listed = project.run(*program, "durable", "list", "--workflow", "nothing", "--json")
        assert json.loads(listed) == []
    assert "usage: celery durable" in project.run("celery", "-A", "proj", "durable", "--help")


def test_the_migrations_are_complete(project: Project) -> None:
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run", "durable_celery")


def test_check_is_clean_and_migrations_run_on_mariadb(project: Project, mariadb: Service) -> None:
    account, name = urlsplit(mariadb.url), f"newcomer_{os.getpid()}"
    text = ON_MARIADB.format(account=account, name=name)
    (project.folder / "proj" / "on_mariadb.py").write_text(text)
    create = (
        "import pymysql; pymysql.connect("
        f"host={account.hostname!r}, port={account.port}, user={account.username!r}, password={account.password!r}"
        ").cursor().execute('CREATE DATABASE {} CHARACTER SET utf8mb4')"
    )
    project.run("python", "-c", create.format(name))
    try:
        assert "no issues" in project.manage("check", "--settings=proj.on_mariadb", "--database=default")
        project.manage("migrate", "--verbosity=0", "--settings=proj.on_mariadb")
        assert "no issues" in project.manage("check", "--settings=proj.on_mariadb", "--database=default")
    finally:
        project.run("python", "-c", create.replace("CREATE", "DROP").replace(" CHARACTER SET utf8mb4", "").format(name))
