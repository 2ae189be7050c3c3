"""Existing tasks as a project has them: nothing in here knows of workflows. What runs is written down in `seen`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from pydantic import BaseModel

from tests.celery.existing_parts import Counting, Declined, Hooked, Unreachable, ran, seen, task


@task()
def add(a: Any, b: Any) -> Any:
    ran("add", a, b)
    return a + b


@task()
def total(numbers: Any) -> Any:
    ran("total", numbers)
    return sum(numbers)


@task()
def echo(value: Any = "nothing", **named: Any) -> Any:
    ran("echo")
    return [value, named] if named else value


@task()
def fail(what: str = "no luck") -> None:
    ran("fail")
    raise Declined(what)


@task(throws=(Declined,))
def fail_as_expected() -> None:
    ran("fail_as_expected")
    raise Declined("expected")


@task(bind=True)
def look(self: Any, first: Any, second: Any = None) -> dict[str, Any]:
    request = self.request
    return {
        "name": self.name, "retries": request.retries, "args": list(request.args), "kwargs": dict(request.kwargs),
        "called_directly": request.called_directly, "has_id": bool(request.id), "task": request.task,
    }  # fmt: skip


@task(bind=True)
def limits(self: Any) -> list[Any]:
    hard, soft = self.request.timelimit
    return [hard, soft]


@task(bind=True)
def same_id(self: Any) -> int:
    seen.append(("id", self.request.id))
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return len({one for one in seen if one[0] == "id"})


@task(bind=True, default_retry_delay=0)
def retry_until(self: Any, retries: int) -> int:
    ran("retry_until")
    if self.request.retries < retries:
        raise self.retry(exc=Unreachable("not yet"))
    return int(self.request.retries)


@task(bind=True, default_retry_delay=0, max_retries=2)
def retry_with_error(self: Any) -> None:
    ran("retry_with_error")
    try:
        raise Declined("again and again")
    except Declined as error:
        raise self.retry(exc=error) from error


@task(bind=True, default_retry_delay=0, max_retries=1)
def retry_without_error(self: Any) -> None:
    ran("retry_without_error")
    raise self.retry()


@task(bind=True, max_retries=1)
def retry_as_often_as_asked(self: Any) -> int:
    ran("retry_as_often_as_asked")
    if self.request.retries < 4:
        raise self.retry(countdown=0, max_retries=5)
    return int(self.request.retries)


@task(bind=True, max_retries=None)
def retry_for_ever(self: Any, until: int) -> int:
    ran("retry_for_ever")
    if self.request.retries < until:
        raise self.retry(countdown=0)
    return int(self.request.retries)


@task(bind=True, max_retries=0)
def retry_never(self: Any) -> None:
    ran("retry_never")
    raise self.retry(exc=Declined("at once"), countdown=0)


@task(bind=True)
def halve(self: Any, number: int, by: int = 2) -> int:
    """Asks to be run again with other arguments."""
    ran("halve", number, by)
    if number > 10:
        raise self.retry(args=(number // by,), countdown=0)
    return number


@task(bind=True)
def renamed(self: Any, number: int = 0, *, word: str = "first") -> Any:
    ran("renamed", number, word)
    if word == "first":
        raise self.retry(kwargs={"word": "second"}, countdown=0)
    return [number, word]


@task(bind=True)
def retry_at(self: Any, seconds: float) -> int:
    ran("retry_at")
    if not self.request.retries:
        raise self.retry(eta=datetime.now(timezone.utc) + timedelta(seconds=seconds))
    return int(self.request.retries)


@task(bind=True)
def moves(self: Any) -> Any:
    ran("moves")
    if not self.request.retries:
        raise self.retry(queue="slow", countdown=0)
    return self.request.headers


@task(bind=True)
def retry_then_other_error(self: Any) -> None:
    ran("retry_then_other_error")
    if not self.request.retries:
        raise self.retry(exc=Unreachable("first"), countdown=0)
    raise Declined("second")


@task(autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 3, "countdown": 0})
def auto(failures: int) -> str:
    if ran("auto", failures) <= failures:
        raise Unreachable("not yet")
    return "reached"


@task(autoretry_for=(Exception,), dont_autoretry_for=(Declined,), retry_kwargs={"countdown": 0})
def auto_but_not_declined() -> None:
    ran("auto_but_not_declined")
    raise Declined("for good")


@task(autoretry_for=(Unreachable,), retry_kwargs={"countdown": 0})
def auto_other_error() -> None:
    ran("auto_other_error")
    raise ValueError("not mine")


@task(autoretry_for=(Exception,), default_retry_delay=0, max_retries=1)
def auto_ignores() -> None:
    ran("auto_ignores")
    raise Ignore


@task(autoretry_for=(Unreachable,), retry_backoff=2, retry_jitter=False, max_retries=3)
def backs_off() -> None:
    ran("backs_off")
    raise Unreachable("away")


@task(autoretry_for=(Unreachable,), retry_backoff=5, retry_backoff_max=7, retry_jitter=False, max_retries=3)
def backs_off_to_a_limit() -> None:
    ran("backs_off_to_a_limit")
    raise Unreachable("away")


@task(autoretry_for=(Unreachable,), retry_backoff=60, retry_jitter=True, max_retries=1)
def backs_off_by_dice() -> None:
    ran("backs_off_by_dice")
    raise Unreachable("away")


@task(bind=True, base=Hooked, max_retries=1)
def hooked(self: Any, how: str) -> str:
    ran("hooked", how)
    if how == "fail":
        raise Declined(how)
    if how == "retry" and not self.request.retries:
        raise self.retry(exc=Unreachable("once"))
    if how == "retry for ever":
        raise self.retry(exc=Unreachable("always"))
    if how == "ignore":
        raise Ignore
    return how


class Guarded(Hooked):
    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        seen.append("guarded")
        raise Declined("not today")


@task(base=Guarded)
def never_started() -> None:
    ran("never_started")


@task(bind=True, base=Counting)
def counted(self: Any, value: int) -> Any:
    ran("counted", value)
    if self.request.retries < 1:
        raise self.retry(countdown=0)
    return [value, self.request.retries]


@task()
def ignored() -> None:
    ran("ignored")
    raise Ignore


@task(acks_late=True)
def rejected() -> None:
    ran("rejected")
    raise Reject("not mine", requeue=False)


@task(acks_late=True)
def rejected_once() -> str:
    if ran("rejected_once") == 1:
        raise Reject("busy", requeue=True)
    return "taken"


class Order(BaseModel):
    number: int
    lines: list[str]


@task(pydantic=True)
def take_order(order: Order) -> Order:
    ran("take_order", type(order).__name__, order.number)
    return Order(number=order.number + 1, lines=[*order.lines, "done"])


@task(soft_time_limit=3, time_limit=9)
def slow(careful: bool) -> str:
    """The guard of the test raises in it."""
    ran("slow", careful)
    try:
        interrupt()
    except SoftTimeLimitExceeded:
        if not careful:
            raise
        return "tidied up"
    return "in time"


@task(soft_time_limit=3, autoretry_for=(SoftTimeLimitExceeded,), retry_kwargs={"max_retries": 1, "countdown": 0})
def slow_and_retried() -> None:
    ran("slow_and_retried")
    interrupt()


def interrupt() -> None:
    """A place where a time limit strikes; the tests say whether one does."""


@task()
def unkeepable() -> Any:
    ran("unkeepable")
    return object()


@task()
def starts_another() -> Any:
    ran("starts_another")
    return add.delay(1, 2)


@task(bind=True, autoretry_for=(Exception,))
def replaces_itself(self: Any) -> Any:
    ran("replaces_itself")
    return self.replace(add.s(1, 2))


@task(rate_limit="10/m")
def limited() -> None:
    ran("limited")


@task(time_limit=40, soft_time_limit=30, priority=4, queue="own")
def with_options() -> None:
    ran("with_options")
