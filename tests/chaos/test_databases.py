"""The driver of a run breaks the database and is never stopped by it."""

from __future__ import annotations

import os
import time

import pytest
from django.db import connection, transaction

from django_app.models import EngineHeartbeat
from tests.chaos import databases
from tests.chaos.ground import DATABASES
from tests.services import variable

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.server]


def test_a_lock_that_another_keeps_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(databases, "PATIENCE", 1)
    vendor = os.environ["TEST_DB"]
    name = str(connection.settings_dict["NAME"])
    server = DATABASES[vendor](url=os.environ[variable(vendor)], name=name)
    EngineHeartbeat.objects.get_or_create(pk=1)
    began = time.monotonic()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(databases.TICKS, [databases.ROWS])
        with pytest.raises(Exception, match=r"(?i)lock (wait )?timeout"):
            server.hold(0.1, against_order=False)
    assert time.monotonic() - began < 60
    assert server.hold(0.1, against_order=False) == 0
