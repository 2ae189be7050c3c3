"""Running a step's body, plain or ``async def``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any


def run_body(body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the body; a coroutine runs to its end on an event loop of its own."""
    result = body(*args, **kwargs)
    if not inspect.iscoroutine(result):
        return result
    if not _has_loop():
        return asyncio.run(_awaited(result))
    # A thread runs one loop at a time: under an async test or view the body gets a thread, and the caller waits for it.
    with ThreadPoolExecutor(1, thread_name_prefix="durable-step") as thread:
        return thread.submit(copy_context().run, asyncio.run, _awaited(result)).result()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


@contextmanager
def out_of_the_loop() -> Iterator[None]:
    """Inside, the event loop of an ``async def`` body is out of sight, so that Django lets the engine query.

    It holds the loop up for that statement. Another thread would have another connection, which sees nothing of what a
    test has not committed.
    """
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
