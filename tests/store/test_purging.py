"""Purging: what goes, what stays, keys, and the verb."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_app.models import (
    WorkflowInstance,
    WorkflowKey,
)
from durable_celery import (
    InstanceNotFound,
    KeyConflict,
    Workflow,
    get_handle,
    spawn,
    workflow,
)
from durable_celery.conf import settings_of
from durable_celery.purging import PurgeReport, purge
from tests.pump import Pump
from tests.store.purged import (
    DAY,
    _no_faults_left,  # noqa: F401
    double,
    go,
    left,
    run_whole,
    whole,
)

pytestmark = pytest.mark.django_db(transaction=True)


@workflow(name="purging.patient")
def patient() -> Workflow[int]:
    yield from go.wait()
    return 1


@workflow(name="purging.parent")
def parent() -> Workflow[int]:
    """Ends at once; its child goes on."""
    yield from spawn(patient.using(parent_close="abandon")())
    yield from double(1)
    return 0


def test_a_whole_tree_goes_with_all_that_belongs_to_it_once_its_time_is_over(pump: Pump) -> None:
    run_whole(pump)
    before = left()
    assert before["WorkflowInstance"] == 4, "two runs, a child of each"
    assert all(before.values()), before
    pump.now += 30 * DAY - timedelta(minutes=1)
    assert purge().instances == 0
    assert left() == before
    pump.now += timedelta(minutes=2)
    assert purge(dry_run=True).instances == 4
    assert left() == before
    report = purge()
    assert (report.trees, report.instances, report.messages, report.left) == (1, 4, before["Message"], 0)
    assert report.steps == before["StepResult"]
    assert not any(left().values()), left()
    assert purge().trees == 0


def test_an_open_member_of_a_tree_keeps_all_of_it(pump: Pump) -> None:
    handle = parent.start()
    pump.finish()
    assert handle.result() == 0
    before = left()
    pump.now += 90 * DAY
    report = purge()
    assert (report.trees, report.left, report.instances) == (0, 1, 0)
    assert left() == before
    child = WorkflowInstance.objects.get(name="purging.patient")
    get_handle(child.chain_id).signal("go")
    pump.finish()
    assert purge().trees == 0, "the tree is as young as its youngest"
    pump.now += 31 * DAY
    assert purge().trees == 1
    assert left()["WorkflowInstance"] == 0


def test_an_open_chain_keeps_its_earlier_runs(pump: Pump) -> None:
    handle = whole.start(1)
    handle.signal("go")
    pump.finish()
    assert WorkflowInstance.objects.filter(state="CONTINUED").count() == 1
    pump.now += 90 * DAY
    before = left()
    assert purge() == PurgeReport(before=pump.now - 30 * DAY)
    assert left() == before
    handle.signal("go")
    pump.finish()
    assert handle.result() == 0


def test_none_keeps_everything_and_an_age_of_ones_own_goes_first(pump: Pump) -> None:
    run_whole(pump)
    with Pump(retention=None) as keeping:
        keeping.now = pump.now + 1000 * DAY
        assert purge() == PurgeReport()
        assert left()["WorkflowInstance"] == 4
        assert purge(older_than=DAY).instances == 4


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_key_is_free_after_the_purge_and_finds_nothing(pump: Pump) -> None:
    run_whole(pump, key="order-1")
    with pytest.raises(KeyConflict):
        whole.using(key="order-1", reuse="reject").start(0)
    pump.now += 31 * DAY
    purge()
    with pytest.raises(InstanceNotFound):
        whole.get(key="order-1")
    again = whole.using(key="order-1", reuse="reject").start(0)
    again.signal("go")
    pump.finish()
    assert again.result() == 0
    assert str(WorkflowKey.objects.get().last_id) == again.id


def test_a_key_that_is_open_again_stays_with_its_new_instance(pump: Pump) -> None:
    run_whole(pump, key="order-1")
    pump.now += 31 * DAY
    again = whole.using(key="order-1", reuse="allow").start(0)
    assert purge().instances == 4
    held = WorkflowKey.objects.get()
    assert (held.open_id, held.last_id, held.last_state) == (UUID(again.id), None, "")
    with pytest.raises(KeyConflict):
        whole.using(key="order-1").start(3)
    again.signal("go")
    pump.finish()
    assert whole.get(key="order-1").id == again.id


# -- the verb ----------------------------------------------------------------------------------------------------------


def verb(*args: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("durable", "purge", *args, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(stop.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_the_verb_counts_and_removes(pump: Pump) -> None:
    run_whole(pump)
    pump.now += 10 * DAY
    code, out, _ = verb("--dry-run", "--older-than", "9d", "--json")
    told: dict[str, Any] = json.loads(out)
    assert code == 0
    assert (told["dry_run"], told["trees"], told["instances"]) == (True, 1, 4)
    assert verb()[1].startswith("0 instances in 0 trees")
    assert left()["WorkflowInstance"] == 4
    code, out, _ = verb("--older-than", "9d")
    assert code == 0
    assert out.startswith("4 instances in 1 trees that ended before ")
    assert not any(left().values())


@pytest.mark.parametrize("age", ["-1", "soon", "1y", "9" * 30, "1000000d"])
def test_an_age_that_is_none_is_wrong_usage(pump: Pump, age: str) -> None:
    run_whole(pump)
    code, _, err = verb(f"--older-than={age}")
    assert code == 2
    assert "expected an age as 30d" in err
    assert left()["WorkflowInstance"] == 4


def test_without_retention_the_verb_wants_an_age() -> None:
    with override_settings(DURABLE_CELERY={"RETENTION": None}):
        code, _, err = verb()
    assert code == 2
    assert "--older-than" in err


@pytest.mark.parametrize("wrong", ["90 days", -1, timedelta(days=999_999_999)])
def test_a_wrong_retention_is_an_error_of_check_and_removes_nothing(pump: Pump, wrong: Any) -> None:
    run_whole(pump)
    settings, problems = settings_of({"RETENTION": wrong})
    assert [problem.key for problem in problems] == ["RETENTION"]
    with Pump(retention=settings.retention) as later:
        later.now = pump.now + 1000 * DAY
        assert purge() == PurgeReport()
        code, _, err = verb()
    assert left()["WorkflowInstance"] == 4
    assert (code, "manage.py check" in err) == (2, True)


def test_a_retention_of_ten_years_and_more_is_one() -> None:
    kept = timedelta(days=3653)
    settings, problems = settings_of({"RETENTION": kept})
    assert (settings.retention, problems) == (kept, [])
