"""From outside: starting instances, sending to them, asking about them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from durable_celery import calls, faults, payloads, runtime, steering, surroundings
from durable_celery.core import identity, labels
from durable_celery.engine import verdicts
from durable_celery.errors import BadValue, InstanceNotFound, KeyConflict
from durable_celery.handle import WorkflowHandle as WorkflowHandle
from durable_celery.messages import checked_name
from durable_celery.options import StartOptions
from durable_celery.ports import Created, NewInstance, NewMessage, Wake
from durable_celery.registry import registry
from durable_celery.twins import in_thread
from durable_celery.workflows import WorkflowDefinition

SLOTS_BEHIND = 3  # slots of an interval that Beat, a little late or just started again, may have missed


class Client:
    """Starts and sends; ``ports.Client``."""

    def start(
        self,
        definition: WorkflowDefinition[Any, Any],
        made: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
        options: StartOptions,
    ) -> list[WorkflowHandle[Any]]:
        """Insert the instances in the current transaction; they run after its commit, whatever the broker does."""
        rt = runtime.current()
        newest = registry.newest(definition.name)
        now = rt.clock.now()
        rows = [_new_instance(newest, args, kwargs, options, now) for args, kwargs in made]
        created = rt.store.create(rows)
        for new, row in zip(rows, created, strict=True):
            _check_same(newest, new, row, by_id=options.id is not None)
        rt.store.on_commit(
            lambda: _publish(
                [(r.id, n.queue) for n, r in zip(rows, created, strict=True) if r.created], options.start_delay
            )
        )
        for row in created:
            if options.signal is not None and not row.created:  # news to one that is open already
                steering.hint_after_commit(row.id, point="send.after_commit")
        return [WorkflowHandle(str(row.id), created=row.created) for row in created]

    def get(self, name: str, key: str) -> WorkflowHandle[Any]:
        """The open instance with this key, else the newest closed one."""
        if identity.check_key(key) is None:
            raise BadValue("get() needs a key, got None", path="key")
        row = runtime.current().store.find_by_key(name, key)
        if row is None:
            raise InstanceNotFound(f"there is no instance of workflow {name} with key {key!r}", key=key)
        return WorkflowHandle(str(row.chain_id))

    def signal(self, target: Any, name: str, payload: Any, signal_id: str | None) -> None:
        """Store a message in the current transaction and hint at it after the commit."""
        checked_name("a signal", name)
        if signal_id is not None and (not isinstance(signal_id, str) or not signal_id.strip()):
            raise BadValue(
                f"signal_id={signal_id!r} is not allowed, expected a non-empty str or None", path="signal_id"
            )
        labels.check_text(signal_id or "", "signal_id")
        rt = runtime.current()
        instance_id = _id_of(target)
        with payloads.of(str(instance_id)):
            text = payloads.encode(payload, rt.settings, root=f"payload of signal {name!r}")
        message = NewMessage(kind="signal", name=name, payload=text, dedupe=signal_id)
        if rt.store.send(instance_id, message, rt.clock.now()):
            steering.hint_after_commit(instance_id, point="send.after_commit")


def get_handle(id: str | UUID) -> WorkflowHandle[Any]:
    """The handle of an instance, by its id, that of any of its runs or the task id of the message that started it.

    ``InstanceNotFound`` if there is none.
    """
    row = runtime.current().store.find(_id_of(id))
    if row is None:
        raise InstanceNotFound.of(id)
    return WorkflowHandle(str(row.chain_id))


aget_handle = in_thread(get_handle)


def start_by_message(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], task_id: str) -> UUID:
    """Start the workflow a Celery message names; its task id is the instance id, so again starts nothing."""
    definition = registry.newest(name)
    handle = _client.start(definition, [(tuple(args), dict(kwargs))], StartOptions(id=task_id))[0]
    return UUID(handle.id)


def start_by_schedule(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], schedule: str, slot_at: datetime, every: timedelta | None
) -> list[UUID]:
    """Start the instance of a schedule's slot, and of the few slots missed just before it; none if others did.

    The slot is in the instance's memo. A longer gap (no Beat ran) starts the latest slot alone.
    """
    rt = runtime.current()
    newest = registry.newest(name)
    now = rt.clock.now()

    def make(at: datetime) -> NewInstance:
        options = StartOptions(id=f"{schedule}:{at.isoformat()}", memo={"schedule": schedule, "slot": at.isoformat()})
        return _new_instance(newest, tuple(args), dict(kwargs), options, now)

    created = rt.store.start_slots(schedule, slot_at, every=every, behind=SLOTS_BEHIND, make=make)
    rt.store.on_commit(lambda: _publish([(row.id, newest.options.queue or "") for row in created], 0.0))
    return [row.id for row in created if row.created]


# -- starting ----------------------------------------------------------------------------------------------------------


def _new_instance(
    definition: WorkflowDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StartOptions,
    now: datetime,
) -> NewInstance:
    start_at = now + timedelta(seconds=options.start_delay)
    lasts = options.execution_timeout if options.execution_timeout is not None else definition.options.execution_timeout
    expected = definition.options.expected
    return NewInstance(
        id=identity.instance_id_of(options.id)
        if options.id
        else identity.new_id(int(now.timestamp() * 1000), os.urandom(10)),
        name=definition.name,
        version=definition.version,
        args=calls.encode_call(definition.signature, definition.name, args, kwargs),
        key=options.key if options.key is not None else _key(definition, args, kwargs),
        conflict=options.conflict,
        reuse=options.reuse,
        created_at=now,
        start_at=start_at,
        look_at=start_at + verdicts.RESEND_GRACE if not options.start_delay else start_at,
        queue=options.queue or definition.options.queue or "",
        priority=options.priority if options.priority is not None else definition.options.priority,
        deadline_at=None if lasts is None else start_at + timedelta(seconds=lasts),
        expected_at=None if expected is None else start_at + timedelta(seconds=expected),
        attributes=options.attributes or {},
        memo=options.memo or {},
        context=surroundings.captured(),
        subject=options.subject,
        parent_close=options.parent_close,
        messages=_first_messages(options),
        same_call=partial(calls.is_same, definition.signature),
    )


def _key(definition: WorkflowDefinition[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    make: Callable[..., Any] | None = definition.options.key
    return None if make is None else identity.check_key(make(*args, **kwargs))


def _first_messages(options: StartOptions) -> tuple[NewMessage, ...]:
    if options.signal is None:
        return ()
    signal, payload = options.signal
    signal.check(payload)
    text = payloads.encode(payload, runtime.settings(), root=f"payload of signal {signal.name!r}")
    return (NewMessage(kind="signal", name=signal.name, payload=text),)


def _check_same(definition: WorkflowDefinition[Any, Any], new: NewInstance, row: Created, *, by_id: bool) -> None:
    if row.created or by_id or new.is_same_call(row.args):
        return
    raise KeyConflict(
        f"key {new.key!r} of workflow {definition.name} is taken by open instance {row.id}, which was started with "
        "other arguments; use the same arguments, another key, or conflict='terminate_existing'",
        key=new.key or "",
        instance_id=str(row.id),
    )


def _publish(started: Sequence[tuple[UUID, str]], delay: float) -> None:
    faults.reach("start.after_commit")
    wakes = [Wake(instance_id=instance_id, queue=queue, delay=delay) for instance_id, queue in started]
    runtime.current().transport.advance_all(wakes)  # what the broker does not take is started by the tick


# -- looking -----------------------------------------------------------------------------------------------------------


def _id_of(target: Any) -> UUID:
    value = getattr(target, "chain_id", None) or getattr(target, "id", None) or target
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and labels.is_storable(value):
        return identity.instance_id_of(value)
    raise InstanceNotFound(f"{target!r} is no instance id, handle or instance")


_client = Client()
runtime.use_client(_client)
