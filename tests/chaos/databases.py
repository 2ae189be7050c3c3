"""What can be done to the database of a run: cut its connections, hold its locks, restart it.

Each through a connection of its own, by the driver itself, so that nothing of Django is in the way.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.services import Service, mariadb, postgres

INSTANCES, STEPS, DOORS = "durable_celery_workflowinstance", "durable_celery_stepresult", "durable_celery_mailbox"
OPEN_INSTANCES = f"SELECT id FROM {INSTANCES} WHERE finished_at IS NULL ORDER BY id DESC LIMIT %s FOR UPDATE"
OPEN_STEPS = f"SELECT id FROM {STEPS} WHERE finished_at IS NULL ORDER BY id DESC LIMIT %s FOR UPDATE"
OPEN_DOORS = f"SELECT instance_id FROM {DOORS} WHERE closed_at IS NULL ORDER BY instance_id DESC LIMIT %s FOR UPDATE"
TICKS = "SELECT id FROM durable_celery_engineheartbeat ORDER BY id LIMIT %s FOR UPDATE"  # somebody always wants it
ROWS = 300
PATIENCE = 5  # seconds for a lock: one that is frozen holds it until this driver, which would be waiting, thaws it


@dataclass(kw_only=True)
class Server:
    """A database on a server; with ``service`` the server is this run's own."""

    url: str
    name: str
    service: Service | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("cut database", "lock conflict", *(("restart database",) if self.service else ()))

    @property
    def address(self) -> dict[str, Any]:
        parts = urlsplit(self.url)
        return {
            "host": parts.hostname,
            "port": parts.port,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
        }

    def cut(self) -> int:
        """Close every connection to the database but this one; how many."""
        raise NotImplementedError

    def hold(self, seconds: float, *, against_order: bool) -> int:
        """Lock open rows for so long; how many others waited at once for a lock meanwhile.

        ``against_order``: steps first, then instances, as no transaction of the engine does; so some deadlock.
        """
        rows = (OPEN_STEPS, OPEN_INSTANCES) if against_order else (OPEN_DOORS, OPEN_INSTANCES, OPEN_STEPS)
        order = (TICKS, *rows)
        try:
            with self.connection() as cursor:
                return max(self._lock(cursor, order, seconds))
        except Exception as error:  # of whichever driver
            if "deadlock" not in str(error).lower():
                raise
            return 1  # with somebody who waited, too

    def _lock(self, cursor: Any, order: Sequence[str], seconds: float) -> Iterator[int]:
        cursor.execute("BEGIN")
        for statement in order:
            cursor.execute(statement, [ROWS])
            for _ in range(4):
                time.sleep(seconds / len(order) / 4)
                yield self.waiting()
        cursor.execute("ROLLBACK")

    def waiting(self) -> int:
        """How many connections wait for a lock."""
        raise NotImplementedError

    def connection(self) -> Any:
        raise NotImplementedError

    def halt(self, *, hard: bool) -> None:
        """End the server: with SIGKILL, or as an operator would who does not wait for clients."""
        assert self.service is not None
        self.service.halt(signal.SIGKILL if hard else signal.SIGTERM)

    def relaunch(self) -> None:
        assert self.service is not None
        self.service = self.service.relaunch()

    def answers(self) -> bool:
        raise NotImplementedError


class Postgres(Server):
    def cut(self) -> int:
        with self.connection() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
                [self.name],
            )
            return int(cursor.fetchone()[0])

    def waiting(self) -> int:
        with self.connection() as cursor:
            cursor.execute("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted")
            return int(cursor.fetchone()[0])

    @contextmanager
    def connection(self) -> Iterator[Any]:
        import psycopg

        patience = f"-c lock_timeout={PATIENCE}s"
        opened = psycopg.connect(
            dbname=self.name, autocommit=True, connect_timeout=5, options=patience, **self.address
        )  # fmt: skip
        with closing(opened):
            yield opened.cursor()

    def halt(self, *, hard: bool) -> None:
        """PostgreSQL waits for its clients at a SIGTERM; SIGINT is its fast shutdown, SIGQUIT the immediate one."""
        assert self.service is not None
        self.service.halt(signal.SIGQUIT if hard else signal.SIGINT)

    def answers(self) -> bool:
        return postgres.answers(self.address["host"], self.address["port"])


class MariaDB(Server):
    def cut(self) -> int:
        with self.connection() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()", [self.name]
            )
            return sum(self._kill(cursor, found) for (found,) in cursor.fetchall())

    def waiting(self) -> int:
        with self.connection() as cursor:
            cursor.execute("SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'")
            return int(cursor.fetchone()[0])

    @contextmanager
    def connection(self) -> Iterator[Any]:
        import pymysql

        patience = f"SET innodb_lock_wait_timeout = {PATIENCE}"
        opened = pymysql.connect(
            database=self.name, autocommit=True, connect_timeout=5, init_command=patience, **self.address
        )  # fmt: skip
        with closing(opened):
            yield opened.cursor()

    def answers(self) -> bool:
        return mariadb.answers(self.address["host"], self.address["port"])

    @staticmethod
    def _kill(cursor: Any, connection: int) -> bool:
        import pymysql

        try:
            cursor.execute(f"KILL CONNECTION {int(connection)}")
        except pymysql.err.OperationalError:  # it has gone by itself
            return False
        return True


@dataclass(kw_only=True)
class SQLite:
    """A file: there is nothing to restart and no connection to cut."""

    path: str

    kinds = ("lock conflict",)

    def hold(self, seconds: float, *, against_order: bool) -> int:
        """Be the one writer for so long; 1, as it was taken."""
        with closing(sqlite3.connect(self.path, timeout=20, isolation_level=None)) as opened:
            opened.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            opened.execute("ROLLBACK")
        return 1

    def answers(self) -> bool:
        return True
