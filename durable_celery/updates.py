"""Updates from outside: one is stored as a message, taken in by a turn, and answered on its row."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from durable_celery import payloads, runtime, steering
from durable_celery.core import labels, transitions
from durable_celery.core.failure import Failure
from durable_celery.core.handlers import Answer
from durable_celery.core.journal import UPDATE
from durable_celery.engine import outlook
from durable_celery.errors import (
    BadValue,
    InstanceClosed,
    InstanceNotFound,
    UpdateRejected,
    UsageError,
    WorkflowBlocked,
)
from durable_celery.messages import checked_name
from durable_celery.ports import InstanceRow, NewMessage, StoredUpdate


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An update that is stored, or was before; ``payload`` is its encoded arguments."""

    instance_id: UUID
    update_id: str
    name: str
    payload: str

    def deliver(self) -> None:
        """Store it in the current transaction and hint at it after the commit; there already: nothing."""
        rt = runtime.current()
        message = NewMessage(kind=UPDATE, name=self.name, payload=self.payload, dedupe=self.update_id)
        if rt.store.send(self.instance_id, message, rt.clock.now()):
            steering.hint_after_commit(self.instance_id, point="update.after_commit")


def send(instance_id: UUID, name: str, args: Sequence[Any], update_id: str | None, *, wait: bool) -> Sent:
    """Store an update, unless one with its id is there already. ``wait`` refuses an open transaction of the caller."""
    checked_name("an update", name)
    if update_id is not None and (not isinstance(update_id, str) or not update_id.strip()):
        raise BadValue(
            f"update_id={update_id!r:.80} is not allowed, expected a non-empty str or None", path="update_id"
        )
    labels.check_text(update_id or "", "update_id")
    rt = runtime.current()
    if wait and rt.store.in_transaction():
        raise UsageError(
            f"update {name!r} of instance {instance_id} inside atomic(): what is not committed cannot be answered; "
            "call it after the block, or with wait=False, and ask again after it by the id that returns"
        )
    with payloads.of(str(instance_id)):
        payload = payloads.encode(list(args), rt.settings, root=f"arguments of update {name!r}")
    sent = Sent(instance_id=instance_id, update_id=update_id or _new_id(), name=name, payload=payload)
    found = rt.store.update_of(instance_id, sent.update_id) if update_id is not None else None
    if found is None:
        sent.deliver()
    else:
        _check_same(sent, found)
    return sent


def look(sent: Sent, *, seconds: float | None, is_over: bool) -> Answer | None:
    """The answer, if there is one yet. ``seconds``: how long the sender waits, None for ever; ``is_over``: it did.

    Raises ``UpdateRejected``; ``InstanceClosed`` where no turn will take it in; and, instead of another look,
    ``TimeoutError`` or, for who waits for ever, ``WorkflowBlocked``.
    """
    runtime.current().idle()
    store = runtime.current().store
    found = store.update_of(sent.instance_id, sent.update_id)
    if found is None:
        sent.deliver()  # another sender with its id has read a refusal meanwhile: this one asks anew
    elif found.answer is not None:
        _check_same(sent, found)
        return _answer(sent, found)
    row = store.find(sent.instance_id)
    if row is None:
        raise InstanceNotFound.of(sent.instance_id)
    if found is not None and _has_ended(row):
        if store.withdraw_update(found.id):
            raise _closed(sent, row)
        return None  # it was taken in by the turn that ended the instance
    if is_over:
        raise _too_late(sent, row, seconds)
    if seconds is None and row.state == transitions.BLOCKED:
        raise WorkflowBlocked(
            f"update {sent.name!r} ({sent.update_id}) cannot be taken in: workflow {row.name} instance "
            f"{row.chain_id} is {row.waiting_for}. It is kept, and taken in once the instance goes on",
            instance_id=str(row.chain_id), waiting_for=row.waiting_for,
        )  # fmt: skip
    if seconds is None:
        runtime.current().refuse_endless(f"update {sent.name!r} of instance {sent.instance_id}, which is {row.state}")
    return None


def _answer(sent: Sent, found: StoredUpdate) -> Answer:
    answer = Answer.from_text(found.answer or "{}")
    if answer.failure is None:
        return answer
    failure = Failure.from_text(answer.failure)
    if found.rejected:
        runtime.current().store.discard_update(found.id)
    what = "was rejected" if found.rejected else "was accepted, and its function raised"
    raise UpdateRejected(
        f"update {sent.name!r} of instance {sent.instance_id} {what}: {failure.brief}",
        instance_id=str(sent.instance_id), update=sent.name, update_id=sent.update_id, accepted=not found.rejected,
        error_type=failure.type, error_types=failure.types, message=failure.message, traceback=failure.traceback,
        attributes=failure.attributes,
        causes=failure.causes,
    )  # fmt: skip


def _check_same(sent: Sent, found: StoredUpdate) -> None:
    if found.name != sent.name:
        raise BadValue(
            f"update_id={sent.update_id!r} was used for update {found.name!r} of instance {sent.instance_id}; update "
            f"{sent.name!r} needs an id of its own",
            path="update_id",
        )


def _has_ended(row: InstanceRow) -> bool:
    return row.state in transitions.FINAL_STATES or row.state == transitions.COMPENSATING


def _closed(sent: Sent, row: InstanceRow) -> InstanceClosed:
    return InstanceClosed(
        f"workflow {row.name} instance {row.chain_id} ended ({row.state}) before it took update {sent.name!r} in; the "
        "update was dropped. Start a new instance, or send before the end",
        instance_id=str(row.chain_id), status=row.state,
    )  # fmt: skip


def _too_late(sent: Sent, row: InstanceRow, seconds: float | None) -> TimeoutError:
    rt = runtime.current()
    waiting = outlook.waiting_for(row, rt.store.open_steps(row.id), rt.clock.now())
    return TimeoutError(
        f"update {sent.name!r} ({sent.update_id}) of workflow {row.name} instance {row.chain_id} has no answer after "
        f"{seconds or 0:g} s; the instance is {outlook.shown_state(row)}: {waiting}. The update is kept and will be "
        f"taken in; ask again with update_id={sent.update_id!r}"
    )


def _new_id() -> str:
    return str(uuid.UUID(bytes=os.urandom(16), version=4))
