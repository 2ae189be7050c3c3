"""A workflow body as a generator: how it begins, where it stands, and how it is left. Knows nothing of journals."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Generator
from typing import Any

from durable_celery.core import scope
from durable_celery.core.scope import Teardown
from durable_celery.errors import UsageError

CLOSE_TRIES = 10


def begin(body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Call the body. (True, generator) if it is one, else (False, its result): a body without yield has ended already.

    A plain function that returns a generator has forgotten ``yield from``; only a wrapper that says what it wraps
    (``functools.wraps``) hands on the generator of the body.
    """
    made = body(*args, **kwargs)
    if inspect.isgenerator(made):
        return inspect.isgeneratorfunction(inspect.unwrap(body)), made
    if inspect.iscoroutine(made):
        made.close()
        raise UsageError(
            f"{body.__qualname__} is an async def; a workflow body is a plain generator (its steps may be async)"
        )
    return False, made


def where(generator: Generator[Any, Any, Any]) -> str:
    """The place at which the innermost generator of the user's stands; empty once it has ended."""
    inner: Any = generator
    found = ""
    while inner.gi_frame is not None:
        # Command.__iter__ and Saga.compensate are ours; the line people look for is that of the body around them.
        if not found or not scope.ours(inner.gi_frame):
            code = inner.gi_code
            found = scope.place(code.co_name, inner.gi_frame.f_lineno, code.co_filename)
        if not isinstance(inner.gi_yieldfrom, types.GeneratorType):
            break
        inner = inner.gi_yieldfrom
    return found


def raised_at(error: BaseException) -> str:
    """The line of the body an error came out of: that of the innermost generator, else of the first code not ours."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if not scope.ours(frame) and (not found or frame.f_code.co_flags & inspect.CO_GENERATOR):
            found = scope.place(frame.f_code.co_name, traceback.tb_lineno, frame.f_code.co_filename)
        traceback = traceback.tb_next
    return found


def delegates_to_plain_iterable(generator: Generator[Any, Any, Any]) -> str | None:
    """The type of what ``yield from`` runs over, if it is no generator: ``yield from [a, b]`` shows here."""
    over: Any = generator
    while isinstance(over, types.GeneratorType):
        over = over.gi_yieldfrom
    return None if over is None else type(over).__name__.replace("_iterator", "")


def close(generator: Generator[Any, Any, Any], interrupts: Callable[[BaseException], bool]) -> bool:
    """Leave a suspended body. False if it refuses (yields again each time); the caller then keeps it aside.

    The run is marked closing, so every helper and constructor in ``finally`` raises ``Teardown``; a command built
    before and yielded there is discarded, and closing is tried again. Any other error in ``finally`` means that the
    body has left, and is nobody's concern; what ``interrupts`` says is not the body's goes on.
    """
    for _ in range(CLOSE_TRIES):
        try:
            generator.close()
            return True
        except Teardown:
            return True
        except BaseException as error:
            if interrupts(error):
                raise
            if not (isinstance(error, RuntimeError) and "ignored GeneratorExit" in str(error)):
                return True
    return False
