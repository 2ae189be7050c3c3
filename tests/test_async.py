"""Async twins: what async code says to workflows, and that no method of the handle lacks one."""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.test import AsyncClient, override_settings
from django.urls import path

from django_app.models import WorkflowInstance
from durable_celery import (
    Signal,
    UsageError,
    Workflow,
    WorkflowFailed,
    WorkflowHandle,
    current_step,
    handle_async,
    step,
    workflow,
)
from durable_celery.client import aget_handle
from tests.pump import Pump

approved = Signal("approved", str)


@step(name="async.greet")
def greet(name: str) -> str:
    return f"hello {name}"


@workflow(name="async.greeting", key=lambda name: name)
def greeting(name: str) -> Workflow[str]:
    by = yield from approved.wait()
    return (yield from greet(f"{name} by {by}"))


@workflow(name="async.failing", fails_on=ValueError)
def failing() -> Workflow[None]:
    raise ValueError("no")
    yield  # pragma: no cover


async def view(request: HttpRequest, name: str) -> JsonResponse:
    handle = await greeting.astart(name)
    await approved.asend(handle, "ana", signal_id="1")
    await handle.asignal("approved", "bob", signal_id="1")
    return JsonResponse(
        {
            "id": handle.id,
            "status": await handle.astatus(),
            "key": await handle.akey(),
            "same": (await greeting.aget(key=name)).id == handle.id,
            "run": await handle.arun_id(),
        }
    )


urlpatterns = [path("greet/<str:name>", view)]


@pytest.mark.django_db(transaction=True)
@override_settings(ROOT_URLCONF=__name__)
def test_an_async_view_starts_sends_and_asks(pump: Pump) -> None:
    async def get() -> Any:
        return await AsyncClient().get("/greet/ana")

    said = async_to_sync(get)().json()
    assert said == {"id": said["id"], "status": "PENDING", "key": "ana", "same": True, "run": said["id"]}
    pump.finish()

    async def ask() -> Any:
        handle = await aget_handle(said["id"])
        entries = await handle.ahistory()
        return await handle.aresult(timeout=0), await handle.awaiting_for(), [entry.name for entry in entries]

    assert async_to_sync(ask)() == ("hello ana by ana", "", ["approved", "async.greet"])


@pytest.mark.django_db(transaction=True)
def test_many_starts_and_celerys_words_have_twins(pump: Pump) -> None:
    async def start() -> list[WorkflowHandle[str]]:
        return [
            *await greeting.astart_many([("a",), ("b",)]),
            await greeting.adelay("c"),
            await greeting.aapply_async(("d",), queue="vip"),
            await greeting.using(key="other").astart("e"),
            *await greeting.using(priority=3).astart_many([("f",)]),
        ]

    handles = async_to_sync(start)()
    assert [handle.key for handle in handles] == ["a", "b", "c", "d", "other", "f"]
    assert WorkflowInstance.objects.count() == 6


@pytest.mark.django_db(transaction=True)
def test_a_start_rolled_back_in_the_thread_of_the_database_is_gone(pump: Pump) -> None:
    async def start() -> None:
        from asgiref.sync import sync_to_async

        def both() -> None:
            with transaction.atomic():
                greeting.start("a")
                transaction.set_rollback(True)

        await sync_to_async(both)()
        await greeting.astart("b")

    async_to_sync(start)()
    assert list(WorkflowInstance.objects.values_list("key", flat=True)) == ["b"]


@pytest.mark.django_db(transaction=True)
def test_aresult_raises_what_result_raises(pump: Pump) -> None:
    handle = failing.start()
    pump.finish()
    with pytest.raises(WorkflowFailed, match="no"):
        async_to_sync(handle.aresult)()
    waiting = greeting.start("a")
    with pytest.raises(TimeoutError, match="PENDING after 0 s"):
        async_to_sync(waiting.aresult)(timeout=0)


@pytest.mark.django_db(transaction=True)
def test_aresult_holds_no_thread_between_its_looks(pump: Pump) -> None:
    """Many wait at once, while the one thread they share goes on working for others."""
    handles = greeting.start_many([(str(number),) for number in range(20)])
    threads: set[int] = set()

    async def wait() -> list[str]:
        waiting = [asyncio.create_task(handle.aresult(timeout=30)) for handle in handles]
        for handle in handles:
            await handle.asignal("approved", "ana")
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        threads.update(thread.ident or 0 for thread in threading.enumerate())
        from asgiref.sync import sync_to_async

        await sync_to_async(pump.finish)()
        return await asyncio.gather(*waiting)

    before = threading.active_count()
    assert async_to_sync(wait)() == [f"hello {number} by ana" for number in range(20)]
    assert len(threads) <= before + 3


@pytest.mark.django_db
def test_aresult_inside_a_transaction_is_refused() -> None:
    assert connection.in_atomic_block
    handle = greeting.start("a")
    with pytest.raises(UsageError, match=r"inside atomic\(\)"):
        async_to_sync(handle.aresult)(timeout=5)


def test_every_public_method_and_attribute_has_a_twin_that_type_checkers_know() -> None:
    declared = declarations()
    for name, what in vars(WorkflowHandle).items():
        if name.startswith("_") or name in ("id", "created") or inspect.iscoroutinefunction(what):
            continue
        twin = getattr(WorkflowHandle, f"a{name}")
        assert inspect.iscoroutinefunction(twin), name
        call = what.fget if isinstance(what, property) else what
        assert declared.get(f"a{name}") == parameters(call), f"declare a{name} in durable_celery/handle_async.py"


def declarations() -> dict[str, list[str]]:
    tree = ast.parse(Path(handle_async.__file__).read_text())
    return {
        node.name: [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef) and node.name != "twin"
    }


def parameters(call: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [name for name, given in inspect.signature(call).parameters.items() if given.kind not in kinds]


@step(name="async.slow_greet")
async def slow_greet(name: str) -> tuple[str, str]:
    await asyncio.sleep(0)
    if name == "nobody":
        raise LookupError(name)
    return f"hello {name}", current_step().idempotency_key


def test_an_async_body_is_called_where_no_loop_runs_and_where_one_does() -> None:
    async def caller() -> tuple[str, str]:
        return slow_greet.call("ana")

    for told, key in (slow_greet.call("ana"), asyncio.run(caller())):
        assert told == "hello ana"
        assert key, "the body knows its step"


def test_the_error_of_an_async_body_called_under_a_loop_is_its_own() -> None:
    async def caller() -> None:
        with pytest.raises(LookupError, match="nobody"):
            slow_greet.call("nobody")

    asyncio.run(caller())
