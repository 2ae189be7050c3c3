"""The verbs that change something, under ``manage.py durable`` and under ``celery -A proj durable``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import tests
from django_app import verbs
from django_app.models import Message, WorkflowInstance
from durable_celery import (
    CompleteLater,
    Signal,
    StepFailed,
    Workflow,
    WorkflowFailed,
    get_handle,
    step,
    workflow,
)
from durable_celery.core import transitions as t
from durable_celery.engine import turns
from tests.django_app.test_command import durable
from tests.pump import Pump

ROOT = Path(tests.__file__).parents[1]


@dataclass(frozen=True)
class Order:
    number: int
    total: Decimal


ordered = Signal("verbs.ordered", Order)


@step(name="tests.verbs.pack")
def pack(order: Order) -> Decimal:
    raise CompleteLater


def body(first: Order, note: str = "") -> Workflow[str]:
    order = yield from ordered.wait()
    try:
        weight = yield from pack(order)
    except StepFailed as error:
        return f"not packed: {error.message}"
    return f"{first.total + order.total} {note} {weight}"


def fails() -> Workflow[None]:
    raise WorkflowFailed("no stock")
    yield


selling = workflow(name="tests.verbs.selling")(body)
failing = workflow(name="tests.verbs.failing")(fails)
FIRST = '[{"number": 1, "total": "1.50"}]'


def started(**options: Any) -> str:
    handle = selling.using(**options).start(Order(1, Decimal("1.50")))
    turns.advance(UUID(handle.id))
    return str(handle.id)


def row(id: str) -> WorkflowInstance:
    found: WorkflowInstance = WorkflowInstance.objects.get(pk=id)
    return found


# -- start and signal --------------------------------------------------------------------------------------------------


def test_a_workflow_is_started_signalled_and_its_step_completed_from_the_command_line(pump: Pump) -> None:
    code, out, err = durable("start", "tests.verbs.selling", "--args", FIRST, "--kwargs", '{"note": "gift"}')
    assert (code, err) == (0, "")
    id = out.strip()
    pump.drain()
    payload = '{"number": 2, "total": "2.25"}'
    assert durable("signal", id, "verbs.ordered", "--payload", payload) == (
        0,
        f"{id}: signal 'verbs.ordered' sent\n",
        "",
    )
    pump.drain()
    assert row(id).state == t.WAITING
    assert durable("complete-step", id, "2", "--result", '"0.75"') == (0, "step 2: completed\n", "")
    pump.finish()
    assert get_handle(id).result(timeout=0) == "3.75 gift 0.75"
    code, out, err = durable("complete-step", id, "2")
    assert (code, out) == (2, "")
    assert 'expected a decimal such as "12.50"' in err
    code, out, err = durable("complete-step", id, "2", "--result", "1")
    assert (code, out) == (1, "")
    assert "is SUCCEEDED already" in err


def test_a_step_is_failed_from_the_command_line(pump: Pump) -> None:
    id = started()
    ordered.send(id, Order(2, Decimal(1)))
    pump.drain()
    assert durable("fail-step", id, "2", "--error", "the box is broken") == (0, "step 2: failed\n", "")
    pump.finish()
    assert get_handle(id).result(timeout=0) == "not packed: the box is broken"
    assert get_handle(id).history()[1].attempts == 1


@pytest.mark.parametrize(
    ("position", "expected"),
    [("9", "has nothing at position '9'"), ("1", "at position 1 of instance")],
)
@pytest.mark.parametrize("verb", ["complete-step", "fail-step"])
def test_what_is_no_open_step_cannot_be_ended(db: None, verb: str, position: str, expected: str) -> None:
    code, out, err = durable(verb, started(), position)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_start_with_a_key_that_is_open_starts_nothing_and_prints_the_id(db: None) -> None:
    first = durable("start", "tests.verbs.selling", "--args", FIRST, "--key", "order-7")
    again = durable("start", "tests.verbs.selling", "--args", FIRST, "--key", "order-7")
    other = durable("start", "tests.verbs.selling", "--args", FIRST.replace("1.50", "9"), "--key", "order-7")
    assert (first[0], again[:2]) == (0, first[:2])
    assert "nothing was started" in again[2]
    assert other[:2] == (1, "")
    assert "taken by open instance" in other[2]
    assert WorkflowInstance.objects.count() == 1


def test_a_start_can_be_put_off(db: None) -> None:
    id = durable("start", "tests.verbs.selling", "--args", FIRST, "--delay", "60", "--queue", "slow")[1].strip()
    found = row(id)
    assert (found.start_at - found.created_at).total_seconds() == 60
    assert found.queue == "slow"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["tests.verbs.none"], "there is no workflow 'tests.verbs.none'; known here: "),
        (["tests.verbs.selling"], "missing a required argument: 'first'"),
        (["tests.verbs.selling", "--args", "[1]"], "args[0]: 1; expected an object: Order(number: int, total: "),
        (["tests.verbs.selling", "--args", "1"], "expected a JSON list"),
        (["tests.verbs.selling", "--args", "[1"], "--args is not JSON"),
        (["tests.verbs.selling", "--args", "[NaN]"], "NaN is no number there"),
        (["tests.verbs.selling", "--kwargs", "[]"], "expected a JSON object"),
        (["tests.verbs.selling", "--args", FIRST, "--kwargs", '{"note": 7}'], "kwargs.note: 7; expected text"),
        (["tests.verbs.selling", "--args", FIRST, "--kwargs", '{"colour": 7}'], "unexpected keyword argument 'colour'"),
        (["tests.verbs.selling", "--args", FIRST, "--key", ""], "key"),
        (["tests.verbs.selling", "--args", FIRST, "--delay", "-1"], "start_delay"),
    ],
)  # fmt: skip
def test_a_start_that_is_asked_wrongly_says_so(db: None, args: list[str], expected: str) -> None:
    code, out, err = durable("start", *args)
    assert (code, out) == (2, "")
    assert expected in err
    assert not WorkflowInstance.objects.exists()


def test_a_signal_by_key_with_an_id_of_its_own_is_stored_once(db: None) -> None:
    id = started(key="order-7")
    for _ in range(2):
        arguments = ["signal", "--key", "order-7", "verbs.ordered", "--payload", '{"number": 1, "total": 1}']
        assert durable(*arguments, "--signal-id", "webhook-77")[0] == 0
    assert Message.objects.filter(instance_id=id, name="verbs.ordered").count() == 1


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("{", "--payload is not JSON"),
        ("null", "expected an object: Order(number: int, total: Decimal)"),
        ('{"number": "1", "total": 1}', "payload.number: '1'; expected a whole number"),
    ],
)
def test_a_payload_that_does_not_fit_is_wrong_usage(db: None, payload: str, expected: str) -> None:
    id = started()
    code, out, err = durable("signal", id, "verbs.ordered", "--payload", payload)
    assert (code, out) == (2, "")
    assert expected in err
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("signal", ""), "needs a name"),
        (("signal", "x" * 200), "1 to 191 characters"),
        (("signal", "other", "--signal-id", " "), "signal_id=' ' is not allowed"),
        (("pause", "--reason", "\udcff"), "reason '\\udcff' has a NUL or a lone surrogate"),
    ],
)
def test_a_name_or_reason_that_cannot_be_is_wrong_usage(db: None, args: tuple[str, ...], expected: str) -> None:
    id = started()
    code, out, err = durable(args[0], id, *args[1:])
    assert (code, out) == (2, "")
    assert expected in err


def test_a_signal_to_a_closed_instance_is_a_refusal(db: None) -> None:
    id = started()
    get_handle(id).terminate()
    code, out, err = durable("signal", id, "other")
    assert (code, out) == (1, "")
    assert "TERMINATED" in err


# -- cancel, terminate, pause, resume, retry ---------------------------------------------------------------------------


def test_several_instances_are_acted_on_in_one_call_and_a_refusal_makes_it_exit_with_1(db: None) -> None:
    ids = [started() for _ in range(3)]
    get_handle(ids[1]).terminate()
    code, out, err = durable("terminate", *ids, "--reason", "old")
    assert code == 1
    assert out.splitlines() == [f"{ids[0]}: terminated", f"{ids[2]}: terminated"]
    assert err == f"{ids[1]}: it is TERMINATED or about to be, and cannot be terminated\n"
    assert {row(id).state for id in ids} == {t.TERMINATED}


def test_an_instance_that_is_not_there_stops_the_call_before_anything_is_done(db: None) -> None:
    id = started()
    for wrong in (str(uuid4()), "nonsense"):
        code, out, _ = durable("terminate", id, wrong)
        assert (code, out) == (2, "")
    assert durable("terminate")[0] == 2
    assert durable("terminate", id, "--key", "x")[0] == 2
    assert row(id).state == t.WAITING


def test_pause_resume_and_cancel_by_key(pump: Pump) -> None:
    id = started(key="order-7")
    assert durable("pause", "--key", "order-7", "--reason", "stocktaking") == (0, f"{id}: paused\n", "")
    assert (get_handle(id).status, row(id).pause_reason) == (t.PAUSED, "stocktaking")
    assert durable("resume", "--key", "order-7") == (0, f"{id}: resumed\n", "")
    assert get_handle(id).status == t.WAITING
    assert durable("cancel", "--key", "order-7", "--reason", "sold out") == (0, f"{id}: cancel requested\n", "")
    pump.finish()
    assert row(id).state == t.CANCELLED
    for verb in ("cancel", "pause", "resume"):
        code, out, err = durable(verb, "--key", "order-7")
        assert (code, out) == (1, "")
        assert t.CANCELLED in err


def test_retry_reopens_a_failed_instance_and_refuses_a_waiting_one(pump: Pump) -> None:
    id = failing.start().id
    pump.drain()
    assert row(id).state == t.FAILED
    assert durable("retry", id) == (0, f"{id}: will be tried again\n", "")
    assert row(id).state == t.RUNNING
    code, _, err = durable("retry", started())
    assert code == 1
    assert "reopens a BLOCKED or FAILED one" in err


# -- the command line of Celery ----------------------------------------------------------------------------------------

ENTRY = '[project.entry-points."celery.commands"]\ndurable = "django_app.celery_command:durable"\n'


@pytest.fixture
def celery(tmp_path: Path, transactional_db: None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``celery -A tests.project durable ...`` in a process of its own, with the entry point as installed."""
    assert ENTRY in (ROOT / "pyproject.toml").read_text()
    installed = tmp_path / "durable_entry-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: durable-entry\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[celery.commands]\ndurable = django_app.celery_command:durable\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def run(*words: str, app: Any = ("-A", "tests.project.celery"), **variables: str) -> Any:
        command = [sys.executable, "-m", "celery", *app, "durable", *words]
        return subprocess.run(
            command, capture_output=True, text=True, env={**environment, **variables}, cwd=ROOT, timeout=60, check=False
        )

    return run


