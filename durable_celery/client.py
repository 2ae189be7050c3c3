"""From outside: starting instances, sending to them, asking about them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from durable_celery import calls, codec, runtime
from durable_celery.core import identity, transitions
from durable_celery.core.failure import Failure
from durable_celery.engine import outlook, verdicts
from durable_celery.errors import (
    BadValue,
    InstanceNotFound,
    KeyConflict,
    UsageError,
    WorkflowBlocked,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowTerminated,
)
from durable_celery.ports import Created, InstanceRow, NewInstance, NewMessage
from durable_celery.registry import registry
from durable_celery.workflows import StartOptions, WorkflowDefinition

R = TypeVar("R")

POLL_FIRST, POLL_MOST = 0.02, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One row of ``handle.history()``. ``attempts`` counts starts; ``error`` is a Failure, ``result`` the decoded value."""

    position: str
    kind: str
    name: str
    state: str
    args: Any
    result: Any
    error: Failure | None
    attempts: int
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    turn: int | None


class WorkflowHandle(Generic[R]):
    """An instance, by its id. Attributes are read afresh each time and follow continued runs.

    ``created`` is True if the call that returned this handle started the instance.
    """

    __slots__ = ("created", "id")

    def __init__(self, id: str, created: bool = False) -> None:
        self.id = id
        self.created = created

    def __repr__(self) -> str:
        return f"<workflow handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def run_id(self) -> str:
        """The id of the newest run."""
        return str(self._row().id)

    @property
    def key(self) -> str | None:
        """The business key."""
        return self._row().key

    @property
    def status(self) -> str:
        """The state, or PAUSED while it is paused."""
        return outlook.shown_state(self._row())

    @property
    def waiting_for(self) -> str:
        """In words: on what, since and until when; of a BLOCKED instance the error. Empty once closed."""
        row = self._row()
        return outlook.waiting_for(row, runtime.current().store.open_steps(row.id), runtime.current().clock.now())

    def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait for the end and return the result.

        Raises ``WorkflowFailed``, ``WorkflowCancelled`` or ``WorkflowTerminated``; with a timeout (seconds) TimeoutError,
        without one ``WorkflowBlocked`` if it is BLOCKED. Refused inside ``atomic()``: the result could not come.
        """
        store = runtime.current().store
        if store.in_transaction():
            raise UsageError(
                f"result() of instance {self.id} inside atomic(): what is not committed cannot run, and an open transaction may "
                "not see the end; call it after the block"
            )
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        pause = POLL_FIRST
        while True:
            row = self._row()
            if row.state in transitions.FINAL_STATES:
                value: R = _outcome(row)
                return value
            if row.state == transitions.BLOCKED and deadline is None:
                raise WorkflowBlocked(
                    f"workflow {row.name} instance {self.id} is {row.waiting_for}",
                    instance_id=self.id,
                    waiting_for=row.waiting_for,
                )
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(
                    f"workflow {row.name} instance {self.id} is {self.status} after {seconds:g} s: {self.waiting_for}"
                )
            time.sleep(pause if deadline is None else max(0.0, min(pause, deadline - time.monotonic())))
            pause = min(pause * 1.3, POLL_MOST)

    def signal(self, name: str, payload: Any = None, signal_id: str | None = None) -> None:
        """Send a message by name, in the current transaction; a second one with the same ``signal_id`` changes nothing.

        ``InstanceClosed`` if it has ended (nothing is stored then), ``InstanceNotFound`` if there is none.
        """
        _client.signal(self, name, payload, signal_id)

    def history(self) -> list[HistoryEntry]:
        """The journal in order of position, compensations last."""
        return [_entry(row) for row in runtime.current().store.history(self._row().id)]

    def _row(self) -> InstanceRow:
        row = runtime.current().store.find(UUID(self.id))
        if row is None:
            raise InstanceNotFound(f"there is no workflow instance {self.id}", instance_id=self.id)
        return row


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
        if not isinstance(name, str) or not name.strip() or len(name) > 191:
            raise BadValue(f"a signal needs a name of 1 to 191 characters, got {name!r}", path="name")
        if signal_id is not None and (not isinstance(signal_id, str) or not signal_id.strip()):
            raise BadValue(
                f"signal_id={signal_id!r} is not allowed, expected a non-empty str or None", path="signal_id"
            )
        rt = runtime.current()
        limit = rt.settings.payload_limit
        text = codec.encode(payload, root=f"payload of signal {name!r}", limit=limit)
        instance_id = _id_of(target)
        message = NewMessage(kind="signal", name=name, payload=text, dedupe=signal_id)
        if rt.store.send(instance_id, message, rt.clock.now()):
            rt.store.on_commit(lambda: rt.transport.advance(instance_id))


def get_handle(id: str | UUID) -> WorkflowHandle[Any]:
    """The handle of an instance; ``InstanceNotFound`` if there is none."""
    handle: WorkflowHandle[Any] = WorkflowHandle(str(_id_of(id)))
    handle._row()
    return handle


def start_by_message(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], task_id: str) -> UUID:
    """Start the workflow a Celery message names; the task id is the instance id, so a redelivery starts nothing twice."""
    definition = registry.newest(name)
    handle = _client.start(definition, [(tuple(args), dict(kwargs))], StartOptions(id=task_id))[0]
    return UUID(handle.id)


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
        subject=options.subject,
        parent_close=options.parent_close,
        messages=_first_messages(options),
    )


def _key(definition: WorkflowDefinition[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    make: Callable[..., Any] | None = definition.options.key
    return None if make is None else identity.check_key(make(*args, **kwargs))


def _first_messages(options: StartOptions) -> tuple[NewMessage, ...]:
    if options.signal is None:
        return ()
    signal, payload = options.signal
    signal.check(payload)
    text = codec.encode(payload, root=f"payload of signal {signal.name!r}", limit=runtime.settings().payload_limit)
    return (NewMessage(kind="signal", name=signal.name, payload=text),)


def _check_same(definition: WorkflowDefinition[Any, Any], new: NewInstance, row: Created, *, by_id: bool) -> None:
    if row.created or by_id or row.args == new.args:
        return
    raise KeyConflict(
        f"key {new.key!r} of workflow {definition.name} is taken by open instance {row.id}, which was started with other arguments; "
        "use the same arguments, another key, or conflict='terminate_existing'",
        key=new.key or "",
        instance_id=str(row.id),
    )


def _publish(started: Sequence[tuple[UUID, str]], delay: float) -> None:
    if delay > 5:
        return  # the row's due time wakes it; a broker countdown is a hint for seconds only
    for instance_id, queue in started:
        if not runtime.current().transport.advance(instance_id, queue, delay=delay):
            return  # the broker is away; the tick starts the rest


# -- looking -----------------------------------------------------------------------------------------------------------


def _id_of(target: Any) -> UUID:
    value = getattr(target, "chain_id", None) or getattr(target, "id", None) or target
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError:
        raise InstanceNotFound(f"{target!r} is no instance id, handle or instance") from None


def _outcome(row: InstanceRow) -> Any:
    if row.state == transitions.COMPLETED:
        return None if row.result is None else codec.decode(row.result)
    ids = {"instance_id": str(row.chain_id)}
    failure = Failure.from_text(row.failure) if row.failure else Failure(type="", message="")
    what = f"workflow {row.name} instance {row.chain_id}"
    if row.state == transitions.CANCELLED:
        raise WorkflowCancelled(f"{what} was cancelled: {failure.message}", reason=failure.message, **ids)
    if row.state == transitions.TERMINATED:
        raise WorkflowTerminated(f"{what} was terminated: {failure.message}", reason=failure.message, **ids)
    raise WorkflowFailed(
        f"{what} failed: {failure.brief}",
        error_type=failure.type,
        error_types=failure.types,
        message=failure.message,
        traceback=failure.traceback,
        attributes=failure.attributes,
        **ids,
    )


def _entry(row: Mapping[str, Any]) -> HistoryEntry:
    return HistoryEntry(
        position=row["position"],
        kind=row["kind"],
        name=row["name"],
        state=row["state"],
        args=_shown(calls.decode_call, row["args"]) if row["args"] else ((), {}),
        result=None if row["result"] is None else _shown(codec.decode, row["result"]),
        error=Failure.from_text(row["error"]) if row["error"] else None,
        attempts=row["attempts"],
        scheduled_at=row["scheduled_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        turn=row["turn"],
    )


def _shown(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except Exception:  # noqa: BLE001 - a value whose class is gone must not hide the history
        return text


_client = Client()
runtime.use_client(_client)
