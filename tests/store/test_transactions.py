"""Locks that pass, the caller's transaction, and queries where none belong."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction

from django_app.models import Message, StepResult, WorkflowInstance
from django_app.store import DjangoStore, retries
from django_app.store.retries import passing
from durable_celery.errors import UsageError
from durable_celery.ports import NewMessage
from tests.store.making import NOW, at, at_once, claim, claimed, create, end, entry, instance, running, step_row, turn

pytestmark = pytest.mark.django_db


class Locked:
    """Stands in the way of the first statements, as a lock would."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, execute, sql, params, many, context):
        if self.left and not sql.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            self.left -= 1
            raise OperationalError("database is locked")
        return execute(sql, params, many, context)


@pytest.mark.django_db(transaction=True)
def test_o41_a_lock_that_passes_burns_no_attempt_and_is_no_failure(store):
    _, (step_id,) = running(store)
    with connection.execute_wrapper(Locked(5)):
        step = claimed(store, step_id)
    with connection.execute_wrapper(Locked(5)):
        assert end(store, step).ok
    with connection.execute_wrapper(Locked(5)):
        assert store.has_news(step.instance_id)
    assert (step_row(step_id).attempt, step_row(step_id).state) == (1, "SUCCEEDED")


@pytest.mark.django_db(transaction=True)
def test_o41_a_start_outside_a_transaction_is_repeated_as_a_whole(store):
    with connection.execute_wrapper(Locked(3)):
        create(store, key="k", messages=[NewMessage(kind="signal", name="a", payload="1")])
    assert WorkflowInstance.objects.count() == 1


def test_inside_a_transaction_of_the_caller_nothing_is_repeated(store):
    with connection.execute_wrapper(Locked(1)), pytest.raises(OperationalError):
        with transaction.atomic():
            create(store)


@pytest.mark.django_db(transaction=True)
def test_a_lock_that_does_not_pass_is_an_error_after_a_while(store, monkeypatch):
    monkeypatch.setattr(retries, "PATIENCE", 0.2)
    started = time.monotonic()
    with connection.execute_wrapper(Locked(10**6)), pytest.raises(OperationalError, match="database is locked"):
        store.leases()
    assert 0.2 <= time.monotonic() - started < 5


@pytest.mark.django_db(transaction=True)
def test_the_pauses_grow_and_no_two_writers_pause_alike(store, monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append))
    for _ in range(2):
        with connection.execute_wrapper(Locked(9)):
            store.leases()
    first, second = pauses[:9], pauses[9:]
    assert first != second
    whole = [min(retries.FIRST_PAUSE * 2**number, retries.LONGEST_PAUSE) for number in range(9)]
    for pause, most in zip(first + second, whole * 2, strict=True):
        assert most / 2 <= pause <= most


@pytest.mark.django_db(transaction=True)
def test_an_integrity_error_is_not_repeated(store):
    calls = []

    def broken(execute, sql, params, many, context):
        calls.append(sql)
        raise IntegrityError(1062, "duplicate")

    with connection.execute_wrapper(broken), pytest.raises(IntegrityError):
        store.leases()
    assert len(calls) == 1


def caused(sqlstate: str) -> DatabaseError:
    error = DatabaseError("x")
    error.__cause__ = type("DriverError", (Exception,), {"sqlstate": sqlstate})()
    return error


@pytest.mark.parametrize(("error", "passes"), [
    (OperationalError("database is locked"), True),
    (OperationalError("database table is locked: durable_celery_message"), True),
    (OperationalError("no such table: durable_celery_message"), False),
    (OperationalError(1205, "Lock wait timeout exceeded"), True),
    (OperationalError(1213, "Deadlock found"), True),
    (OperationalError(2006, "Server has gone away"), False),
    (IntegrityError(1213, "x"), False),
    (caused("40001"), True), (caused("40P01"), True), (caused("55P03"), True), (caused("23505"), False),
])  # fmt: skip
def test_only_locks_deadlocks_and_serialisation_failures_are_repeated(error, passes):
    assert passing(error) is passes


