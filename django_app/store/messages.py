"""Messages: stored in the sender's transaction, under a lock it shares with all senders and with no closing turn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, F, OuterRef

from django_app.models import Mailbox, Message, WorkflowInstance
from django_app.store.connected import Connected
from django_app.store.retries import retried
from durable_celery import faults
from durable_celery.core import transitions as t
from durable_celery.core.journal import UPDATE
from durable_celery.errors import InstanceClosed, InstanceNotFound
from durable_celery.ports import NewMessage

GRACE = timedelta(seconds=2)  # how long a message may lie before the sweep asks for a turn
AGAIN = timedelta(seconds=30)  # and before it asks once more
SHARED = {"postgresql": " FOR SHARE", "mysql": " LOCK IN SHARE MODE"}


class Messages(Connected):
    """The mailbox of decision 11: a message is delivered exactly once, or the sender is told."""

    @retried
    def send(self, instance_id: UUID, message: NewMessage, now: datetime) -> bool:
        """Store a message in the caller's transaction, for the newest run of the chain; True if a hint is due.

        ``InstanceClosed`` if it has ended, ``InstanceNotFound`` if there is none: nothing is stored then.
        """
        with self.atomic():
            chain_id = self._enter(instance_id)
            self.store_messages([(chain_id, message, now)])
            faults.reach("send.in_transaction")
            if message.dedupe is None:
                return True
            stored = self.rows(Message).filter(chain_id=chain_id, dedupe_hash=dedupe_hash(message.kind, message.dedupe))
            return bool(stored.filter(taken_turn__isnull=True).exists())

    def _enter(self, instance_id: UUID) -> UUID:
        """Lock the mailbox of the chain, shared; the chain's id. ``instance_id`` may be that of a later run too."""
        chain_id = instance_id
        found = self._share_mailbox(chain_id)
        if found is None:
            chains = self.rows(WorkflowInstance).filter(pk=instance_id).values_list("chain_id", flat=True)
            chain_id = chains.first() or instance_id
            found = self._share_mailbox(chain_id) if chain_id != instance_id else None
        if found is None:
            raise InstanceNotFound.of(instance_id)
        (closed_at,) = found
        if closed_at is not None:
            runs = self.rows(WorkflowInstance).filter(chain_id=chain_id).order_by("-run_number")
            status = runs.values_list("state", flat=True).first() or ""
            raise InstanceClosed(
                f"workflow instance {instance_id} has ended ({status or 'purged'}, {closed_at:%Y-%m-%d %H:%M:%S} UTC); "
                "the message was not stored. Start a new instance, or send before the end",
                instance_id=str(instance_id),
                status=status,
            )
        return chain_id

    def _share_mailbox(self, pk: UUID) -> tuple[datetime | None] | None:
        mailbox = self.rows(Mailbox).filter(pk=pk)
        if self.vendor not in SHARED:
            # SQLite locks by the first write; reading first could find the lock gone for good.
            mailbox.update(closed_at=F("closed_at"))
            found: tuple[datetime | None] | None = mailbox.values_list("closed_at").first()
            return found
        compiler = mailbox.values_list("closed_at").query.get_compiler(self.alias)
        sql, params = compiler.as_sql()
        with self.connection.cursor() as cursor:
            # The locking read itself: under REPEATABLE READ a second one may show an older version.
            cursor.execute(sql + SHARED[self.vendor], params)
            rows = cursor.fetchall()
        return next(iter(compiler.results_iter(results=[rows], tuple_expected=True)), None)

    def store_messages(self, messages: Iterable[tuple[UUID, NewMessage, datetime]]) -> None:
        """Insert messages for chains; one with a ``dedupe`` that is there already changes nothing."""
        rows = [
            Message(
                chain_id=chain_id, instance_id=chain_id, kind=new.kind, name=new.name, payload=new.payload,
                dedupe=new.dedupe,
                dedupe_hash=None if new.dedupe is None else dedupe_hash(new.kind, new.dedupe),
                stored_at=now, look_at=now + GRACE,
            )
            for chain_id, new, now in messages
        ]  # fmt: skip
        if rows:
            self.rows(Message).bulk_create(rows, ignore_conflicts=any(row.dedupe is not None for row in rows))

    @retried
    def due_messages(self, now: datetime, limit: int) -> Sequence[UUID]:
        """Chains with a message older than its grace that no turn took in; looked at again half a minute later."""
        active = self.rows(WorkflowInstance).filter(
            chain_id=OuterRef("chain_id"), state__in=t.OPEN_STATES, finished_at__isnull=True, paused_at__isnull=True
        )
        due = self.rows(Message).filter(
            Exists(active.exclude(state=t.BLOCKED)), look_at__lte=now, taken_turn__isnull=True
        )
        found = list(due.order_by("look_at", "id").values_list("id", "chain_id")[:limit])
        if found:
            self.rows(Message).filter(pk__in=[pk for pk, _ in found], look_at__lte=now).update(look_at=now + AGAIN)
        return list(dict.fromkeys(chain_id for _, chain_id in found))


def dedupe_hash(kind: str, dedupe: str) -> str:
    """What is unique of an id that a sender gave; those of updates are apart from those of signals."""
    text = dedupe if kind != UPDATE else f"{kind}\0{dedupe}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
