"""Named points in the engine at which a test lets something go wrong. Free when off.

DURABLE_CELERY_FAULT="turn.before_commit:kill" kills this process (SIGKILL) when it first reaches that point. All
points, kinds and the grammar are in ``docs/faults.md``; ``points.POINTS`` and ``grammar.FORM`` are what holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from durable_celery.faults import skew
from durable_celery.faults.grammar import parse
from durable_celery.faults.injection import InjectedFault as InjectedFault
from durable_celery.faults.injection import Injection as Injection
from durable_celery.faults.injection import Send
from durable_celery.faults.injection import break_by as break_by
from durable_celery.faults.points import POINTS as POINTS

Hook = Callable[[str], None]
Postman = Callable[[str, Any, Send], bool]

_hook: Hook | None = None
_postman: Postman | None = None


def reach(name: str) -> None:
    """This process is at ``name``."""
    if _hook is not None:
        _hook(name)


def post(name: str, message: Any, send: Send) -> bool:
    """Send one message by ``send(message, seconds later)``; whether the sender is to think that it went out.

    The door for faults that drop, double, delay or reorder it.
    """
    reach(name)
    if _postman is not None:
        return _postman(name, message, send)
    send(message, 0.0)
    return True


def set_hook(hook: Hook | None) -> None:
    """Call ``hook`` with the name of each point reached from now on; None turns it off."""
    global _hook
    _hook = hook


def set_postman(postman: Postman | None) -> None:
    """Let ``postman`` send each message from now on; None turns it off."""
    global _postman
    _postman = postman


@contextmanager
def injected(text: str) -> Iterator[Injection]:
    """Do these faults, in the grammar of DURABLE_CELERY_FAULT, in this process while the block is open."""
    before = _hook, _postman, skew.offset
    try:
        yield install(text)
    finally:
        set_hook(before[0])
        set_postman(before[1])
        skew.put_off(before[2])


def install(text: str) -> Injection:
    """Do these faults in this process from now on."""
    injection = Injection(parse(text))
    set_hook(injection.reach)
    set_postman(injection.post)
    injection.begin()
    return injection


if os.environ.get("DURABLE_CELERY_FAULT"):
    install(os.environ["DURABLE_CELERY_FAULT"])
