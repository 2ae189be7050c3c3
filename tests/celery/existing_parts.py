"""What the existing tasks of the tests are made of: errors, classes with hooks, and what notes that a body ran."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

seen: list[Any] = []  # a run of a body, or a hook that was called


class Declined(Exception):
    pass


class Unreachable(ConnectionError):
    pass


class Hooked(Task):
    """Writes down each hook it is called with."""

    abstract = True
    default_retry_delay = 0

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        seen.append(("before_start", list(args), dict(kwargs)))

    def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
        seen.append(("on_success", retval, list(args)))

    def on_retry(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        seen.append(("on_retry", type(exc).__name__, list(args)))

    def on_failure(self, exc: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        seen.append(("on_failure", type(exc).__name__, list(args)))

    def after_return(self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        seen.append(("after_return", status, list(args)))


class Counting(Task):
    """A project's own way into its tasks."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        seen.append(("called", list(args)))
        return self.run(*args, **kwargs)


def task(**options: Any) -> Any:
    """A task of every app that writes down its runs."""

    def decorate(function: Any) -> Any:
        shared: Any = shared_task
        return shared(name=f"tests.existing.{function.__name__}", **options)(function)

    return decorate


def ran(*what: Any) -> int:
    """Write down a run; how many of the kind there were, this one included."""
    seen.append(("ran", *what))
    return sum(1 for one in seen if one == ("ran", *what))
