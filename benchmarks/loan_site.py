"""Where the deploy of the loans runs: two checkouts of the example, a database and a share of the broker, workers."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "example_project"


# -- the two checkouts -------------------------------------------------------------------------------------------------


def check_out(folder: Path) -> tuple[Path, Path, str]:
    """Copies of the example after and before the edit, and the edit."""
    after, before = folder / "after", folder / "before"
    for copy in (after, before):
        shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns(".data", "__pycache__", "tests"))
    path = before / "loans" / "workflows.py"
    new = path.read_text()
    old = without_the_edit(new)
    path.write_text(old)
    (before / "loans" / "compliance.py").unlink()
    edit = difflib.unified_diff(old.splitlines(), new.splitlines(), "before", "after", lineterm="", n=0)
    return after, before, "\n".join(edit)


def without_the_edit(text: str) -> str:
    """The workflow as it was: no guard, no check."""
    for pattern, instead in (
        (r"\n *# Added while[^\n]*\n +if patched\([^\n]*\n(?: {8}[^\n]*\n)+", ""),
        (r"from \.compliance import [^\n]*\n", ""),
        (r"patched, ", ""),
    ):
        text, count = re.subn(pattern, instead, text)
        if count != 1:
            raise SystemExit(f"loans/workflows.py has {count} places like {pattern!r}, expected 1")
    return text


# -- where it runs -----------------------------------------------------------------------------------------------------


@contextmanager
def site(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """A database and a share of the broker of its own, in the environment of this process and those it starts."""
    os.environ |= {"TEST_DB": options.database, "TEST_BROKER": options.broker}
    sys.path.insert(0, str(ROOT))
    from tests.project import surroundings

    surroundings.prepare()
    os.environ |= {
        "SHOP_DATA_DIR": str(folder / "data"),
        "BROKER_URL": "" if options.broker == "filesystem" else surroundings.broker_url(),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "C_FORCE_ROOT": "1",
    }
    with database(options.database) as url:
        os.environ["DATABASE_URL"] = url
        yield


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of a new database, dropped at the end; empty for SQLite."""
    if kind == "sqlite":
        yield ""
        return
    from tests.project import surroundings

    server = urlsplit(surroundings.service_url(kind))
    name = f"loan_deploy_{os.getpid()}"
    ask(kind, server, f"CREATE DATABASE {name}")
    try:
        yield server._replace(path=f"/{name}").geturl()
    finally:
        from django.db import connections

        connections.close_all()
        ask(kind, server, f"DROP DATABASE {name}" + (" WITH (FORCE)" if kind == "postgres" else ""))


def ask(kind: str, server: Any, statement: str) -> None:
    if kind == "postgres":
        import psycopg

        with psycopg.connect(server.geturl(), autocommit=True) as connection:
            connection.execute(statement)
        return
    import pymysql

    connection = pymysql.connect(
        host=server.hostname, port=server.port, user=server.username, password=server.password or ""
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)


class Worker:
    """A worker of one checkout, in a process group of its own."""

    def __init__(self, name: str, checkout: Path, log: Path, concurrency: int) -> None:
        self.name = name
        self.log = log
        command = [sys.executable, "-m", "celery", "-A", "project", "worker", f"--concurrency={concurrency}"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--hostname", f"{name}@%h", "--loglevel", "info"],
                cwd=checkout, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"worker {self.name} ended: {self.text()[-2000:]}")
        return " ready." in self.text()

    def stop(self, patience: float = 60) -> None:
        """End it as a deploy does; what it is running ends first."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
