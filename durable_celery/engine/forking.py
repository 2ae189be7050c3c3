"""Replaying a stored run up to a position, to fork it there. Nothing changes."""

from __future__ import annotations

from datetime import datetime

from durable_celery import calls, codec, finals, surroundings
from durable_celery.core.forking import Fork, fork_before
from durable_celery.engine import execution
from durable_celery.engine.info import info_of
from durable_celery.ports import Loaded
from durable_celery.registry import registry
from durable_celery.runtime import Runtime


def fork_of(rt: Runtime, loaded: Loaded, position: str, now: datetime) -> Fork:
    """The fork of a run at a position, by this process's code; the errors are those of ``fork_before``."""
    instance = loaded.instance
    definition = registry.workflow(instance.name, instance.version)
    args, kwargs = calls.decode_call(instance.args)
    with rt.store.refuse_queries(), surroundings.restored(instance.context):
        return fork_before(
            position, definition.body, args, kwargs, loaded.journal,
            turn=instance.turn + 1, now=now, started_at=instance.started_at if instance.turn else None,
            decode=codec.decode, encode=lambda value, root: codec.encode(value, root=root), adapt=rt.transport.adapt,
            fails_on=definition.options.fails_on, interrupts=execution.interrupts_a_turn,
            in_finally=finals.in_finally, info=info_of(instance, now),
        )  # fmt: skip
