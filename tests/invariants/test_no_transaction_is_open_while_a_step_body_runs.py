"""No transaction is open while a step body runs."""

from __future__ import annotations

import pytest
from django.db import connection

from durable_celery import RetryPolicy, StepFailed, Workflow, current_step, gather, sleep, step, workflow
from tests.pump import Pump

seen: list[tuple[str, bool]] = []


@step(retry=RetryPolicy(initial_interval=1, jitter=False))
def look(where: str, failures: int = 0) -> str:
    seen.append((where, transaction_open()))
    if current_step().attempt <= failures:
        raise RuntimeError("not yet")
    return where


@step(retry=None)
def refuse() -> None:
    seen.append(("refuse", transaction_open()))
    raise ValueError("refused")


@step
def undo(result: str | None) -> None:
    seen.append(("undo", transaction_open()))


@workflow
def looking() -> Workflow[None]:
    yield from look("first").compensate_with(undo)
    yield from look("second", failures=2)
    yield from gather(look("member"), look("member"), look("member"), limit=1)
    yield from sleep(5)
    try:
        yield from refuse()
    except StepFailed:
        yield from look("cleanup")
        raise


def test_no_transaction_is_open_while_a_step_body_runs(pump: Pump) -> None:
    seen.clear()
    pump.fate = lambda hint: (0.0, 0.0)
    handle = looking.start()
    pump.finish()
    assert handle.status == "FAILED"
    assert [where for where, _ in seen] == ["first", *["second"] * 3, *["member"] * 3, "refuse", "cleanup", "undo"]
    assert [where for where, is_open in seen if is_open] == []


@pytest.mark.parametrize("point", ["record.before", "turn.before_commit", "claim.after_commit"])
def test_nor_after_a_process_died_and_another_took_over(pump: Pump, point: str) -> None:
    seen.clear()
    pump.kill_at(point, 2)
    looking.start()
    pump.finish()
    assert {"first", "second", "member", "refuse", "cleanup", "undo"} == {where for where, _ in seen}
    assert [where for where, is_open in seen if is_open] == []


def transaction_open() -> bool:
    """By Django's word, and by the database's own."""
    if connection.in_atomic_block or not connection.get_autocommit():
        return True
    connection.ensure_connection()
    assert connection.connection is not None
    if connection.vendor == "sqlite":
        return bool(connection.connection.in_transaction)
    if connection.vendor == "postgresql":
        return bool(connection.connection.info.transaction_status.name != "IDLE")
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID()")
        return bool(cursor.fetchone()[0])
