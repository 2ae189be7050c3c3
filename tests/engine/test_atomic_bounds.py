"""atomic: superseded attempts, what belongs together with the result, and what is refused."""

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
    Signal,
    UsageError,
    Workflow,
    WorkflowFailed,
    current_step,
    runtime,
    step,
    workflow,
)
from tests.engine.atomic_steps import (
    QUICK,
    book,
    booking,
    deadlocked,
    effects,
    nothing_seen,  # noqa: F401
    row,
    running,
    seen,
)
from tests.project.testapp.models import Effect
from tests.pump import Pump

pytestmark = pytest.mark.django_db(transaction=True)
told = Signal("told", str)


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
