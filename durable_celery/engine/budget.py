"""The time budget of a turn: a body that never ends is thrown ``TurnTimedOut`` at the line it has got to.

One watchdog thread a process, asleep unless a body runs. It throws by CPython's asynchronous exceptions, which strike
between two bytecodes of the body's thread: on prefork, solo and threads alike, but not inside a call that C code holds.
There the pool's main process helps, if it can (``watched_by``): it ends the process some seconds after the budget.

Rules of this file:
- It throws while ``run`` drives the body, and never after: whoever leaves takes back under the lock what is under way.
- What ``run`` drives is thrown away then, so it must change nothing outside; its context variables are a copy's.
- A body that swallows the error gets it again at its next line, and every ``AGAIN`` seconds.
"""

from __future__ import annotations

import contextvars
import ctypes
import inspect
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import CodeType, FrameType
from typing import Any, TypeVar
from uuid import UUID

from durable_celery.core import scope, transitions
from durable_celery.core.decision import Decision
from durable_celery.core.failure import failure_of
from durable_celery.errors import UsageError
from durable_celery.threads import start_deaf

T = TypeVar("T")

AGAIN = 0.05  # seconds after which a body that goes on is thrown the error once more
LATE = 1.0  # the watchdog itself woke up so late: the whole process stood still, which is no fault of the body
GRACE = 5.0  # seconds over its budget after which what cannot be thrown at is ended with its process

# Told the time.monotonic() at which this process may be ended, over a turn of which instance; 0.0: no more.
Hard = Callable[[float, "UUID | None"], object]


class TurnTimedOut(BaseException):
    """Control flow: the body's time is up. ``place`` is the line it had got to, empty if it was in none of its own."""

    place = ""  # no code of Python's runs in the making of one: _thrower stands on that


class _Struck(TurnTimedOut):
    """What the watchdog throws: made in the thread it strikes."""

    def __init__(self) -> None:
        super().__init__()
        _watchdog.insist()


class _Armed:
    """A body that runs, in which thread, until when."""

    __slots__ = ("deadline", "fired", "place", "seconds", "thread", "tool", "undo")

    def __init__(self, thread: int, seconds: float) -> None:
        self.thread = thread
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.fired = False
        self.place = ""
        self.tool = 0
        self.undo: list[Callable[[], object]] = []  # takes away what throws at lines


_hard = threading.local()


@contextmanager
def watched_by(hard: Hard) -> Iterator[None]:
    """Bodies of this thread are ended with their process if nothing else stops them: ``hard`` is told when."""
    before = getattr(_hard, "tell", None)
    _hard.tell = hard
    try:
        yield
    finally:
        _hard.tell = before


def run(call: Callable[[], T], seconds: float, instance_id: UUID | None = None) -> T:
    """``call()``, which drives a body; ``TurnTimedOut`` if it takes longer than ``seconds``."""
    tell: Hard | None = getattr(_hard, "tell", None)
    context = contextvars.copy_context()
    armed = _Armed(threading.get_ident(), seconds)
    if tell is not None:
        tell(armed.deadline + GRACE, instance_id)
    # Twice, since an error may strike in the first ``finally`` too; the next one follows AGAIN later.
    try:
        try:
            _watchdog.arm(armed)
            value = context.run(call)
        finally:
            _watchdog.disarm(armed)
    except (TurnTimedOut, Exception):
        if not armed.fired:
            raise
    finally:
        _watchdog.disarm(armed)
        if tell is not None:
            tell(0.0, None)
    if armed.fired:  # also where the body swallowed it, and went on or ended: what it did then no replay would do
        timed_out = TurnTimedOut()
        timed_out.place = armed.place
        raise timed_out
    return value


def blocked(limit: timedelta, place: str) -> Decision:
    """What becomes of the turn. ``place``: its line."""
    text = (
        f"the turn took longer than TURN_TIMEOUT of {limit.total_seconds():g} s at {place}; a body only decides what "
        "is next: move what takes time into a step"
    )
    failure = failure_of(UsageError(text, line=place))
    return Decision(state=transitions.BLOCKED, failure=failure, waiting=text)


