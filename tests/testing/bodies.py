"""Workflows that a process with another hash seed finds by importing this module."""

from __future__ import annotations

from celery import shared_task

from durable_celery import (
    CancelRequested,
    CompleteLater,
    Workflow,
    gather,
    random,
    shield,
    side_effect,
    sleep,
    step,
    uuid4,
    workflow,
)


@step(name="bodies.tag")
def tag(name: str) -> str:
    return name


@shared_task(name="bodies.add")
def add(one: int, other: int) -> int:
    return one + other


@workflow(name="bodies.unordered")
def unordered(names: set[str]) -> Workflow[int]:
    print("what a body prints does no harm")
    yield from sleep(1)
    done = yield from gather(*(tag(name) for name in names))
    return len(done)


@workflow(name="bodies.ordered")
def ordered(names: set[str]) -> Workflow[list[str]]:
    yield from shield(tag(str(uuid4())))
    yield from tag(str(random().random()))
    yield from tag(str(side_effect(lambda: id(object()))))
    yield add.s(1, 1) | add.s(2)
    done = yield from gather(*(tag(name) for name in sorted(names)))
    return list(done)


@workflow(name="bodies.last")
def last(names: set[str]) -> Workflow[str]:
    yield from sleep(1)
    return "".join(names)


@step(name="bodies.hand_over")
def hand_over() -> None:
    raise CompleteLater


@workflow(name="bodies.cleaning")
def cleaning() -> Workflow[None]:
    yield from hand_over()
    try:
        yield from tag("not any more")  # the cancel is thrown in its place
    except CancelRequested:
        yield from tag("lights")
        yield from tag("door")
        raise
