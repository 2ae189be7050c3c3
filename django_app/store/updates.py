"""Updates: a message that is answered on its own row, and found again there by the id its sender gave."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.db import models
from django.db.models import F

from django_app.models import Message, WorkflowInstance
from django_app.store.connected import Connected, by_id, chunks
from django_app.store.messages import dedupe_hash
from django_app.store.retries import retried
from durable_celery.core import transitions as t
from durable_celery.core.journal import REJECTED, UPDATE
from durable_celery.ports import StoredUpdate

NO_TURN = 0  # the turn a rejected update counts as taken in: none that ever was
ENDED = (*(state for state in t.FINAL_STATES if state != t.CONTINUED), t.COMPENSATING)
TEXT = models.TextField()


class Updates(Connected):
    """Answers and refusals of updates. A row that is REJECTED is no message any more: only its sender reads it."""

    @retried
    def update_of(self, instance_id: UUID, update_id: str) -> StoredUpdate | None:
        """The update with this id in the chain; ``instance_id`` may be that of any of its runs. One statement."""
        chain = self.rows(WorkflowInstance).filter(pk=instance_id).values("chain_id")
        found = self.rows(Message).filter(chain_id__in=chain, dedupe_hash=dedupe_hash(UPDATE, update_id))
        values = found.values_list("id", "name", "kind", "answer").first()
        if values is None:
            return None
        pk, name, kind, answer = values
        return StoredUpdate(id=pk, name=name, rejected=kind == REJECTED, answer=answer)

    @retried
    def reject_updates(self, instance_id: UUID, revision: int, rejected: Mapping[int, str], now: datetime) -> bool:
        """Answer updates that a look at this revision refused, and nothing else; False if the revision moved.

        It moves the revision itself: a turn under way may have taken the same update in.
        """
        with self.atomic():
            mine = self.rows(WorkflowInstance).filter(pk=instance_id, revision=revision, state__in=t.OPEN_STATES)
            if not mine.update(revision=F("revision") + 1):
                return False
            self.keep_rejections(rejected, now)
        return True

    @retried
    def discard_update(self, message_id: int) -> None:
        """Remove a rejected update, once its sender knows."""
        self.rows(Message).filter(pk=message_id, kind=REJECTED).delete()

    @retried
    def withdraw_update(self, message_id: int) -> bool:
        """Remove an update that no turn took in before its instance ended, so that no ``retry()`` runs it after all.

        False if one did, or if the instance is open again.
        """
        with self.atomic():
            chain = self.rows(Message).filter(pk=message_id).values("chain_id")
            runs = self.rows(WorkflowInstance).filter(chain_id__in=chain).order_by("-run_number")
            newest = runs.values_list("pk", flat=True).first()
            # The guarded write locks the instance: a retry that reopens it waits, and finds the update gone.
            ended = self.rows(WorkflowInstance).filter(pk=newest, state__in=ENDED)
            if not ended.update(revision=F("revision")):
                return False
            deleted, _ = self.rows(Message).filter(pk=message_id, kind=UPDATE, taken_turn__isnull=True).delete()
            return bool(deleted)

    # -- parts of the transaction of a turn ------------------------------------------------------------------------

    def keep_answers(self, answers: Mapping[int, str]) -> None:
        """What the turn answered; the first answer stays, should the turn have been taken back."""
        for pks in chunks(answers):
            unanswered = self.rows(Message).filter(pk__in=pks, answer__isnull=True)
            unanswered.update(answer=by_id({pk: answers[pk] for pk in pks}, TEXT))

    def keep_rejections(self, rejected: Mapping[int, str], now: datetime) -> None:
        """What the turn refused: no message any more, and in nobody's way."""
        for pks in chunks(rejected):
            refused = self.rows(Message).filter(pk__in=pks, kind=UPDATE, taken_turn__isnull=True)
            answer = by_id({pk: rejected[pk] for pk in pks}, TEXT)
            refused.update(
                kind=REJECTED, taken_turn=NO_TURN, delivered_turn=NO_TURN, taken_at=now, look_at=None, answer=answer
            )