@pytest.mark.django_db(transaction=True)
def test_o41_work_goes_on_beside_somebody_who_holds_the_lock_now_and_again(store):
    made = [running(store) for _ in range(4)]
    stop = threading.Event()

    def hold():
        while not stop.is_set():
            with transaction.atomic():
                WorkflowInstance.objects.update(status_text="held")
                stop.wait(0.2)
            stop.wait(0.05)

    def work(instance_id: UUID, step_id: int) -> bool:
        for number in range(2, 6):
            step = claimed(store, step_id)
            assert end(store, step).ok
            committed = None
            while committed is None:
                committed = turn(store, instance_id, entry(str(number)), taken_entries={step_id: 0})
            step_id = committed.dispatches[0].step_id
        return True

    def all_work():
        try:
            return at_once(*[partial(work, i, s) for i, (s,) in made])
        finally:
            stop.set()

    held, worked = at_once(hold, all_work)
    assert held is None
    assert worked == [True] * 4
    assert set(StepResult.objects.values_list("attempt", flat=True)) == {0, 1}
    assert StepResult.objects.count() == 20


# -- the caller's transaction --------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_call_runs_after_the_commit_of_the_caller_and_never_after_a_rollback(store):
    calls = []
    with transaction.atomic():
        store.on_commit(lambda: calls.append(1))
        assert store.in_transaction()
        assert calls == []
    assert calls == [1]
    assert not store.in_transaction()
    store.on_commit(lambda: calls.append(2))
    assert calls == [1, 2]
    with pytest.raises(RuntimeError):  # noqa: PT012
        with transaction.atomic():
            store.on_commit(lambda: calls.append(3))
            raise RuntimeError
    assert calls == [1, 2]


@pytest.mark.django_db(transaction=True)
def test_a_call_that_raises_after_the_commit_harms_nobody(store):
    calls = []

    def broken():
        raise RuntimeError

    with transaction.atomic():
        store.on_commit(broken)
        store.on_commit(lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.django_db(transaction=True)
def test_o39_what_an_inner_block_started_goes_with_it(store):
    with transaction.atomic():
        kept = create(store).id
        with pytest.raises(RuntimeError):  # noqa: PT012
            with transaction.atomic():
                create(store, key="k")
                raise RuntimeError
    assert list(WorkflowInstance.objects.values_list("id", flat=True)) == [kept]


@pytest.mark.django_db(transaction=True)
def test_closing_connections_leaves_an_open_transaction_alone(store):
    with transaction.atomic():
        instance_id = create(store).id
        store.close_connections()
        assert store.find(instance_id) is not None
    store.close_connections()
    assert connection.connection is None
    assert store.find(instance_id) is not None


# -- queries -------------------------------------------------------------------------------------------------------


def test_a_query_in_a_body_is_refused_and_nothing_is_left_behind(store):
    create(store)
    with store.refuse_queries():
        with pytest.raises(UsageError, match="a database query in a workflow body is refused: SELECT") as caught:
            WorkflowInstance.objects.count()
        with pytest.raises(UsageError, match="move it into a step"), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    assert "COUNT(*)" in str(caught.value)
    assert connection.execute_wrappers == []
    assert WorkflowInstance.objects.count() == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda: Message(name="x").save(),
        lambda: Message.objects.create(name="x"),
        lambda: Message.objects.bulk_create([Message(name="x")]),
        lambda: WorkflowInstance.objects.all().delete(),
    ],
    ids=["save", "create", "bulk_create", "delete"],
)
def test_a_refused_write_leaves_the_transaction_around_it_whole(store, write):
    create(store)
    with transaction.atomic():
        with pytest.raises(UsageError, match="move it into a step"), store.refuse_queries():
            write()
        assert WorkflowInstance.objects.count() == 1
    with transaction.atomic():
        transaction.set_rollback(True)
        with store.refuse_queries():
            pass
        assert transaction.get_rollback()  # what was broken before stays so


def test_a_refusal_ends_with_an_error_of_the_body_too(store):
    with pytest.raises(ZeroDivisionError), store.refuse_queries():
        _ = 1 / 0
    assert connection.execute_wrappers == []


@pytest.mark.django_db(transaction=True)
def test_queries_of_other_threads_are_not_refused(store):
    create(store)
    with store.refuse_queries():
        assert at_once(WorkflowInstance.objects.count) == [1]


def test_a_store_needs_nothing_but_the_name_of_its_database():
    instance_id = create(DjangoStore("default")).id
    assert DjangoStore().find(instance_id) is not None
    assert instance(instance_id).look_at == at(5)
    assert claim(DjangoStore(), 0) is None
    assert NOW.tzinfo is not None
