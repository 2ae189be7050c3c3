"""`atomic` steps: what the body did by the ORM exists exactly as often as its result."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection, connections, transaction

from django_app.models import StepAttempt, StepResult
from durable_celery import (
    CompleteLater,
    NonRetryable,
    RetryLater,
    RetryPolicy,
    Signal,
    StepFailed,
    UsageError,
    Workflow,
    WorkflowFailed,
    current_step,
    gather,
    runtime,
    step,
    workflow,
)
from durable_celery.engine import atomic
from durable_celery.steps import Step
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)

QUICK = RetryPolicy(initial_interval=0.1, jitter=False, maximum_attempts=3)
told = Signal("told", str)
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def effects() -> list[str]:
    return list(Effect.objects.order_by("pk").values_list("what", flat=True))


def row(name: str) -> StepResult:
    found: StepResult = StepResult.objects.get(name=name)
    return found


@step(name="atomic.book", atomic=True, retry=QUICK)
def book(what: str) -> str:
    seen.append((what, connection.in_atomic_block))
    Effect.objects.create(run="atomic", what=what)
    return what.upper()


@workflow(name="atomic.booking")
def booking(*whats: str) -> Workflow[list[str]]:
    return list((yield from gather(*(book(what) for what in whats), limit=1)))


@workflow(name="atomic.running", fails_on=StepFailed)
def running(name: str, *args: Any) -> Workflow[Any]:
    return (yield from runtime_step(name)(*args))


def runtime_step(name: str) -> Step[Any, Any]:
    from durable_celery.registry import registry

    found: Step[Any, Any] = registry.steps[name]
    return found


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


@step(name="atomic.deadlocked", atomic=True, retry=None)
def deadlocked(times: int) -> int:
    seen.append(current_step().attempt)
    Effect.objects.create(run="atomic", what="deadlocked")
    if len(seen) <= times:
        raise OperationalError("deadlock detected")
    return len(seen)


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


# -- superseded --------------------------------------------------------------------------------------------------------


@step(name="atomic.overtaken", atomic=True, start_to_close_timeout=10, retry=QUICK)
def overtaken() -> int:
    seen.append(current_step().attempt)
    Effect.objects.create(run="atomic", what=f"attempt {current_step().attempt}")
    if current_step().attempt == 1:
        elsewhere(_time_out)
    return current_step().attempt


def elsewhere(call: Any) -> None:
    """In another thread, as another process would; it must not wait for the body's transaction."""

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            seen.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def _time_out() -> None:
    from durable_celery import sweeps

    taken = time.monotonic()
    pump_in_use[0].now += timedelta(seconds=11)
    sweeps.tick(by="another", force=True)
    seen.append(time.monotonic() - taken < 10)


pump_in_use: list[Pump] = []


@pytest.fixture
def pumping(pump: Pump) -> Iterator[Pump]:
    pump_in_use[:] = [pump]
    yield pump
    pump_in_use.clear()


@pytest.mark.server
def test_a_sweep_does_not_wait_for_a_body_and_the_late_one_is_taken_back(pumping: Pump) -> None:
    handle = running.start("atomic.overtaken")
    pumping.finish()
    assert (handle.result(timeout=0), effects()) == (2, ["attempt 2"])
    assert seen == [1, True, 2]
    assert set(StepAttempt.objects.values_list("attempt", "outcome")) == {(1, "timed out"), (1, "superseded")}


def test_an_attempt_that_was_superseded_before_its_transaction_runs_no_body(pump: Pump) -> None:
    booking.start("a")
    pump.deliver(pump.queue[0])
    store = runtime.current().store
    real = store.claim

    def claim(*args: Any, **kwargs: Any) -> Any:
        claimed = real(*args, **kwargs)
        StepResult.objects.filter(name="atomic.book").update(token="another's")
        return claimed

    store.claim = claim  # type: ignore[method-assign]
    pump.deliver(pump.queue[0])
    assert (seen, effects(), pump.ended[-1].kind) == ([], [], "refused")


# -- what belongs together ---------------------------------------------------------------------------------------------


@workflow(name="atomic.child")
def started_inside(what: str) -> Workflow[str]:
    return (yield from book(what))


@workflow(name="atomic.listening")
def listening() -> Workflow[str]:
    return (yield from told.wait())


@step(name="atomic.starting", atomic=True, retry=QUICK)
def starting(listener: str) -> str:
    handle = started_inside.using(key=f"child of attempt {current_step().attempt}").start("from inside")
    told.send(listener, f"attempt {current_step().attempt}")
    if current_step().attempt == 1:
        raise RuntimeError("no luck")
    return handle.id


