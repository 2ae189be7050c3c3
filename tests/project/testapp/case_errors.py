"""Steps that end in errors no pickle and no constructor call brings back."""

from __future__ import annotations

import sys
import threading

from durable_celery import RetryPolicy, Signal, StepFailed, Workflow, step, workflow
from tests.project.testapp.steps import note

go = Signal("go", int)


class Odd(Exception):
    """Takes two arguments and tells its base about one, so that pickle cannot make it again."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unspeakable(Exception):
    """Neither `str` nor `repr` works."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def raise_odd(kind: str) -> None:
    """Each of the errors a library may come up with."""
    if kind == "odd":
        raise Odd("m", 3)
    if kind == "lock":
        raise ValueError("m", threading.Lock())
    if kind == "speechless":
        raise Speechless("m")
    if kind == "unspeakable":
        raise Unspeakable("m")
    if kind == "group":
        raise group()
    if kind == "exit":
        sys.exit("m")
    if kind == "cycle":
        one, other = ValueError("m"), KeyError("other")
        one.__cause__, other.__cause__ = other, one
        raise one
    if kind == "local":
        raise type("Local", (Exception,), {})("m")
    if kind == "surrogate":
        raise ValueError("m \ud800 \0")


def group() -> BaseException:
    """An ExceptionGroup where Python has them."""
    kind = getattr(__import__("builtins"), "ExceptionGroup", None)
    return ValueError("m") if kind is None else kind("m", [ValueError("one"), Odd("two", 2)])


KINDS = {
    "odd": "tests.project.testapp.case_errors.Odd",
    "lock": "ValueError",
    "speechless": "tests.project.testapp.case_errors.Speechless",
    "unspeakable": "tests.project.testapp.case_errors.Unspeakable",
    "group": "ExceptionGroup" if sys.version_info >= (3, 11) else "ValueError",
    "exit": "SystemExit",
    "cycle": "ValueError",
    "local": "tests.project.testapp.case_errors.Local",
    "surrogate": "ValueError",
}


@step(retry=RetryPolicy(maximum_attempts=2, initial_interval=0.2, jitter=False))
def raising(run: str, kind: str) -> None:
    """Ends in an error of this kind on both of its attempts."""
    note(run, kind)
    raise_odd(kind)


@workflow
def erring(run: str, kind: str) -> Workflow[tuple[str, str, str, int]]:
    """What the body is given: type, message, traceback, attempts."""
    try:
        yield from raising(run, kind)
    except StepFailed as error:
        return error.error_type, error.message, error.traceback, error.attempts
    return "", "", "", 0


@workflow
def going() -> Workflow[int]:
    """Takes what was sent before its first turn, or fails."""
    return (yield from go.wait(timeout=0))
