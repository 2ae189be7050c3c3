"""A worker without the app, a database without the tables: what to do is said, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from django_app.models import StepResult, WorkflowInstance
from durable_celery import NotConfigured, Signal, Workflow, workflow
from durable_celery.celery.current_app import current_app
from durable_celery.engine import turns
from tests.bad_input.test_unknown_names import let_patience_pass
from tests.django_app.test_command import durable
from tests.effects import effects
from tests.processes import ROOT, Worker, eventually
from tests.project.testapp.workflows import sequence
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

told = Signal("absent.told", int)


@workflow(name="absent.listening")
def listening() -> Workflow[int]:
    return (yield from told.wait(timeout=60))


# -- tables --------------------------------------------------------------------------------------------------------


@contextmanager
def renamed(table: str, column: str = "") -> Iterator[None]:
    """As if the migration that brings them had not been applied."""
    there, away = (f"RENAME COLUMN {column} TO {column}_", f"RENAME COLUMN {column}_ TO {column}") if column else (
        f"RENAME TO {table}_", f"RENAME TO {table}",
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} {there}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table if column else table + '_'} {away}")


@pytest.mark.parametrize(("table", "column"), [("durable_celery_mailbox", ""), ("durable_celery_mailbox", "opened_by")])
def test_a_start_without_a_table_or_column_says_what_to_do(pump: Pump, table: str, column: str) -> None:
    with renamed(table, column):
        with pytest.raises(NotConfigured, match=r"run manage\.py migrate$") as caught:
            listening.start()
        with pytest.raises(NotConfigured), transaction.atomic():
            listening.start()
    assert "migrations of durable_celery are not applied to database 'default' (" in str(caught.value)
    assert (column or table) in str(caught.value)
    assert WorkflowInstance.objects.count() == 0
    assert listening.start().created


def test_a_message_without_its_table_says_what_to_do(pump: Pump) -> None:
    handle = listening.start()
    with renamed("durable_celery_message"), pytest.raises(NotConfigured, match=r"run manage\.py migrate$"):
        told.send(handle, 1)
    told.send(handle, 2)
    pump.drain()
    assert handle.result(timeout=0) == 2


@pytest.mark.parametrize(
    ("verb", "table", "column"),
    [
        (("list",), "durable_celery_workflowinstance", ""),
        (("list",), "durable_celery_workflowinstance", "status_text"),
        (("show", "ID"), "durable_celery_stepresult", ""),
        (("history", "ID"), "durable_celery_stepresult", ""),
        (("cancel", "ID"), "durable_celery_workflowinstance", ""),
        (("cancel", "ID"), "durable_celery_message", ""),
        (("signal", "ID", "absent.told", "--payload", "1"), "durable_celery_mailbox", ""),
        (("start", "absent.listening"), "durable_celery_mailbox", ""),
        (("purge",), "durable_celery_workflowinstance", ""),
    ],
)
def test_a_verb_without_a_table_or_column_says_what_to_do_and_that_it_is_no_wrong_usage(
    pump: Pump, verb: tuple[str, ...], table: str, column: str
) -> None:
    handle = listening.start()
    pump.drain()
    with renamed(table, column):
        code, out, err = durable(*(handle.id if word == "ID" else word for word in verb))
    assert (code, out) == (1, "")
    assert "migrations of durable_celery are not applied to database 'default' (" in err
    assert (column or table) in err
    assert err.endswith("run manage.py migrate\n")
    assert WorkflowInstance.objects.count() == 1


def test_a_verb_that_meets_a_missing_table_of_the_project_does_not_speak_of_ours(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = listening.start()
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as caught:
        cursor.execute("SELECT * FROM shop_order")
    monkeypatch.setattr("django_app.verbs.show.run", _raise(caught.value))
    with pytest.raises(DatabaseError, match="shop_order"):
        durable("show", handle.id)


def _raise(error: Exception) -> Callable[..., int]:
    def run(*_: object) -> int:
        raise error

    return run


@pytest.fixture
def empty() -> Iterator[dict[str, str]]:
    """The environment of a project whose database, a file, has no table yet; its queue is its own as well."""
    run = str(uuid4().int % 10**9)
    folder = Path(tempfile.gettempdir(), f"durable-tests-{run}")
    for path in (folder, folder / "queue", folder / "control"):
        path.mkdir()
    yield {"TEST_DB": "sqlite", "TEST_RUN": run, "DJANGO_SETTINGS_MODULE": "tests.project.settings"}
    shutil.rmtree(folder, ignore_errors=True)


def python(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=90
    )


SETUP = "import django; django.setup()\n"
START = f"{SETUP}from tests.project.testapp.workflows import sequence\nsequence.start('absent', 1)"
SEND = f"""{SETUP}from tests.project.celery import app
app.send_task("tests.project.testapp.workflows.sequence", ("absent", 1), task_id="{{}}")"""
WAIT = f"""{SETUP}import time
from durable_celery import InstanceNotFound, get_handle
deadline = time.monotonic() + 60
while True:
    try:
        print(get_handle("{{}}").result(timeout=30))
        break
    except InstanceNotFound:
        assert time.monotonic() < deadline
        time.sleep(0.1)
