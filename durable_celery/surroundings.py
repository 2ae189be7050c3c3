"""What was current when an instance was started, restored around each of its turns and attempts.

The Django app carries the language and the time zone. A project adds its own by ``register_context``, in
``AppConfig.ready()``: the tenant, the request's id, the user.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from durable_celery import codec
from durable_celery.errors import BadValue

log = logging.getLogger("durable_celery")

LIMIT = 16 * 1024  # bytes of one value: it is loaded with every turn and attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """One thing that is carried: how it is read at the start, and put in place again."""

    capture: Callable[[], Any]
    restore: Callable[[Any], AbstractContextManager[Any]]


_carriers: dict[str, Carrier] = {}


def register_context(
    name: str, capture: Callable[[], Any], restore: Callable[[Any], AbstractContextManager[Any]]
) -> None:
    """Carry something from each start to the turns and attempts of the instance, its compensations included.

    ``capture()`` is called at the start, in the caller's thread and transaction; its value is stored with the instance
    (as results are, at most 16 KiB) and None is not stored. What it raises is raised by ``start``. ``restore(value)``
    gives a context manager that is entered around each turn of the body and each attempt of a step, nested in the order
    of registration. If it raises, the body does not run: the attempt has failed with that error and is retried by its
    policy, and the instance is BLOCKED. It may use the database around an attempt; around a turn that is refused, as in
    the body. A start from a step hands the step's own context on. A second registration of a name replaces the first;
    an instance that carries a name nobody registers any more runs without it.
    """
    if not isinstance(name, str) or not name.strip():
        raise BadValue(f"register_context needs a name, got {name!r}", path="name")
    for what, given in (("capture", capture), ("restore", restore)):
        if not callable(given):
            raise BadValue(f"register_context({name!r}, ...): {what}={given!r} is not callable", path=what)
    _carriers[name] = Carrier(capture=capture, restore=restore)


def captured() -> dict[str, Any]:
    """What is current now, by name, as plain JSON."""
    found = {}
    for name, carrier in _carriers.items():
        value = carrier.capture()
        if value is not None:
            found[name] = json.loads(codec.encode(value, root=f"context {name!r}", limit=LIMIT))
    return found


def restored(carried: Mapping[str, Any]) -> Restored:
    """Put in place what was captured; leaving what is returned takes it away. Raises what a ``restore`` raises."""
    stack = ExitStack()
    try:
        for name, carrier in _carriers.items():
            if name in carried:
                stack.enter_context(carrier.restore(codec.decode(json.dumps(carried[name]))))
    except BaseException:
        stack.close()
        raise
    return Restored(stack)


class Restored:
    """In place until it is left. What goes wrong in leaving is logged: the body has run, and its end stands."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        try:
            self._stack.close()
        except Exception:
            log.exception("taking a context away that was restored around a body failed")
