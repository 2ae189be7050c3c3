"""Running a step's body, plain or ``async def``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any


def run_body(body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the body; a coroutine runs to its end on an event loop of its own."""
    result = body(*args, **kwargs)
    return asyncio.run(_awaited(result)) if inspect.iscoroutine(result) else result


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine
