"""What comes from outside, and the door it comes through.

Neither has a foreign key to the instance: its lock would make transactions of users and turns wait for each other.
"""

from __future__ import annotations

from django.db import models

from django_app.models.moments import MomentField
from django_app.models.querysets import EngineManager


class Message(models.Model):
    """A signal, a cancel or the like, in the order of its id. ``dedupe_hash`` is set where the sender gave an id.


    One that no turn took in (``taken_turn``) belongs to the newest run of its chain, whichever that is: a chain goes on
    without waiting for its senders. ``instance_id`` is the run that took it in, until then the first.
    ``delivered_turn`` is the turn that gave it to a wait or a handler; without it, it is kept unread, and goes on to
    the next run.
    """

    chain_id = models.UUIDField()
    instance_id = models.UUIDField(db_index=True)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=255, default="", blank=True)
    payload = models.TextField(default="", blank=True)
    dedupe = models.TextField(null=True, blank=True)  # noqa: DJ001
    dedupe_hash = models.CharField(max_length=64, null=True, blank=True)  # noqa: DJ001 - NULLs are not equal
    stored_at = MomentField()
    look_at = MomentField(null=True, blank=True)
    taken_turn = models.IntegerField(null=True, blank=True)
    taken_order = models.IntegerField(default=0)
    taken_at = MomentField(null=True, blank=True)
    delivered_turn = models.IntegerField(null=True, blank=True)
    answer = models.TextField(null=True, blank=True)  # noqa: DJ001 - None is "no answer yet"

    objects = EngineManager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["chain_id", "dedupe_hash"], name="durable_message_dedupe")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Mailbox(models.Model):
    """The door of one chain of runs, by the id of the first: senders share its lock, only closing holds it alone.

    ``opened_by`` is drawn by the start that inserted it, which tells a repeated start from the first.
    """

    instance_id = models.UUIDField(primary_key=True)
    opened_by = models.CharField(max_length=32, default="", blank=True)
    closed_at = MomentField(null=True, blank=True)

    objects = EngineManager()

    class Meta:
        verbose_name_plural = "mailboxes"

    def __str__(self) -> str:
        return str(self.instance_id)
