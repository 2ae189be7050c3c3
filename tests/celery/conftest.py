"""What the tests of the Celery adapters share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, _state

from durable_celery import runtime
from durable_celery.celery.transport import CeleryTransport
from tests.celery.fakes import FakeStore, runtime_with
from tests.celery.sending import transport_on

STATE: Any = _state


@pytest.fixture
def fake_store() -> Iterator[FakeStore]:
    """A store in memory, installed for the test in place of the project's."""
    before = runtime._runtime
    store = FakeStore()
    runtime.install(runtime_with(store))
    yield store
    runtime.install(before)


@pytest.fixture
def new_app() -> Iterator[Callable[..., Any]]:
    """Makes Celery apps, each with a queue of its own in memory; the process's current app is what it was after it."""
    made: list[Any] = []
    before = STATE._tls.current_app, STATE.default_app

    def make(*, main: str | None = None, broker: str = "memory://", backend: str | None = None, **conf: Any) -> Any:
        app: Any = Celery(main or f"test-{uuid4().hex}", broker=broker, backend=backend, set_as_current=False)
        app.conf.task_default_queue = f"q-{uuid4().hex}"
        app.conf.worker_hijack_root_logger = False
        app.conf.broker_transport_options = {"polling_interval": 0.01}
        app.conf.update(conf)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()
    STATE._tls.current_app, STATE.default_app = before


@pytest.fixture
def app(new_app: Callable[..., Any]) -> Any:
    return new_app()


@pytest.fixture
def transport(app: Any) -> CeleryTransport:
    return transport_on(app)


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the package logged; ``caplog`` loses its place when a worker sets up logging."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("durable_celery"), Lines()
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)