class Watchdog:
    """The thread that throws, and what it must know: which threads are in a body, until when."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._armed: dict[int, list[_Armed]] = {}  # by thread, the innermost last
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None

    def arm(self, armed: _Armed) -> None:
        """Throw at its deadline. Wakes the thread only if that would look too late: once a budget, not once a turn."""
        with self._lock:
            self._armed.setdefault(armed.thread, []).append(armed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="durable-turns", daemon=True)
                start_deaf(self._thread)
        if armed.deadline < self._wakes_at:
            self._bell.put(None)

    def disarm(self, armed: _Armed) -> None:
        """Throw no more; what was thrown and has not struck yet is taken back. A second call does nothing."""
        with self._lock:
            mine = self._armed.get(armed.thread, [])
            if armed in mine:
                mine.remove(armed)
            if not mine:
                self._armed.pop(armed.thread, None)
            if armed.fired:
                _throw(armed.thread, None)
        undo, armed.undo = armed.undo, []
        for each in undo:
            each()

    def insist(self) -> None:
        """In the thread that was hit: throw at the next line of the body's code too, which may be in its handler."""
        stack = self._armed.get(threading.get_ident())
        if not stack or not stack[-1].fired:
            return
        armed = stack[-1]
        frame: FrameType | None = sys._getframe(1)
        frames = []
        while frame is not None and not _is_replay(frame):
            if not scope.ours(frame):
                frames.append(frame)
            frame = frame.f_back
        if sys.version_info >= (3, 12):
            _throw_by_monitoring(armed, frames)
        else:
            _throw_by_tracing(armed, frames)

    def _watch(self) -> None:
        while True:
            # First "wake me for anything", then look: whoever arms after the look sees it and rings the bell.
            self._wakes_at = math.inf
            now = time.monotonic()
            deadlines = [self._look(armed, now) for stack in list(self._armed.values()) for armed in stack[-1:]]
            self._wakes_at = min(deadlines, default=math.inf)
            try:
                self._bell.get(timeout=None if self._wakes_at == math.inf else max(0.0, self._wakes_at - now))
            except queue.Empty:
                continue

    def _look(self, armed: _Armed, now: float) -> float:
        """Throw at a body whose time is up; when to look at it again."""
        if now < armed.deadline:
            return armed.deadline
        with self._lock:
            if armed not in self._armed.get(armed.thread, []):
                return math.inf
            if now - armed.deadline > LATE and not armed.fired:
                armed.deadline = now + armed.seconds
                return armed.deadline
            if not armed.fired:
                armed.place = _place(sys._current_frames().get(armed.thread))
            armed.fired = True
            armed.deadline = now + AGAIN
            _throw(armed.thread, _Struck)
        return armed.deadline


def _throw(thread: int, error: type[BaseException] | None) -> None:
    thrown = ctypes.py_object(error) if error is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), thrown)


# ``_again[thread]`` throws at that thread. No call in its bytecode: it would be hit right after one, in the tracer.
_prototype = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)
_throw_struck = _prototype(("PyThreadState_SetAsyncExc", ctypes.pythonapi), ((1, "thread"), (1, "error", _Struck)))
_again: Any = type("_Again", (), {"__getitem__": _throw_struck})()


def _throw_by_monitoring(armed: _Armed, frames: Sequence[FrameType]) -> None:
    """Throw at each line of the frames' code, in this thread."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    if not armed.undo:
        tool = next((n for n in (4, 3, 5, 2) if monitoring.get_tool(n) is None), None)
        if tool is None:
            return  # the watchdog throws again anyhow
        thread = armed.thread

        def thrower(code: CodeType, line: int) -> Any:
            if threading.get_ident() == thread:
                raise TurnTimedOut

        monitoring.use_tool_id(tool, "durable_celery")
        monitoring.register_callback(tool, monitoring.events.LINE, thrower)
        armed.undo.append(lambda: monitoring.register_callback(tool, monitoring.events.LINE, None))
        armed.undo.append(lambda: monitoring.free_tool_id(tool))
        armed.tool = tool
    for code in {frame.f_code for frame in frames}:
        monitoring.set_local_events(armed.tool, code, monitoring.events.LINE)
        armed.undo.insert(0, partial(monitoring.set_local_events, armed.tool, code, 0))


def _throw_by_tracing(armed: _Armed, frames: Sequence[FrameType]) -> None:
    """Throw at the next line of the frames; the error that is left behind sees to the lines after it."""
    if not armed.undo:
        armed.undo.append(partial(sys.settrace, sys.gettrace()))
    sys.settrace(_thrower)
    for frame in frames:
        frame.f_trace = _thrower


def _thrower(frame: FrameType, event: str, arg: Any) -> Any:
    """A trace function for the body's frames. It raises once, since Python then takes it away, and leaves an error
    behind that strikes outside the handler that catches this one, and puts it in place again."""
    if event == "call":  # the frames that are there are those to leave; a finalizer is none of them
        return None
    if event != "line":  # on its way out: what would be thrown here takes the place of what is under way
        return _thrower
    thread = threading.get_ident()
    _again[thread]
    raise TurnTimedOut


def _place(frame: FrameType | None) -> str:
    """The line of the body, its innermost generator; of a body without one, the outermost code that is not ours."""
    found, is_generator = "", False
    while frame is not None and not _is_replay(frame):
        generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
        if not scope.ours(frame) and not is_generator:
            found = scope.place(frame.f_code.co_name, frame.f_lineno, frame.f_code.co_filename)
            is_generator = generator
        frame = frame.f_back
    return found


def _is_replay(frame: FrameType) -> bool:
    return frame.f_code is run.__code__


_watchdog = Watchdog()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_watchdog.reset)
