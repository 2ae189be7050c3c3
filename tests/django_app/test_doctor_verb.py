"""`manage.py durable doctor` and the health page: what they print, and their status."""

from __future__ import annotations

import inspect
import json
import re
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_app import doctor
from django_app.models import EngineHeartbeat, WorkerLease
from tests.django_app.rows import new_instance

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def healthy() -> WorkerLease:
    """A worker with a live lease, which ticks."""
    now = datetime.now(timezone.utc)
    EngineHeartbeat.objects.update_or_create(pk=1, defaults={"last_tick_at": now, "healthy_since": now})
    lease: WorkerLease = WorkerLease.objects.create(id=uuid4(), node="a", pid=1, start_ticks=1, expires_at=now + HOUR)
    return lease


def verb(*args: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("durable", "doctor", *args, stdout=out, stderr=StringIO())
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_the_verb_exits_with_1_and_tells_what_to_do_if_something_is_wrong() -> None:
    code, out = verb()
    assert code == 1
    assert "workers: no worker holds a live lease" in out
    assert "-> start a worker" in out
    code, out = verb("--json")
    assert code == 1
    told = json.loads(out)
    assert told["ok"] is False
    assert {"id", "text", "do", "count", "examples"} <= set(told["findings"][0])


def test_the_verb_exits_with_0_if_all_is_well(healthy: WorkerLease) -> None:
    assert verb() == (0, "fine\n")
    told = json.loads(verb("--json")[1])
    assert (told["ok"], told["findings"]) == (True, [])
    assert (told["state"]["workers"], told["state"]["missing_migrations"]) == (1, [])


def test_only_what_is_asked_for_is_told(healthy: WorkerLease) -> None:
    WorkerLease.objects.all().delete()
    assert verb("--only", "beat") == (0, "fine\n")
    assert verb("--only", "beat", "--only", "tick")[0] == 0
    code, out = verb("--only", "beat", "--only", "workers", "--json")
    assert (code, [one["id"] for one in json.loads(out)["findings"]]) == (1, ["workers"])
    assert verb("--only", "waker") == (0, "fine\n")


def test_what_keeps_the_doctor_from_looking_is_told_whatever_is_asked_for(
    healthy: WorkerLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "missing_migrations", lambda: ["0001_initial"])
    code, out = verb("--only", "beat")
    assert code == 1
    assert out.startswith("migrations: ")


def test_a_finding_there_is_not_is_wrong_usage_that_names_those_there_are() -> None:
    assert verb("--only", "bat")[0] == 2
    assert "bat" not in doctor.FINDINGS
    written = set(re.findall(r'id="(\w+)"', inspect.getsource(doctor)))
    assert written == set(doctor.FINDINGS)


def test_a_patience_that_is_none_is_wrong_usage() -> None:
    assert verb("--patience", "-1")[0] == 2


def test_the_health_page_names_findings_and_nothing_else(client: Any) -> None:
    new_instance(state="BLOCKED", key="secret-key", name="shop.secret")
    with override_settings(ROOT_URLCONF="durable_celery.urls"):
        response = client.get("/health/")
    assert response.status_code == 503
    told = response.json()
    assert (told["ok"], told["findings"]) == (False, ["blocked", "tick", "workers"])
    assert "secret" not in response.content.decode()
    assert (told["state"]["workers"], told["state"]["last_tick_at"], told["state"]["queues"]) == (0, None, [])
    assert {
        "table_version", "last_tick_at", "dead_leases", "oldest_due_at", "queues", "without_waker",
        "queues_without_worker", "deaf", "beat_is_dead",
    } <= told["state"].keys()  # fmt: skip


def test_the_health_page_is_there_by_its_other_name(client: Any, healthy: WorkerLease) -> None:
    with override_settings(ROOT_URLCONF="durable_celery.urls"):
        response = client.get("/healthz")
    assert (response.status_code, response.json()["ok"]) == (200, True)
