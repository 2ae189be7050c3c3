"""A body that leaves its connection in a transaction: neither its end nor what its process does next is lost in it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

from durable_celery import StepFailed, Workflow, step, workflow
from tests.celery.existing_parts import task
from tests.pump import Pump


def leave(how: str) -> str:
    if how == "a block":
        transaction.atomic().__enter__()
        Group.objects.create(name="lost")
    if how == "two blocks, the inner one broken":
        transaction.atomic().__enter__()
        transaction.atomic().__enter__()
        transaction.set_rollback(True)
    if how == "a block, on a closed connection":
        transaction.atomic().__enter__()
        connection.close()
    if how == "autocommit off":
        connection.set_autocommit(False)
        Group.objects.create(name="lost")
    if how == "a BEGIN":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
        Group.objects.create(name="lost")
    if how == "autocommit off, all committed":
        connection.set_autocommit(False)
        Group.objects.create(name="kept")
        connection.commit()
    return how


WITHIN = ["a block", "two blocks, the inner one broken", "a block, on a closed connection"]  # also in a transaction
LEFT = [*WITHIN, "autocommit off", "a BEGIN"]
WAYS = [*((how, kind) for how in LEFT for kind in ("step", "task")), *((how, "atomic") for how in WITHIN)]


@step
def leaves(how: str, fails: bool = False) -> str:
    left = leave(how)
    if fails:
        raise LookupError("its own")
    return left


@step(atomic=True)
def leaves_within(how: str) -> str:
    Group.objects.create(name="lost too")
    return leave(how)


@step
def goes_on() -> int:
    Group.objects.create(name="next")
    return Group.objects.filter(name__startswith="lost").count()


@task()
def leaves_as_task(how: str) -> str:
    return leave(how)


@workflow
def careless(how: str, kind: str = "step") -> Workflow[Any]:
    try:
        if kind == "task":
            ended = yield leaves_as_task.s(how)
        elif kind == "atomic":
            ended = yield leaves_within.using(retry=None)(how)
        else:
            ended = yield leaves.using(retry=None)(how, fails=kind == "fails")
    except StepFailed as error:
        ended = [error.error_type, error.message]
    return [ended, (yield from goes_on())]


@pytest.mark.parametrize(("how", "kind"), WAYS)
def test_the_step_fails_at_once_and_says_why_and_all_goes_on(how: str, kind: str, pump: Pump) -> None:
    handle = careless.start(how, kind)
    pump.drain()
    (error_type, message), lost = handle.result(timeout=0)
    assert (error_type, lost) == ("durable_celery.errors.UsageError", 0)
    assert "inside a transaction that it had begun on database 'default'" in message
    assert connection.get_autocommit()
    assert not connection.in_atomic_block


def test_autocommit_cannot_be_turned_off_within_an_atomic_step(pump: Pump) -> None:
    handle = careless.start("autocommit off", "atomic")
    pump.drain()
    (error_type, message), lost = handle.result(timeout=0)
    assert (error_type, lost) == ("django.db.transaction.TransactionManagementError", 0)
    assert "'atomic' block is active" in message
    assert connection.get_autocommit()


@pytest.mark.parametrize("how", LEFT)
def test_an_error_of_its_own_is_the_one_that_is_told(how: str, pump: Pump) -> None:
    handle = careless.start(how, "fails")
    pump.drain()
    (error_type, message), lost = handle.result(timeout=0)
    assert (error_type, message, lost) == ("LookupError", "its own", 0)


def test_what_was_committed_is_no_loss(pump: Pump) -> None:
    handle = careless.start("autocommit off, all committed")
    pump.drain()
    assert handle.result(timeout=0) == ["autocommit off, all committed", 0]
    assert set(Group.objects.values_list("name", flat=True)) == {"kept", "next"}
