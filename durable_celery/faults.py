"""Named points around commits and publishes at which a test may stop, fail or kill the process. Free when off.

DURABLE_CELERY_FAULT="turn.before_commit:kill" kills this process (SIGKILL) when it first reaches that point,
":kill:3" when it does so for the third time. Points are named by what happens and when: turn.before_commit,
turn.in_transaction (all is written, nothing committed), turn.after_commit; ``grep -r faults.reach`` lists them.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

Hook = Callable[[str], None]

_hook: Hook | None = None


def reach(name: str) -> None:
    """This process is at ``name``."""
    if _hook is not None:
        _hook(name)


def set_hook(hook: Hook | None) -> None:
    """Call ``hook`` with the name of each point reached from now on; None turns it off."""
    global _hook
    _hook = hook


def killer(given: str) -> Hook:
    """The hook that DURABLE_CELERY_FAULT asks for."""
    name, _, rest = given.partition(":")
    what, _, count = rest.partition(":")
    if not name or what != "kill" or (count and not count.isdigit()):
        raise ValueError(f'DURABLE_CELERY_FAULT={given!r} is not of the form "name:kill" or "name:kill:3"')
    lock, left = threading.Lock(), [int(count or 1)]

    def kill(reached: str) -> None:
        if reached != name:
            return
        with lock:
            left[0] -= 1
            due = left[0] == 0
        if due:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


if os.environ.get("DURABLE_CELERY_FAULT"):
    set_hook(killer(os.environ["DURABLE_CELERY_FAULT"]))
