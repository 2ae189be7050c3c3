from __future__ import annotations

import sys
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals
from celery.worker import state
from celery.worker.request import Request

from durable_celery.celery.requests import request_class
from durable_celery.celery.transport import HEADER


class FakeMessage:
    """As much of a kombu message as a Request looks at."""

    def __init__(self, task: Any, *, ours: bool) -> None:
        self.headers = {"id": "1", "task": task.name, **({HEADER: {"step": 1}} if ours else {})}
        self.body = b"[[], {}, {}]"
        self.payload: list[Any] = [[], {}, {}]
        self.content_type = self.content_encoding = "application/json"
        self.delivery_info: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}


def einfo(error: Exception) -> Any:
    try:
        raise error
    except Exception:
        information: Any = sys.exc_info()
        return ExceptionInfo(information)


@pytest.fixture
def failures():
    seen = []

    def receiver(exception=None, **_):
        seen.append(exception)

    signals.task_failure.connect(receiver, weak=False)
    yield seen
    signals.task_failure.disconnect(receiver)


@pytest.fixture
def request_of(new_app):
    def make(*, ours):
        app = new_app(backend="cache+memory://", task_store_errors_even_if_ignored=True)

        @app.task(name="theirs", shared=False, Request=request_class("celery.worker.request:Request"))
        def theirs():
            return None

        return theirs.Request(FakeMessage(theirs, ours=ours), app=app, task=theirs)

    return make


@pytest.mark.parametrize("error", [WorkerLostError("killed"), TimeLimitExceeded(9)])
def test_a_lost_child_is_no_failure_of_our_message(request_of, failures, error):
    request = request_of(ours=True)
    state.task_reserved(request)
    request.on_failure(einfo(error))
    assert failures == []
    assert request not in state.reserved_requests
    assert request.store_errors is False


def test_the_pools_limit_is_no_failure_of_our_message(request_of, failures):
    request = request_of(ours=True)
    request.on_timeout(soft=True, timeout=9)
    request.on_timeout(soft=False, timeout=9)
    assert failures == []


def test_other_messages_fail_as_ever(request_of, failures):
    request = request_of(ours=False)
    assert request.store_errors
    request.on_failure(einfo(WorkerLostError("killed")))
    assert len(failures) == 1


def test_a_request_class_of_the_apps_own_lives_on():
    class Theirs(Request):
        own = "theirs"

    made = request_class(Theirs)
    assert issubclass(made, Theirs)
    assert made.own == "theirs"
