"""Which run the current code belongs to. A run is in scope only while its body is being driven, on that thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from durable_celery.errors import NotInWorkflow, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from durable_celery.core.run import Run

TEARDOWNS = 100  # that one closing raises, before a body that catches each of them is let go on to its next yield

_run: ContextVar[Run | None] = ContextVar("durable_celery_run", default=None)
_PACKAGE = __name__.partition(".")[0]
_ours: dict[str, bool] = {}  # by the names of modules


class Teardown(BaseException):
    """Raised by every helper and constructor while a suspended body is being closed, so that it can do nothing more."""


@contextmanager
def driving(run: Run) -> Iterator[None]:
    """Puts ``run`` in scope of this thread (or greenlet)."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def active() -> Run | None:
    """The run in scope, if any; raises ``Teardown`` while its body is being closed.

    Not for ever: a loop around a bare ``except`` would never end. It then yields, and so is found to refuse.
    """
    run = _run.get()
    if run is not None and run.closing:
        run.teardowns += 1
        if run.teardowns <= TEARDOWNS:
            raise Teardown
    return run


def replaying() -> bool:
    """Whether the code that calls belongs to a body that is being brought back to where it was."""
    run = _run.get()
    return run is not None and run.replaying


def instance_id() -> str:
    """The id of the instance whose body calls; "" elsewhere."""
    run = _run.get()
    return "" if run is None else run.instance_id


def required(what: str, instead: str, *, reads: bool = False) -> Run:
    """The run in scope; ``NotInWorkflow`` naming ``what`` was tried and what to use ``instead``.

    Code that may only look (``looking``) gets a ``UsageError``, unless what it asks for only ``reads``.
    """
    run = active()
    if run is None:
        raise NotInWorkflow(f"{what} works only inside a running workflow; {instead}")
    if run.inert and not reads:
        raise UsageError(
            f"{what} in {run.inert}, which may only look: it runs at any time and any number of times, so it can "
            "neither ask for anything nor record anything; do that in the body"
        )
    return run


@contextmanager
def looking(run: Run, what: str) -> Iterator[None]:
    """While open, the code that runs (``what``: "a query") may build no command and use no helper that records."""
    before, run.inert = run.inert, what
    try:
        yield
    finally:
        run.inert = before


def caller() -> str:
    """``function, line N of file`` of the nearest frame outside this package."""
    return place(*calling())


def calling(above: int = 0) -> tuple[str, int, str]:
    """The same in its parts; ``above``: how many frames over the caller are known to be of this package."""
    frame: FrameType = sys._getframe(1 + above)
    while frame.f_back is not None and (_ours.get(frame.f_globals.get("__name__", "")) or ours(frame)):
        frame = frame.f_back
    return frame.f_code.co_name, frame.f_lineno, frame.f_code.co_filename


def ours(frame: FrameType) -> bool:
    """Whether the frame runs code of this package."""
    name = frame.f_globals.get("__name__", "")
    known = _ours.get(name)
    if known is None:
        known = _ours[name] = str(name).partition(".")[0] == _PACKAGE
    return known


def place(function: str, line: int, file: str) -> str:
    """A place in the code, as every error of a body names it."""
    return f"{function}, line {line} of {file.replace(chr(92), '/').rpartition('/')[2]}"
