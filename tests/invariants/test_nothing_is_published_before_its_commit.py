"""Nothing is published before its commit: whoever takes a message finds the row it is about, if it is not taken yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from durable_celery import RetryPolicy, Signal, Workflow, gather, step, workflow
from tests.pump import Pump

go_on = Signal("go_on", str)
quick = RetryPolicy(initial_interval=1, maximum_attempts=2, jitter=False)
tries: list[str] = []


@step(retry=quick)
def unlucky(what: str) -> str:
    tries.append(what)
    if tries.count(what) == 1:
        raise ConnectionError(what)
    return what


@step(retry=None, atomic=True)
def plain(what: str) -> str:
    return what


@step(retry=None)
def hopeless(what: str) -> str:
    raise ValueError(what)


@step
def taken_back(result: Any) -> str:
    return f"{result} taken back"


@workflow
def child(what: str) -> Workflow[str]:
    return (yield from plain(what))


@workflow
def everything(run: str) -> Workflow[str]:
    """What is handed out by turns, by ends of steps, by children, by the clock and by compensation."""
    yield from unlucky(run).compensate_with(taken_back)
    yield from gather(*(plain(f"{run} {number}") for number in range(4)), limit=2)
    yield from child(run)
    yield from go_on.wait()
    yield from hopeless(run)
    return run


class Watched(Pump):
    """Notes each message that is published while a transaction is open, in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.early: list[str] = []

    def _send(self, **about: Any) -> bool:
        if connection.in_atomic_block:
            self.early.append(str(about.get("name") or about))
        return super()._send(**about)


@pytest.fixture
def watched(transactional_db: None) -> Iterator[Watched]:
    tries.clear()
    with Watched() as pump:
        yield pump


def test_nothing_is_published_before_its_commit(watched: Watched) -> None:
    with transaction.atomic():
        handle = everything.start("run")
    watched.finish()
    with transaction.atomic():
        go_on.send(handle, "now")
    watched.finish()
    assert handle.status == "FAILED"
    names = {hint.name.rpartition(".")[2] for hint in watched.sent}
    assert names == {"", "unlucky", "plain", "hopeless", "taken_back"}
    assert watched.early == []


def test_nor_what_people_do_from_outside(watched: Watched) -> None:
    handle = everything.start("run")
    watched.finish()
    for act in (handle.pause, handle.resume, handle.cancel):
        with transaction.atomic():
            act()
    watched.finish()
    assert handle.status == "CANCELLED"
    assert watched.early == []