def test_starts_and_signals_of_the_body_join_its_transaction(pump: Pump) -> None:
    listener = listening.start()
    pump.drain()
    handle = running.start("atomic.starting", listener.id)
    pump.finish()
    child = started_inside.get(key="child of attempt 2")
    assert (handle.result(timeout=0), child.result(timeout=0)) == (child.id, "FROM INSIDE")
    assert listener.result(timeout=0) == "attempt 2"
    assert StepResult.objects.filter(name="atomic.book").count() == 1


@step(name="atomic.handing", atomic=True)
def handing_over() -> None:
    Effect.objects.create(run="atomic", what="asked")
    raise CompleteLater


def test_a_hand_over_is_committed_with_what_was_done_for_it(pump: Pump) -> None:
    running.start("atomic.handing")
    pump.drain()
    assert (row("atomic.handing").state, effects()) == ("EXTERNAL", ["asked"])


@step(name="atomic.beating", atomic=True, heartbeat_timeout=5)
def beating() -> bool:
    Effect.objects.create(run="atomic", what="beating")
    current_step().heartbeat({"done": 1})

    def look() -> None:
        seen.append(StepResult.objects.filter(name="atomic.beating").values_list("last_heartbeat", flat=True)[0])
        seen.append(effects())

    elsewhere(look)
    return True


def test_a_heartbeat_is_seen_at_once_and_the_effects_are_not(pump: Pump) -> None:
    handle = running.start("atomic.beating")
    pump.finish()
    assert handle.result(timeout=0) is True
    beat, others_saw = seen
    assert others_saw == []
    assert beat is None if connection.vendor == "sqlite" else "done" in beat
    assert effects() == ["beating"]


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """A second database; the ORM can read and write it."""
    file = tmp_path / "other.sqlite3"
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE testapp_effect (id INTEGER PRIMARY KEY, run TEXT, what TEXT, key TEXT, at TEXT)")
    databases = connections.settings
    databases["other"] = {
        **databases["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(file),
        "OPTIONS": {},
    }
    connections["other"].connect()  # by hand: a test may not open what its settings did not name
    yield "other"
    connections["other"].close()
    del databases["other"]
    del connections["other"]


@step(name="atomic.elsewhere", atomic=True, retry=QUICK)
def elsewhere_too(what: str) -> int:
    seen.append(what)
    Effect.objects.create(run="atomic", what=what)
    there = Effect.objects.using("other")
    if what == "orm":
        there.create(run="atomic", what=what)
    elif what != "read":
        with connections["other"].cursor() as cursor:
            cursor.execute(what)
    count: int = there.count()
    return count


@pytest.mark.parametrize(
    "what",
    [
        "orm",
        "UPDATE testapp_effect SET what = 'x'",
        "  delete from testapp_effect",
        "WITH a AS (SELECT 1) INSERT INTO testapp_effect (run) SELECT 'x' FROM a",
        "DROP TABLE testapp_effect",
    ],
)
def test_a_write_on_another_database_is_refused_and_not_tried_again(pump: Pump, other: str, what: str) -> None:
    handle = running.start("atomic.elsewhere", what)
    pump.finish()
    with pytest.raises(WorkflowFailed) as failed:
        handle.result(timeout=0)
    assert "write on database 'other'" in str(failed.value)
    assert seen == [what]
    assert (effects(), Effect.objects.using("other").count()) == ([], 0)


@pytest.mark.parametrize("what", ["read", "WITH a AS (SELECT 1) SELECT * FROM a"])
def test_another_database_may_be_read(pump: Pump, other: str, what: str) -> None:
    handle = running.start("atomic.elsewhere", what)
    pump.finish()
    assert (handle.result(timeout=0), effects()) == (0, [what])


@step(name="atomic.durable", atomic=True, retry=QUICK)
def durable_inside() -> None:
    seen.append(1)
    with transaction.atomic(durable=True):
        pass


def test_a_durable_block_inside_is_refused_and_not_tried_again(pump: Pump) -> None:
    handle = running.start("atomic.durable")
    pump.finish()
    with pytest.raises(WorkflowFailed, match=r"atomic\(durable=True\) in the body"):
        handle.result(timeout=0)
    assert "durable_celery.errors.UsageError" in (row("atomic.durable").failure or "")
    assert seen == [1]


def test_an_async_body_is_refused_at_import() -> None:
    with pytest.raises(UsageError, match="synchronous"):

        @step(name="atomic.async", atomic=True)
        async def never() -> None: ...


def test_called_plainly_the_body_has_its_transaction_too() -> None:
    assert book.call("plain") == "PLAIN"
    assert seen == [("plain", True)]
    with pytest.raises(OperationalError):
        deadlocked.call(5)
    assert effects() == ["plain"]


def test_the_terms_of_a_row_say_that_it_is_atomic(pump: Pump) -> None:
    booking.start("a")
    pump.drain()
    assert '"atomic":true' in row("atomic.book").options
