"""O-42: behind a pool that gives a connection to each transaction nothing breaks, and none waits inside one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from durable_celery import (
    RetryPolicy,
    Signal,
    Workflow,
    continue_as_new,
    current_step,
    gather,
    map_step,
    patched,
    query,
    race,
    side_effect,
    sleep,
    step,
    update,
    workflow,
)
from durable_celery.purging import purge
from tests.effects import effects
from tests.processes import ROOT, eventually
from tests.project.pooling import each_transaction_anew
from tests.project.testapp.models import Effect
from tests.project.testapp.workflows import lingering, napping, parallel, retrying, sequence
from tests.pump import Pump, counted
from tests.services import pgbouncer

pytestmark = pytest.mark.django_db(transaction=True)

SESSION = {  # what does not end with the transaction, in SQL or in Django's words
    "a lock of the session": r"pg_(try_)?advisory_lock|GET_LOCK\s*\(|LOCK TABLES",
    "LISTEN and NOTIFY": r"\bLISTEN\b|\bNOTIFY\b|pg_notify",
    "a setting of the session": r"\bSET\s+(?!LOCAL\b|TRANSACTION\b)(SESSION\s|@@?|[A-Za-z_.]+\s*(=|TO\b))",
    "a prepared statement": r"\bPREPARE\b|\bDEALLOCATE\b",
    "a cursor or a temporary table": r"\bDECLARE\s+\S+\s+(NO SCROLL\s+)?CURSOR\b|WITH HOLD|CREATE TEMP",
}
go = Signal("o42.go", int)
in_transaction: list[bool] = []


@step(name="o42.note", retry=RetryPolicy(initial_interval=1, jitter=False))
def note(what: str, failures: int = 0) -> str:
    in_transaction.append(connection.in_atomic_block)
    Effect.objects.create(run="o42", what=what, key=current_step().idempotency_key)
    if current_step().attempt <= failures:
        raise OSError("not yet")
    return what


@step(name="o42.exactly_once", atomic=True)
def exactly_once(what: str) -> str:
    Effect.objects.create(run="o42", what=what, key=current_step().idempotency_key)
    return what


@step(name="o42.undo")
def undo(result: str | None) -> None:
    note.call(f"undo {result}")


@step(name="o42.break", retry=None)
def breaks() -> None:
    raise RuntimeError("no")


@workflow(name="o42.child")
def child(fails: bool) -> Workflow[str]:
    done = yield from note(f"child {fails}").compensate_with(undo)
    if fails:
        yield from breaks()
    return done


@workflow(name="o42.everything", key=lambda lap: "o42")
def everything(lap: int) -> Workflow[int]:
    seen = [0]
    query("seen", lambda: seen[0])
    update("add", lambda number: seen.__setitem__(0, seen[0] + number))
    patched("o42")
    side_effect(lambda: 1)
    yield from gather(note(f"a {lap}"), note(f"b {lap}", 1), exactly_once(f"c {lap}"), limit=2)
    yield from map_step(note, [f"mapped {lap} {number}" for number in range(5)], limit=2)
    yield from race(sleep(5), go.wait())
    yield from child(False)
    try:
        yield from child(True)
    except Exception:
        pass
    yield from sleep(10)
    if lap:
        return (yield from continue_as_new(lap - 1))
    return seen[0]


@pytest.fixture
def pooled() -> Iterator[list[int]]:
    with each_transaction_anew() as closed:
        yield closed
    in_transaction.clear()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("laps", [
    pytest.param(1, marks=pytest.mark.on("sqlite", "postgres", "memory", "redis")),
    pytest.param(2, marks=pytest.mark.nightly),  # MariaDB takes long to connect
])  # fmt: skip
def test_o42_everything_works_on_a_new_connection_for_each_transaction(
    pump: Pump, pooled: list[int], laps: int
) -> None:
    Effect.objects.all().delete()
    with transaction.atomic():
        handle = everything.start(laps)
        assert not pump.queue, "published after the commit"
    go.send(handle, 7)
    with counted() as sent:
        pump.advance_time(seconds=8)
        handle.update("add", 3, wait=False)
        pump.advance_time(seconds=4)
        pump.finish()
    assert handle.status == "COMPLETED"
    counts = effects("o42")
    assert {what: count for what, count in counts.items() if count > 1} == {
        **dict.fromkeys((f"b {lap}" for lap in range(laps + 1)), 2),  # one attempt failed
        **dict.fromkeys(("child False", "child True", "undo child True"), laps + 1),
    }
    assert counts["c 1"] == counts["c 0"] == counts["mapped 0 4"] == 1
    assert in_transaction, "steps ran"
    assert not any(in_transaction), "a body ran inside a transaction"
    assert pooled[0] > 100, "connections were closed all the while"
    assert len(sent) > 100
    for statement in sent:
        assert found_in(statement) == [], statement
    pump.now += timedelta(days=31)
    assert purge().instances == 3 * (laps + 1)


def found_in(text: str) -> list[str]:
    bare = re.sub(r"'[^']*'", "''", text)
    return [what for what, words in SESSION.items() if re.search(words, bare, re.IGNORECASE) and "UPDATE" not in bare]


@pytest.mark.parametrize("text", [
    "SELECT pg_advisory_lock(1)", "SELECT GET_LOCK('a', 1)", "LISTEN work", "SET statement_timeout = 5",
    "SET SESSION lock_timeout TO 1", "PREPARE a AS SELECT 1", "DECLARE a NO SCROLL CURSOR WITH HOLD FOR SELECT 1",
])  # fmt: skip
def test_o42_the_guard_finds_what_it_looks_for(text: str) -> None:
    assert found_in(text) != []
    assert found_in("SET LOCAL lock_timeout = 5") == found_in("SELECT pg_advisory_xact_lock(1)") == []


def test_o42_no_source_asks_for_what_outlives_a_transaction() -> None:
    looked = 0
    for path in source():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            texts = re.findall(r"\"([A-Z]{3,}[^\"]*)\"", line)  # SQL as it is written here
            assert not any(found_in(text) for text in texts), f"{path}:{number}: {line}"
            # Behind a pool a server-side cursor is gone with its transaction.
            assert ".iterator(" not in line, f"{path}:{number}: {line}"
            looked += len(texts)
    assert looked > 3


def source() -> Iterator[Path]:
    for folder in ("durable_celery", "django_app"):
        yield from Path(ROOT, folder).rglob("*.py")


@pytest.mark.prefork
@pytest.mark.timeout(180)
@pytest.mark.on("postgres", "redis")
def test_o42_workers_behind_pgbouncer_in_transaction_mode(start_worker: Callable[..., Any], tmp_path: Path) -> None:
    pool = pgbouncer.start(os.environ["TEST_POSTGRES_URL"])
    if pool is None:
        assert not os.environ.get("CI"), "pgbouncer is not installed"
        pytest.skip("pgbouncer is not installed")
    try:
        env = {
            "TEST_POSTGRES_URL": pool.url,
            "TEST_DATABASE": json.dumps({"DISABLE_SERVER_SIDE_CURSORS": True, "CONN_MAX_AGE": 60}),
            "TEST_DURABLE_CELERY": '{"TICK": 0.3}',
            "PGAPPNAME": "pooled",
        }
        workers = [start_worker(concurrency=4, env=env, arguments=["-n", f"pooled{number}@host"]) for number in (1, 2)]
        gate = tmp_path / "gate"
        slow = lingering.start("slow", str(gate))
        eventually(lambda: effects("slow")["lingering"] == 1, "a body that runs")
        assert inside_a_transaction() == 0, "no transaction is open while a body runs"
        handles: list[Any] = [
            *sequence.start_many([("pooled", 3)] * 6), *parallel.start_many([("pooled", 5)] * 4),
            retrying.start("pooled", 2), napping.start("pooled", 1),
        ]  # fmt: skip
        results = [handle.result(timeout=90) for handle in handles]
        assert results[:6] == [["step 0", "step 1", "step 2"]] * 6
        gate.touch()
        assert slow.result(timeout=60) == "done"
        assert 1 <= through_the_pool() <= pgbouncer.POOL, "ten processes and more, and so few connections"
        counts = effects("pooled")
        assert (counts["step 0"], counts["member 0"], counts["flaky"], counts["after"]) == (6, 4, 3, 1)
        eventually(lambda: inside_a_transaction() == 0, "the end of all transactions")
        for worker in workers:
            assert not re.search(r"Traceback|OperationalError|InterfaceError|ProgrammingError", worker.text())
    finally:
        pool.stop()


def inside_a_transaction() -> int:
    """How many connections of others to this database wait inside a transaction; one in a statement is at work."""
    return ask("state LIKE 'idle in transaction%' AND now() - state_change > interval '0.5 seconds'")


def through_the_pool() -> int:
    return ask("application_name = 'pooled'")


def ask(condition: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            f"AND {condition}"
        )
        count: int = cursor.fetchone()[0]
    return count
