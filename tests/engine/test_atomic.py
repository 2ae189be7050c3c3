"""atomic: the body and its result are one transaction; what rolls back with it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from django_app.models import StepAttempt
from durable_celery import (
    NonRetryable,
    RetryLater,
    WorkflowFailed,
    current_step,
    step,
)
from durable_celery.engine import atomic
from tests.engine.atomic_steps import (
    QUICK,
    booking,
    effects,
    nothing_seen,  # noqa: F401
    row,
    running,
    seen,
)
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)


# -- one transaction -------------------------------------------------------------------------------------------------


def test_the_body_and_its_result_are_one_transaction_and_the_turn_another(pump: Pump) -> None:
    handle = booking.start("a", "b", "c")
    pump.finish()
    assert handle.result(timeout=0) == ["A", "B", "C"]
    assert seen == [("a", True), ("b", True), ("c", True)]
    assert effects() == ["a", "b", "c"]


@pytest.mark.parametrize("point", ["body.before", "body.after", "step.in_transaction", "atomic.before_commit"])
def test_a_death_before_the_commit_leaves_neither_effect_nor_result(pump: Pump, point: str) -> None:
    handle = booking.start("a")
    pump.kill_at(point)
    pump.drain()
    assert effects() == ["a"] if pump.ended else effects() == []
    pump.finish()
    assert handle.result(timeout=0) == ["A"]
    assert effects() == ["a"]
    assert row("atomic.book").deaths == 1


@pytest.mark.parametrize("point", ["atomic.after_commit", "turn.before_commit"])
def test_a_death_after_the_commit_leaves_both(pump: Pump, point: str) -> None:
    handle = booking.start("a")
    pump.deliver(pump.queue[0])
    pump.kill_at(point)
    pump.finish()
    assert handle.result(timeout=0) == ["A"]
    assert (effects(), len(seen)) == (["a"], 1)


class LostAnswer:
    """The commit reaches the database (``arrives``) or not; its answer never reaches us."""

    def __init__(self, arrives: bool) -> None:
        self.arrives = arrives
        self.left = 1

    def __call__(self, commit: Any) -> None:
        if self.left:
            self.left = 0
            if self.arrives:
                commit()
            raise OperationalError("server closed the connection unexpectedly")
        commit()


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_acknowledgement_is_what_the_row_says(
    pump: Pump, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    handle = booking.start("a")
    pump.deliver(pump.queue[0])
    database: Any = connection
    lost, commit = LostAnswer(arrives), database._commit
    at_commit: list[int] = []

    def committing() -> Any:
        if Effect.objects.exists() and not at_commit:
            at_commit.append(1)
            return lost(commit)
        return commit()

    monkeypatch.setattr(database, "_commit", committing)
    pump.finish()
    assert at_commit
    assert handle.result(timeout=0) == ["A"]
    assert (effects(), len(seen)) == (["a"], 1 if arrives else 2)
    assert (row("atomic.book").attempt, row("atomic.book").failures) == (1, 0)


@step(name="atomic.neighbour", atomic=True, retry=QUICK)
def with_neighbour() -> int:
    Effect.objects.create(run="atomic", what="with neighbour")
    transaction.on_commit(lambda: seen.append(("committed", connection.in_atomic_block, len(effects()))))
    transaction.on_commit(lambda: 1 / 0)
    return 7


def test_a_neighbour_that_raises_on_commit_changes_nothing(pump: Pump, caplog: pytest.LogCaptureFixture) -> None:
    handle = running.start("atomic.neighbour")
    pump.finish()
    assert handle.result(timeout=0) == 7
    assert seen == [("committed", False, 1)]
    assert [ended.kind for ended in pump.ended] == ["succeeded"]
    assert "the result stands" in caplog.text
    assert not StepAttempt.objects.exists()


# -- what rolls back ---------------------------------------------------------------------------------------------------


@step(name="atomic.unlucky", atomic=True, retry=QUICK)
def unlucky(failures: int) -> int:
    Effect.objects.create(run="atomic", what=f"attempt {current_step().attempt}")
    if current_step().attempt <= failures:
        raise RuntimeError("no luck")
    return current_step().attempt


def test_a_failure_takes_its_effects_back_and_is_recorded(pump: Pump) -> None:
    handle = running.start("atomic.unlucky", 2)
    pump.finish()
    assert handle.result(timeout=0) == 3
    assert effects() == ["attempt 3"]
    assert list(StepAttempt.objects.order_by("attempt").values_list("attempt", "outcome")) == [
        (1, "failed"),
        (2, "failed"),
    ]


@step(name="atomic.later", atomic=True, retry=None)
def later() -> int:
    Effect.objects.create(run="atomic", what="later")
    if current_step().attempt == 1:
        raise RetryLater(5)
    return current_step().attempt


def test_retry_later_takes_its_effects_back(pump: Pump) -> None:
    handle = running.start("atomic.later")
    pump.finish()
    assert (handle.result(timeout=0), effects()) == (2, ["later"])


@step(name="atomic.unpayable", atomic=True, retry=QUICK)
def unencodable() -> object:
    Effect.objects.create(run="atomic", what="no value")
    return object()


def test_a_result_that_cannot_be_stored_takes_the_effects_back(pump: Pump) -> None:
    handle = running.start("atomic.unpayable")
    pump.finish()
    with pytest.raises(WorkflowFailed, match="unpayable"):
        handle.result(timeout=0)
    assert effects() == []


@step(name="atomic.broken", atomic=True, retry=None)
def broken() -> str:
    Effect.objects.create(run="atomic", what="broken")
    transaction.set_rollback(True)
    return "all is well"


def test_a_transaction_the_body_has_broken_is_no_success(pump: Pump) -> None:
    handle = running.start("atomic.broken")
    pump.finish()
    with pytest.raises(WorkflowFailed, match="TransactionManagementError"):
        handle.result(timeout=0)
    assert effects() == []


@step(name="atomic.nested", atomic=True)
def nested() -> None:
    with pytest.raises(NonRetryable), transaction.atomic():  # noqa: PT012
        Effect.objects.create(run="atomic", what="inside")
        raise NonRetryable("only this")
    Effect.objects.create(run="atomic", what="outside")


def test_savepoints_of_the_body_are_its_own(pump: Pump) -> None:
    running.start("atomic.nested")
    pump.finish()
    assert effects() == ["outside"]


def test_a_transaction_undone_by_the_database_is_run_again_in_the_same_attempt(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "LONGEST_PAUSE", 0.001)
    handle = running.start("atomic.deadlocked", 3)
    pump.finish()
    assert (handle.result(timeout=0), effects(), seen) == (4, ["deadlocked"], [1, 1, 1, 1])
    assert (row("atomic.deadlocked").attempt, row("atomic.deadlocked").failures) == (1, 0)


def test_one_that_does_not_pass_is_the_failure_of_the_attempt(pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "LONGEST_PAUSE", 0.001)
    handle = running.start("atomic.deadlocked", 100)
    pump.finish()
    with pytest.raises(WorkflowFailed, match="deadlock detected"):
        handle.result(timeout=0)
    assert (effects(), len(seen)) == ([], atomic.TRIES)


@step(name="atomic.swallowing", atomic=True, retry=None)
def swallowing(code: int) -> int:
    """Goes on after an error with which MySQL has undone all that was before it."""
    seen.append(code)
    Effect.objects.create(run="atomic", what="first half")

    def raising(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        raise OperationalError(code, "Deadlock found when trying to get lock")

    if len(seen) == 1:
        with pytest.raises(OperationalError), connection.execute_wrapper(raising):
            Effect.objects.count()
    Effect.objects.create(run="atomic", what="second half")
    return len(seen)


def test_a_deadlock_the_body_has_swallowed_does_not_leave_half_of_it(
    pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = running.start("atomic.swallowing", 1213)
    pump.finish()
    assert (handle.result(timeout=0), effects()) == (2, ["first half", "second half"])


def test_a_lock_not_available_the_body_has_handled_is_its_own_affair(pump: Pump) -> None:
    handle = running.start("atomic.swallowing", 3572)
    pump.finish()
    assert handle.result(timeout=0) == 1
