"""How an instance ends: its mailbox closes, its key is free, its open rows are given up."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, CharField, F, Q, QuerySet, Value, When

from django_app.models import Mailbox, Message, StepResult
from django_app.models.moments import MomentField
from django_app.store.chains import Chains
from django_app.store.children import UNSAID, Children
from django_app.store.connected import chunks
from django_app.store.retries import nowait
from durable_celery.core import transitions as t
from durable_celery.ports import Wake

UNCLAIMED = (t.HELD, *t.CLAIMABLE)


class Closing(Children, Chains):
    """Parts of closing transactions; each needs one."""

    def hold_mailbox(self, chain_id: UUID) -> None:
        """Lock the mailbox against senders until the transaction ends; ``Busy`` if one is at it."""
        mailbox = self.rows(Mailbox).filter(instance_id=chain_id)
        features = self.connection.features
        if features.has_select_for_update:
            # Never wait here: a sender may hold it for as long as its own transaction lasts.
            with nowait():
                mailbox = mailbox.select_for_update(nowait=features.has_select_for_update_nowait)
                mailbox.values_list("instance_id").first()

    def unseen_messages(self, chain_id: UUID, last_message: int, left: Collection[int] | None) -> bool:
        """With the mailbox held: is there a message that the closing turn did not see? Others leave the sweep's way."""
        untaken = self.rows(Message).filter(chain_id=chain_id, taken_turn__isnull=True)
        if self.vendor == "mysql":
            untaken = untaken.select_for_update()  # under REPEATABLE READ a plain read may show an older state
        ids = set(untaken.values_list("id", flat=True))
        # Ids become visible out of order, so a lower one may be as new; ``left`` says what was seen and not taken.
        if any(pk > last_message for pk in ids) if left is None else not ids <= set(left):
            return True
        for some in chunks(sorted(ids)):
            self.rows(Message).filter(pk__in=some).update(look_at=None)
        return False

    def shut_mailbox(self, chain_id: UUID, now: datetime) -> None:
        """No message comes in any more."""
        self.rows(Mailbox).filter(instance_id=chain_id, closed_at__isnull=True).update(closed_at=now)

    def abandon_steps(self, wanted: Q, now: datetime, turn: int | None = None) -> None:
        """Give up rows: unclaimed ones are CANCELLED, claimed ones ABANDONED; in one statement, none slips through."""
        unclaimed = When(state__in=UNCLAIMED, then=Value(now, output_field=MomentField()))
        # MySQL assigns from left to right: what depends on the state comes before it.
        self._pinned(self.rows(StepResult).filter(wanted, taken_turn__isnull=True, abandoned=False)).update(
            finished_at=Case(unclaimed, default=F("finished_at"), output_field=MomentField()),
            look_at=Case(When(state__in=t.CLAIMED, then=F("look_at")), default=Value(None), output_field=MomentField()),
            abandoned=True,
            ended_turn=turn,
            state=Case(
                When(state__in=UNCLAIMED, then=Value(t.CANCELLED)),
                When(state__in=(t.RUNNING, t.EXTERNAL), then=Value(t.ABANDONED)),
                default=F("state"),
                output_field=CharField(),
            ),
        )

    def unlook_steps(self, instance_id: UUID) -> None:
        """Nothing of a closed instance stands in the sweep's way."""
        self._pinned(self.rows(StepResult).filter(instance_id=instance_id, look_at__isnull=False)).update(look_at=None)

    def _pinned(self, found: QuerySet[Any]) -> QuerySet[Any]:
        """These rows of an instance whose row is locked, to be changed by their keys.

        MySQL locks as it scans, an index before the row, and who changes a row by its key locks it before its indexes:
        a child that ends now would deadlock with its parent. Where a read may show an older state they are scanned.
        """
        if self.vendor != "mysql" or getattr(self.connection, "isolation_level", None) != "read committed":
            return found
        pks = list(found.order_by("pk").values_list("pk", flat=True))
        pinned: QuerySet[Any] = self.rows(StepResult).filter(pk__in=pks)
        return pinned

    def terminate(
        self, instance_id: UUID, now: datetime, failure: str | None = None, wakes: list[Wake] | None = None
    ) -> bool:
        """End the newest run of a chain TERMINATED, at once and without compensation; its key is the caller's to free.

        Waits for a sender that holds the mailbox. False if it was closed already. Its children end by their terms, and
        the row of its parent ends; ``wakes`` gets whom that concerns.
        """
        wakes = wakes if wakes is not None else []  # the sweep finds what nobody hints at
        run, ended = self.change_newest(
            self.newest_run(instance_id), Q(state__in=t.sources(t.INSTANCE, t.TERMINATED)),
            state=t.TERMINATED, revision=F("revision") + 1, finished_at=now, failure=failure, open_key=None,
            waiting_for="", waiting_since=None, look_at=None, blocked_by="",
        )  # fmt: skip
        if not ended:
            return False
        self.end_children(run.id, t.TERMINATED, now, wakes)
        self.shut_mailbox(run.chain_id, now)
        self.rows(Message).filter(chain_id=run.chain_id, taken_turn__isnull=True).update(look_at=None)
        self.abandon_steps(Q(instance_id=run.id), now)
        self.unlook_steps(run.id)
        parent = self.parent_of(run.id)
        if parent is not None:
            self.settle_parent(parent, t.TERMINATED, now, wakes, failure=failure or UNSAID)
        return True