"""


@pytest.mark.prefork
@pytest.mark.timeout(180)
def test_a_worker_without_tables_says_what_to_do_and_goes_on_by_itself_once_they_are_there(
    start_worker, empty: dict[str, str]
) -> None:
    worker = start_worker(env=empty)
    assert "This worker cannot run workflows yet: migrations of durable_celery are not applied" in worker.text()
    assert "0001_initial" in worker.text()
    assert "Run manage.py migrate; the worker goes on by itself then, and nothing is lost" in worker.text()
    refused = python(empty, "-c", START)
    assert refused.returncode == 1
    assert refused.stderr.strip().splitlines()[-1].startswith("durable_celery.errors.NotConfigured: migrations of ")
    assert refused.stderr.strip().endswith("run manage.py migrate")
    asked = str(uuid4())
    assert python(empty, "-c", SEND.format(asked)).returncode == 0
    eventually(lambda: f"{asked}] retry" in worker.text(), "a start by message that is tried again")
    migrated = python(empty, "-m", "django", "migrate", "--verbosity=0")
    assert migrated.returncode == 0, migrated.stderr
    waited = python(empty, "-c", WAIT.format(asked))
    assert waited.stdout.strip() == "['step 0']", waited.stderr
    assert "holds its lease again" in worker.text()


# -- the app -------------------------------------------------------------------------------------------------------

BARE = """
from celery import Celery
app = Celery("bare")
app.conf.update(broker_url={url!r}, broker_transport_options={options!r}, task_default_queue={queue!r})
app.conf.broker_connection_retry_on_startup = True
"""


@pytest.mark.prefork
@pytest.mark.timeout(180)
def test_a_worker_without_the_app_loses_messages_and_no_work(start_worker, tmp_path: Path) -> None:
    handle = sequence.start("without the app", 2)
    with bare_worker(tmp_path) as bare:
        eventually(lambda: "unregistered task of type 'durable_celery.advance'" in bare.text(), "a turn it cannot take")
        turns.advance(UUID(handle.id))
        eventually(lambda: "unregistered task of type 'tests.project" in bare.text(), "a step it cannot run")
        assert handle.status == "WAITING"
        assert "step tests.project.testapp.steps.say at 1, in the queue" in handle.waiting_for
        assert list(StepResult.objects.values_list("state", "attempt")) == [("SCHEDULED", 0)]
    start_worker()
    let_patience_pass()
    assert handle.result(timeout=60) == ["step 0", "step 1"]
    assert effects("without the app") == {"step 0": 1, "step 1": 1}
    assert [entry.attempts for entry in handle.history()] == [1, 1]


@contextmanager
def bare_worker(folder: Path) -> Iterator[Worker]:
    """A worker on the same queue whose app is plain Celery."""
    broker = {
        "url": current_app().conf.broker_url, "options": settings.CELERY_BROKER_TRANSPORT_OPTIONS,
        "queue": settings.CELERY_TASK_DEFAULT_QUEUE,
    }  # fmt: skip
    (folder / "bare.py").write_text(BARE.format(**broker))
    log = folder / "bare.log"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bare", "worker", "--concurrency=1", "-n", "bare@%h"],
            cwd=folder, env={**env, "C_FORCE_ROOT": "1"}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    worker = Worker(process=process, log=log)
    try:
        yield worker
    finally:
        worker.stop()
        worker.clear()
