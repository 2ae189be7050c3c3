"""The parts of this process, put together once by ``AppConfig.ready()`` and found here by everyone else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from durable_celery.conf import Settings
from durable_celery.errors import NotConfigured
from durable_celery.faults import skew

if TYPE_CHECKING:
    from durable_celery.ports import Client, Store, Transport

OFFSET_AGE = 60.0  # seconds a measured clock offset is good for in a process that renews no lease
JUMP = 0.5  # seconds by which this machine's clock and its stopwatch may disagree; beyond it somebody has set the clock


class Clock:
    """This process's clock corrected to the database's. ``now()`` costs no query but once a minute."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._offset = timedelta(0)
        self._measured: tuple[datetime, float] | None = None  # by this machine's clock, and by its stopwatch

    def now(self) -> datetime:
        """The database's time, aware UTC, as far as this process knows."""
        if not self._is_fresh():
            self.measure()
        return self.guess()

    def guess(self) -> datetime:
        """The same by the offset that was measured last, whenever that was: costs no query, for figures only."""
        return self.local() + self._offset

    def _is_fresh(self) -> bool:
        """Not if it is old, nor if the clock was set meanwhile: a timer must not fire early for that."""
        if self._measured is None:
            return False
        at, ticks = self._measured
        passed = (self.local() - at).total_seconds()
        return abs(passed) <= OFFSET_AGE and abs(passed - (time.monotonic() - ticks)) <= JUMP

    def measure(self) -> datetime:
        """Read the database's clock (one statement) and remember the offset; called at each lease renewal and tick."""
        before = self.local()
        theirs = self._store.measure()
        after = self.local()
        with self._lock:
            self._offset = theirs - (before + (after - before) / 2)
            self._measured = after, time.monotonic()
        return theirs

    def local(self) -> datetime:
        """The machine's own clock; tests and faults replace it."""
        return datetime.now(timezone.utc) + skew.offset


@dataclass(slots=True, kw_only=True)
class Incarnation:
    """Who this process is when it claims: its lease (None outside a worker), node name and worker pool."""

    lease_id: Any = None
    node: str = ""
    pool: str = "solo"  # "prefork" lets bodies be stopped by signal


@dataclass(slots=True, kw_only=True)
class Runtime:
    """The store, the transport, the settings and the clock in force."""

    store: Store
    transport: Transport
    settings: Settings
    clock: Clock
    decide: Callable[[Callable[..., Any], Any], Any] = lambda take, journal: take(journal)  # the testing kit's check
    idle: Callable[[], None] = lambda: None  # called while somebody waits; the testing kit then plays the worker
    refuse_endless: Callable[[str], None] = lambda what: (
        None
    )  # called before a wait for ever; the testing kit's ends it
    lasting: bool = False  # the testing kit's: only its settings follow those of the project


_runtime: Runtime | None = None
_lent: ContextVar[Runtime | None] = ContextVar("durable_celery_lent_runtime", default=None)


def install(runtime: Runtime | None) -> None:
    """Put the parts in place; a second call replaces them (tests, the harness)."""
    global _runtime
    _runtime = runtime


def follow(runtime: Runtime) -> None:
    """Put parts in place that other settings ask for; those of a testing kit stay, and take the settings over."""
    if _runtime is not None and _runtime.lasting:
        _runtime.settings = runtime.settings
    else:
        install(runtime)


@contextmanager
def lent(runtime: Runtime) -> Iterator[Runtime]:
    """Other parts for this thread (and what it awaits) alone, while the block is open."""
    token = _lent.set(runtime)
    try:
        yield runtime
    finally:
        _lent.reset(token)


def current() -> Runtime:
    """The parts of this process; ``NotConfigured`` says how to install them."""
    runtime = _lent.get()
    if runtime is not None:
        return runtime
    if _runtime is None:
        raise NotConfigured(
            "durable_celery is not set up in this process: add 'durable_celery' to INSTALLED_APPS, run 'manage.py "
            "migrate', and make sure django.setup() has run (a Celery worker does it where DJANGO_SETTINGS_MODULE is "
            "set)"
        )
    return _runtime


def settings() -> Settings:
    """The settings in force; the defaults where nothing is installed (importing a workflow without Django)."""
    return _runtime.settings if _runtime is not None else _DEFAULTS


_DEFAULTS = Settings()
_client: Client | None = None


def use_client(client: Client) -> None:
    """Put the client in place, for the definitions that start instances and send to them."""
    global _client
    _client = client


def client() -> Client:
    """The client of this process."""
    assert _client is not None, "importing durable_celery puts it in place"
    return _client
