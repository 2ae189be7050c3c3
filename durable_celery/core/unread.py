"""Messages that nobody has taken, oldest first, and those that come back. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from durable_celery.core.journal import Message

if TYPE_CHECKING:
    from durable_celery.core.run import Run


def put_back(run: Run, messages: Iterable[Message]) -> None:
    """Whoever took these messages has lost: each goes to the wait that is open longest, else to its old place in order.

    That wait rises after what is rising now, which may be in the middle of a node above both.
    """
    for message in sorted(messages, key=lambda each: run.arrivals[each.id]):
        run.returned(message)
        waits = run.waits.get(message.name)
        if waits:
            node = waits[0]
            node.deliver(message)
            run.risen.append(node)
            continue
        kept = [*run.unread.get(message.name, ()), message]
        run.unread[message.name] = deque(sorted(kept, key=lambda each: run.arrivals[each.id]))
