"""Queries: the body is replayed to where its last turn left it, in this process, and asked. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from durable_celery import calls, codec, finals, runtime, surroundings
from durable_celery.core import asking, transitions
from durable_celery.engine import execution
from durable_celery.engine.info import info_of
from durable_celery.errors import InstanceNotFound, WorkflowBlocked
from durable_celery.registry import registry


def answer(instance_id: UUID, name: str, args: Sequence[Any]) -> Any:
    """What the newest run of a chain answers to a query; a copy, as the codec makes it.

    ``WorkflowNotFound`` if this process does not know the workflow's code, ``NonDeterminism`` if its code does not fit
    the journal, ``WorkflowBlocked`` for a BLOCKED instance, ``UsageError`` naming the queries there are for another.
    """
    rt = runtime.current()
    values = codec.copy(list(args), root=f"arguments of query {name!r}")
    newest = rt.store.find(instance_id)
    loaded = rt.store.load(newest.id) if newest is not None else None
    if loaded is None:
        raise InstanceNotFound.of(instance_id)
    row = loaded.instance
    if row.state == transitions.BLOCKED:
        raise WorkflowBlocked(
            f"workflow {row.name} instance {row.chain_id} cannot answer query {name!r}: it is {row.waiting_for}",
            instance_id=str(row.chain_id), waiting_for=row.waiting_for,
        )  # fmt: skip
    definition = registry.workflow(row.name, row.version)
    body_args, body_kwargs = calls.decode_call(row.args)
    now = row.turn_at or rt.clock.now()
    with rt.store.refuse_queries(), surroundings.restored(row.context):
        value = asking.ask(
            definition.body, body_args, body_kwargs, loaded.journal, name=name, values=values,
            turn=row.turn, ended=row.state in transitions.FINAL_STATES or row.state == transitions.COMPENSATING,
            now=now, started_at=row.started_at if row.turn else None,
            decode=codec.decode, encode=lambda given, root: codec.encode(given, root=root),
            adapt=rt.transport.adapt, fails_on=definition.options.fails_on,
            interrupts=execution.interrupts_a_turn, in_finally=finals.in_finally, info=info_of(row, now),
        )  # fmt: skip
        return codec.copy(value, root=f"the answer of query {name!r}")
