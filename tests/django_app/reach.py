"""Bodies that do what they should not, for the checks; a comment names what is expected of its line."""

# ruff: noqa: C416, DTZ005, DTZ006, DTZ011

from __future__ import annotations

import os
import random as r
import threading
import time
import urllib.request as web
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from datetime import datetime as dt
from os import environ
from random import choice as pick
from time import time as clock
from typing import Any

import celery
from celery import chord, group
from django.core.mail import send_mail
from django.utils import timezone
from django.utils.timezone import now as django_now

import durable_celery
from durable_celery import (
    Signal,
    StepFailed,
    Workflow,
    gather,
    get_logger,
    set_status,
    side_effect,
    sleep,
    step,
)
from durable_celery import now as turn_time
from durable_celery import random as dice
from durable_celery import uuid4 as new_id

arrived = Signal("reach.arrived")


@step(name="reach.work")
def work(*args: Any) -> Any:
    return time.time()


def clocks() -> Workflow[Any]:
    yield from work(time.time())  # W101
    yield from work(dt.now(), date.today())  # W101 W101
    yield from work(clock())  # W101
    yield from work(timezone.now(), django_now())  # W101 W101
    time.sleep(1)  # W101
    yield from work(timezone.localtime())  # W101
    yield from work(timezone.localtime(turn_time()), dt.fromtimestamp(0), time.strptime("1", "%d"))
    return durable_celery.now()


def throwing() -> Workflow[Any]:
    import random

    yield from work(random.random(), r.randint(1, 6))  # W102 W102
    yield from work(pick([1, 2]), os.urandom(3))  # W102 W102
    yield from work(random.Random())  # W102
    yield from work(random.Random(7).random(), dice().random())
    yield from work(uuid.uuid4(), uuid.uuid1())  # W103 W103
    return uuid.uuid5(uuid.NAMESPACE_DNS, "x"), new_id()


def surroundings_() -> Workflow[Any]:
    yield from work(os.environ["HOME"], environ.get("HOME"))  # W104 W104
    yield from work(os.getenv("HOME"), os.getpid())  # W104 W104
    yield from work(os.path.join("a", "b"))


def reaching_out() -> Workflow[Any]:
    threading.Thread(target=print).start()  # W105
    with ThreadPoolExecutor() as pool:  # W105
        pool.submit(print)
    web.urlopen("http://localhost")  # W106
    send_mail("a", "b", "c", ["d"])  # W106
    yield from work()


def sending(app: celery.Celery, task: Any) -> Workflow[Any]:
    task.delay(1)  # W107
    task.apply_async((1,), countdown=3)  # W107
    app.send_task("x")  # W107
    chord([task.s()])(task.s())  # W107
    group(task.s())()  # W107
    yield chord([task.s()], task.s())
    yield from work(task.s())


def in_any_order(names: set[str], other: Any) -> Workflow[Any]:
    for name in names:  # W108
        yield from work(name)
    chosen = {"a", "b"} | set(other)
    yield from gather(*(work(name) for name in chosen))  # W108
    yield from gather(*[work(x) for x in frozenset(other)])  # W108
    yield from work(list(chosen), tuple({1, 2}))  # W108 W108
    for name in sorted(names):
        yield from work(name, name in chosen, len(chosen), sum(len(x) for x in chosen), {x for x in names})
    for name in other:
        yield from work(name)
    mixed: Any = {1}
    mixed = sorted(mixed)
    for number in mixed:
        yield from work(number)


def release() -> None: ...


def made() -> int:
    return 1


def leaving(log: Any) -> Workflow[Any]:
    state: dict[str, Any] = {}
    logger = get_logger()
    try:
        yield from work()
    finally:
        release()  # W109
        state["open"] = False  # W109
        yield from work()
        release()
    try:
        yield from work()
    finally:
        size = len(state)
        if size:
            yield from work(size)
        log.info("left")  # W109
    try:
        yield from work()
    finally:
        logger.info("left")
        release()
    try:
        yield from work()
    finally:
        set_status("cleaning up")
        yield from work(made())
    try:
        release()
    finally:
        release()


def holding() -> Workflow[Any]:
    try:
        yield from work()
    except:  # noqa: E722  # W112
        pass
    try:
        yield from work()
    except (BaseException, ValueError):  # W112
        release()
    try:
        yield from work()
    except StepFailed:
        pass
    try:
        yield from work()
    except BaseException:
        yield from work()
        raise
    try:
        release()
    except BaseException:
        pass


def waiting(options: Any) -> Workflow[Any]:
    yield from arrived.wait()  # W110
    yield from gather(arrived.wait(timeout=None), work())  # W110
    yield from Signal("inline").wait()  # W110
    yield from arrived.wait(3)
    yield from arrived.wait(timeout=3)
    yield from arrived.wait(warn_after=3)
    yield from arrived.wait(**options)
    threading.Event.wait(options)


def listing(a: Any, b: Any) -> Workflow[Any]:
    yield [a, b]  # W111
    yield from [a, b]  # W111
    yield from (work(x) for x in b)  # W111
    yield from gather(a, b)


def fine(time: Any, environ: Any) -> Workflow[Any]:
    yield from work(time.time(), environ.get("x"))
    yield from work(dt.now())  # durable: ok
    yield from work(
        r.random(),  # durable: ok
    )

    def roll() -> float:
        return r.random()

    yield from work(side_effect(lambda: clock()), side_effect(roll), side_effect(read_the_clock))
    yield from sleep(3)


def read_the_clock() -> float:
    return time.time()


def through_helpers() -> Workflow[Any]:
    yield from helped()
    for each in sorted([3, 1], key=by_chance):
        yield from work(each)


def helped() -> Workflow[Any]:
    yield from work(further())


def further() -> float:
    return clock()  # W101


def by_chance(_: Any) -> float:
    return r.random()  # W102


def numbers() -> Iterator[int]:
    yield from range(3)
