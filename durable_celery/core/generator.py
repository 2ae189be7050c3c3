"""A workflow body as a generator: one step forward, where it stands, and how it is left. Knows nothing of journals."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator
from typing import Any

from durable_celery.core.scope import Teardown
from durable_celery.errors import UsageError

CLOSE_TRIES = 10


def begin(body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Call the body. (True, generator) if it is one, else (False, its result): a body without yield has ended already."""
    made = body(*args, **kwargs)
    if inspect.isgenerator(made):
        return True, made
    if inspect.iscoroutine(made):
        made.close()
        raise UsageError(
            f"{body.__qualname__} is an async def; a workflow body is a plain generator (its steps may be async)"
        )
    return False, made


def where(generator: Generator[Any, Any, Any]) -> str:
    """``function, line N of file`` at which the innermost generator stands."""
    inner = _innermost(generator)
    frame = inner.gi_frame
    code = inner.gi_code
    line = frame.f_lineno if frame is not None else code.co_firstlineno
    return f"{code.co_name}, line {line} of {code.co_filename.rpartition('/')[2]}"


def delegates_to_plain_iterable(generator: Generator[Any, Any, Any]) -> str | None:
    """The type of what ``yield from`` runs over, if it is no generator: ``yield from [a, b]`` shows here."""
    over = _innermost(generator).gi_yieldfrom
    if over is None or isinstance(over, types.GeneratorType):
        return None
    return type(over).__name__.replace("_iterator", "")


def close(generator: Generator[Any, Any, Any]) -> bool:
    """Leave a suspended body. False if it refuses (yields again each time); the caller then keeps it aside.

    The run is marked closing, so every helper and constructor in ``finally`` raises ``Teardown``; a command built
    before and yielded there is discarded, and closing is tried again.
    """
    for _ in range(CLOSE_TRIES):
        try:
            generator.close()
            return True
        except Teardown:
            return True
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                return True  # the body's own error while leaving; it leaves all the same
        except BaseException:  # noqa: BLE001 - an error in the body's finally; it has left
            return True
    return False


def _innermost(generator: Generator[Any, Any, Any]) -> Any:
    inner: Any = generator
    while isinstance(inner.gi_yieldfrom, types.GeneratorType):
        # Command.__iter__ is a generator of ours; the line people look for is that of the body around it.
        if (
            inner.gi_yieldfrom.gi_code.co_name == "__iter__"
            and "/core/commands" in inner.gi_yieldfrom.gi_code.co_filename.replace("\\", "/")
        ):
            break
        inner = inner.gi_yieldfrom
    return inner
