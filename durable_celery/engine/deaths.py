"""What a pool's main process does for a child that ended in the middle of a turn.

A child is in one turn at a time, and tells which: so no instance is blamed for its neighbours, and a death between two
messages, or in a step, is no turn's.
"""

from __future__ import annotations

import logging
from uuid import UUID

from durable_celery import runtime
from durable_celery.engine import budget, lost_turns, turns

log = logging.getLogger("durable_celery")


def note(instance_id: UUID, reason: str) -> None:
    """A child died in a turn of this instance: the next one tries, or, after so many, none does."""
    rt = runtime.current()
    deaths, queue = rt.store.count_turn_death(instance_id)
    if not deaths:
        return  # it has ended
    log.warning("a turn of instance %s took its process along, number %s in a row: %s", instance_id, deaths, reason)
    if deaths < rt.settings.max_deaths:
        rt.transport.advance(instance_id, queue)
    else:
        turns.block(instance_id, lost_turns.blocked(deaths, reason))


def block_endless(instance_id: UUID) -> None:
    """A turn of this instance could not be stopped, and its process was ended: no other is to go the same way."""
    limit = runtime.current().settings.turn_timeout
    turns.block(instance_id, budget.blocked(limit, "a call into C that never came back; its process was ended"))
