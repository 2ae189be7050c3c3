"""Tasks sent before the commit ran against rows that were not there; sent by on_commit, the caller has no id.

A start is a row in the caller's transaction: its id is known at once, its message follows the commit of the engine's
database, and where that message is lost the sweep sends it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_app.models import Mailbox, Message, WorkflowInstance, WorkflowKey
from durable_celery import Signal, Workflow, step, workflow
from durable_celery.client import WorkflowHandle
from durable_celery.engine.verdicts import RESEND_GRACE
from tests.processes import ROOT, eventually
from tests.project.testapp.case_transactions import looking_up
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

paid = Signal("paid", int)
orders_seen: list[str] = []


class Unhappy(Exception):
    pass


@step(name="o39.load")
def load(order_id: int) -> str:
    orders_seen.append(Effect.objects.get(pk=order_id).what)
    return orders_seen[-1]


@workflow(name="o39.fulfil")
def fulfil(order_id: int) -> Workflow[str]:
    return (yield from load(order_id))


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    orders_seen.clear()


def new_order() -> int:
    order_id: int = Effect.objects.create(run="o39", what="an order").pk
    return order_id


# -- one database --------------------------------------------------------------------------------------------------


def test_o39_a_start_is_known_at_once_and_runs_after_the_commit(pump: Pump) -> None:
    with transaction.atomic():
        handle = fulfil.using(key="order-7").start(new_order())
        assert UUID(handle.id) == WorkflowInstance.objects.get().pk
        assert (handle.status, handle.created) == ("PENDING", True)
        assert pump.sent == []
    assert [hint.instance for hint in pump.sent] == [UUID(handle.id)]
    pump.finish()
    assert handle.result(timeout=0) == "an order"
    assert orders_seen == ["an order"]


def test_o39_a_start_that_is_rolled_back_leaves_nothing(pump: Pump) -> None:
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        fulfil.using(key="order-7", signal=(paid, 5)).start(new_order())
        raise Unhappy
    assert_nothing_is_left(pump)


def test_o39_a_savepoint_that_is_rolled_back_takes_its_start_with_it(pump: Pump) -> None:
    with transaction.atomic():
        order_id = new_order()
        with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
            fulfil.using(key="order-7", signal=(paid, 5)).start(order_id)
            raise Unhappy
        assert connection.run_on_commit == []
    assert Effect.objects.filter(pk=order_id).exists()
    assert_nothing_is_left(pump)


def test_o39_a_start_beside_a_savepoint_that_is_rolled_back_runs(pump: Pump) -> None:
    with transaction.atomic():
        order_id = new_order()
        kept = fulfil.start(order_id)
        with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
            fulfil.start(order_id)
            raise Unhappy
    assert [hint.instance for hint in pump.sent] == [UUID(kept.id)]
    pump.finish()
    assert orders_seen == ["an order"]


def test_o39_a_key_is_free_again_after_its_start_was_rolled_back(pump: Pump) -> None:
    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        lost = fulfil.using(key="order-7").start(new_order())
        raise Unhappy
    handle = fulfil.using(key="order-7").start(new_order())
    assert (handle.created, handle.id != lost.id) == (True, True)


def test_o39_a_message_that_is_lost_after_the_commit_is_sent_by_the_sweep(pump: Pump) -> None:
    pump.fate = lambda hint: ()
    with transaction.atomic():
        handle = fulfil.start(new_order())
    assert (len(pump.sent), pump.queue) == (1, [])
    pump.fate = lambda hint: (0.0,)
    pump.advance_time(RESEND_GRACE.total_seconds() - 1)
    assert handle.status == "PENDING"
    pump.advance_time(2)
    assert handle.result(timeout=0) == "an order"
    assert orders_seen == ["an order"]


def test_o39_a_broker_that_is_away_at_the_commit_costs_a_delay_only(pump: Pump) -> None:
    pump.down = True
    with transaction.atomic():
        handle = fulfil.start(new_order())
    assert pump.sent == []
    pump.down = False
    pump.finish()
    assert handle.result(timeout=0) == "an order"
    assert orders_seen == ["an order"]


def test_o39_a_neighbour_that_raises_after_the_commit_costs_a_delay_only(pump: Pump) -> None:
    def broken() -> None:
        raise Unhappy

    with pytest.raises(Unhappy), transaction.atomic():  # noqa: PT012
        transaction.on_commit(broken)
        handle = fulfil.start(new_order())
    assert pump.sent == []  # Django runs nothing that was registered after the one that raised
    pump.finish()
    assert handle.result(timeout=0) == "an order"
    assert orders_seen == ["an order"]


# -- a request -----------------------------------------------------------------------------------------------------


def checkout(request: HttpRequest) -> HttpResponse:
    handle = fulfil.start(new_order())
    if request.GET:
        raise Unhappy
    return HttpResponse(f"{handle.id} {connection.in_atomic_block}")


urlpatterns = [path("checkout/", checkout)]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Client:
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    return Client(raise_request_exception=False)


def test_o39_a_view_under_atomic_requests_starts_with_its_commit(pump: Pump, shop: Client) -> None:
    found, atomic = shop.get("/checkout/").content.decode().split()
    assert atomic == "True"
    assert [hint.instance for hint in pump.sent] == [UUID(found)]
    pump.finish()
    assert orders_seen == ["an order"]


def test_o39_a_view_under_atomic_requests_that_raises_starts_nothing(pump: Pump, shop: Client) -> None:
    assert shop.get("/checkout/?broken=1").status_code == 500
    assert Effect.objects.count() == 0
    assert_nothing_is_left(pump)


def assert_nothing_is_left(pump: Pump) -> None:
    for model in (WorkflowInstance, WorkflowKey, Mailbox, Message):
        assert model.objects.count() == 0
    assert connection.run_on_commit == []
    pump.finish()
    assert (pump.sent, orders_seen) == ([], [])


# -- two databases -------------------------------------------------------------------------------------------------

SETTINGS = """
SECRET_KEY = "tests"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_celery_beat", "durable_celery"]
USE_TZ = True
DURABLE_CELERY = {"DATABASE": "other"}
DATABASES = {
    name: {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{name}.sqlite3"} for name in ("default", "other")
}
"""
TWO_DATABASES = """
import json
import django
django.setup()
from django.core.management import call_command
from django.db import transaction
from django_app.models import WorkflowInstance
from durable_celery import runtime, workflow

for alias in ("default", "other"):
    call_command("migrate", database=alias, verbosity=0)
sent = []
runtime.current().transport.advance_all = lambda wakes: len([sent.append(str(wake.instance_id)) for wake in wakes])

@workflow(name="o39.elsewhere")
def elsewhere():
    yield from ()

told = {}
with transaction.atomic(using="default"):
    handle = elsewhere.start()
    told["sent inside a transaction of the other database"] = sent == [handle.id]
sent.clear()
with transaction.atomic(using="other"):
    handle = elsewhere.start()
    told["sent before the commit"] = bool(sent)
told["sent after the commit"] = sent == [handle.id]
sent.clear()
try:
    with transaction.atomic(using="other"):
        elsewhere.start()
        raise RuntimeError
except RuntimeError:
    told["sent after a rollback"] = bool(sent)
told["rows"] = {
    alias: WorkflowInstance.objects.using(alias).count() for alias in ("default", "other")
}
print(json.dumps(told))
"""


def test_o39_a_start_belongs_to_the_transaction_of_the_engines_database(tmp_path: Path) -> None:
    (tmp_path / "two_databases.py").write_text(SETTINGS)
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", TWO_DATABASES],
        cwd=tmp_path, env={**os.environ, "DJANGO_SETTINGS_MODULE": "two_databases", "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sent inside a transaction of the other database": True,
        "sent before the commit": False,
        "sent after the commit": True,
        "sent after a rollback": False,
        "rows": {"default": 0, "other": 2},
    }


# -- a real worker -------------------------------------------------------------------------------------------------


@pytest.mark.prefork
def test_o39_a_worker_that_is_waiting_finds_the_order_of_a_transaction_that_took_its_time(start_worker) -> None:
    start_worker()
    with transaction.atomic():
        order_id = Effect.objects.create(run="o39 slow", what="a late order").pk
        handle: WorkflowHandle[str] = looking_up.start("o39 slow", order_id)
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began >= 1, "a second in which a worker could look too early")
    assert handle.result(timeout=30) == "a late order"
    (entry,) = handle.history()
    assert (entry.state, entry.attempts) == ("SUCCEEDED", 1)
    assert Effect.objects.filter(run="o39 slow", what="looked up").count() == 1