@pytest.mark.engine
def test_celery_offers_the_verbs_and_help(celery: Callable[..., Any]) -> None:
    told = celery("--help")
    assert told.returncode == 0
    assert told.stdout.startswith("usage: celery durable")
    for verb in verbs.names():
        assert f"\n    {verb}" in told.stdout
    wrong = celery("dance")
    assert wrong.returncode == 2
    assert "invalid choice: 'dance'" in wrong.stderr
    assert celery().returncode == 2


@pytest.mark.engine
def test_celery_runs_the_verbs_on_the_projects_database(celery: Callable[..., Any]) -> None:
    id = started()
    listed = celery("list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [found["id"] for found in json.loads(listed.stdout)] == [id]
    assert json.loads(celery("show", id, "--json").stdout)["state"] == t.WAITING
    ended = celery("terminate", id, "--reason", "old")
    assert (ended.returncode, ended.stdout) == (0, f"{id}: terminated\n")
    assert row(id).state == t.TERMINATED
    assert celery("terminate", id).returncode == 1


def test_celery_without_a_project_says_what_is_missing(celery: Callable[..., Any]) -> None:
    alone = celery("list", app=(), DJANGO_SETTINGS_MODULE="")
    assert alone.returncode == 2
    assert "Set DJANGO_SETTINGS_MODULE" in alone.stderr
    assert "Traceback" not in alone.stderr
