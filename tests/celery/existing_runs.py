"""An existing task run by plain Celery and durably, to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import Celery, _state, signals
from celery.contrib.testing.worker import start_worker

from durable_celery import run
from durable_celery.celery import install
from tests.celery.existing_parts import seen
from tests.pump import Pump

STATE: Any = _state
SIGNALS = ("task_prerun", "task_success", "task_retry", "task_failure", "task_postrun")


@dataclass(slots=True)
class Told:
    """What became of a canvas: `outcome` is ("value", v) or ("error", class name); and all that was seen meanwhile."""

    outcome: tuple[str, Any]
    seen: list[Any] = field(default_factory=list)
    signals: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture(name="worker_app", scope="module")
def worker_app_fixture() -> Iterator[Any]:
    """An app with one plain worker in this process, all in memory; nothing of ours is wired into it."""
    app: Any = Celery("plain", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.task_default_queue = "plain"
    app.conf.worker_hijack_root_logger = False
    app.conf.broker_transport_options = {"polling_interval": 0.01}
    app.conf.result_chord_retry_interval = 0.05
    before = STATE._tls.current_app, STATE.default_app
    signals.worker_init.disconnect(dispatch_uid="durable_celery.on_worker_init")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TEST_BROKER", raising=False)  # Celery's testing worker takes it for the address of a broker
        with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            patch.undo()
            yield app
    install.install()
    app.close()
    STATE._tls.current_app, STATE.default_app = before


@pytest.fixture(name="durable")
def durable_fixture(pump: Pump) -> Callable[[Callable[[], Any]], Told]:
    """Runs a canvas as an instance of its own, to its end."""

    def start(make: Callable[[], Any]) -> Told:
        seen.clear()
        with watched() as told:
            handle = run(make())
            pump.finish()
        if handle.status == "COMPLETED":
            return Told(("value", handle.result(timeout=0)), list(seen), told)
        assert handle.status == "FAILED", handle.waiting_for
        errors = [one.error for one in handle.history() if one.kind == "step" and one.state == "FAILED"]
        assert errors[0] is not None
        return Told(("error", errors[0].type.rpartition(".")[2]), list(seen), told)

    return start


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """Each task signal with the name of its task, in order."""
    told: list[tuple[str, str]] = []
    receivers = []
    for name in SIGNALS:

        def receiver(name: str = name, sender: Any = None, **_: Any) -> None:
            told.append((name, sender.name))

        getattr(signals, name).connect(receiver, weak=False)
        receivers.append((name, receiver))
    try:
        yield told
    finally:
        for name, receiver in receivers:
            getattr(signals, name).disconnect(receiver)
